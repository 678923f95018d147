"""What a finding is mistaken for, and what tells the two apart: the rows of look_alikes.md by name."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Mapping
from functools import cache
from importlib.resources import files

_NAME = re.compile(r"`([a-z0-9-]+)`")


@cache
def page() -> str:
    """The page as it is written, in Markdown."""
    return (files(__package__) / "look_alikes.md").read_text(encoding="utf-8")


def rows() -> list[tuple[str, str, str]]:
    """(looks like, and like, what tells them apart), names in backticks."""
    found = re.findall(r"(?m)^\| (.+?) \| (.+?) \| (.+) \|$", page())
    return [row for row in found if row[0] != "looks like"]


def section(name: str, codes: Mapping[str, str]) -> str:
    """A heading and a list of the look-alikes of a finding, each name with its code; empty when there are none."""
    items = []
    for first, second, how in rows():
        if f"`{name}`" in first + second:
            other = second if f"`{name}`" in first else first
            items.append(f"- {_NAME.sub(lambda m: _coded(m[1], codes), other)}: {how}")
    if not items:
        return ""
    lines = [textwrap.fill(i, 76, subsequent_indent="  ", break_on_hyphens=False) for i in items]
    return "\n\n## Look-alikes\n" + "\n".join(lines)


def _coded(name: str, codes: Mapping[str, str]) -> str:
    return f"`{name}` {codes[name]}" if name in codes else f"`{name}`"
