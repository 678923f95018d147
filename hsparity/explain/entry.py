"""One explained code."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Entry:
    """`text` holds "## Heading" lines, as the docstring of a cause does."""

    code: str
    name: str
    text: str


def entry(code: str, name: str, means: str, why: str, do: str) -> Entry:
    """An entry in the three parts that every error needs."""
    return Entry(code, name, f"## What it means\n{means}\n\n## Why it happens\n{why}\n\n## What to do\n{do}")
