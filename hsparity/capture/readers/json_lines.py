"""JSON of any size: a file as one value, or as lines of which each is one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from hsparity.errors import HsparityError

LINES_TRIED = 64  # lines before a file that shows no object counts as one value


def first_byte(path: Path) -> bytes:
    """The first byte that is no space. Raises E206."""
    try:
        with path.open("rb") as file:
            return file.read(1024).lstrip()[:1]
    except OSError as error:
        raise _unreadable(path, error) from None


def line_starts(path: Path) -> list[int]:
    """Where the lines of a JSON lines file start; [] where the file is one value, on one line or over several.

    Some line of JSON lines is an object from end to end; its first may be cut, or null.
    """
    starts, at, objects = [], 0, False
    try:
        with path.open("rb") as file:
            for line in file:
                if text := line.strip():
                    starts.append(at)
                    if len(starts) == 1 and text[:1] == b"[" and text[-1:] != b"]":
                        return []  # a list over several lines
                    objects = objects or (line[:1] == b"{" and text[-1:] == b"}")
                    if not objects and len(starts) == LINES_TRIED:
                        return []
                at += len(line)
    except OSError as error:
        raise _unreadable(path, error) from None
    return starts if objects and len(starts) > 1 else []


def _unreadable(path: Path, error: OSError) -> HsparityError:
    return HsparityError("E206", f"cannot read {path}", (str(error)[:200],))


def parse(path: Path) -> Any:
    """A whole file. Raises E206."""
    try:
        return loads(path, path.read_bytes())
    except OSError as error:
        raise _unreadable(path, error) from None


def loads(path: Path, text: bytes) -> Any:
    """A text of a file. Raises E206."""
    if not text.strip():
        raise HsparityError("E206", f"{path} is empty (0 bytes)")
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise HsparityError("E206", f"cannot read {path} as JSON", (str(error)[:200],)) from None
