"""A list of layer ids as it is typed."""

from __future__ import annotations

import click


def read_ids(text: str | None) -> tuple[int, ...] | None:
    """Ids; () for the engine's default, None where none are given. Raises click.BadParameter."""
    if text is None:
        return None
    if text.strip().lower() == "default":
        return ()
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() for part in parts):
        raise click.BadParameter(f"{text!r} is not a list of numbers", param_hint="--ids")
    return tuple(int(part) for part in parts)
