"""Environment variables as they are typed."""

from __future__ import annotations

import click


def read_environment(words: tuple[str, ...]) -> dict[str, str]:
    """NAME=VALUE, one each. Raises click.BadParameter."""
    if bad := next((w for w in words if not w.partition("=")[0] or "=" not in w), None):
        raise click.BadParameter(f"{bad!r} is not NAME=VALUE", param_hint="--env")
    return dict(word.split("=", 1) for word in words)
