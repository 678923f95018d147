"""What a path holds, read once for all readers that want to recognise it: names, and the content of a few files."""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from hsparity.capture.readers import pickled
from hsparity.capture.readers.base import guarded, is_regular
from hsparity.capture.shards import Tensor, read_header
from hsparity.errors import HsparityError

DEPTH = 3  # folders below the path that are listed
TRIED = 4  # files of one kind that are opened before it counts as unreadable
OURS = ("manifest.json", "journal.jsonl", "scan.jsonl")
JSON_BYTES = 64 << 20
DEEPER, LINKED = "deeper", "linked"  # folders that are not listed


class Look:
    """A folder or a file, listed once. Nothing is followed through a link to a folder, so a loop of links ends here.

    Listed are files, links to files, and links that lead nowhere, which may be samples that are gone; never a pipe, a
    socket or a device.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.problems: list[HsparityError] = []  # files that were tried and could not be read
        self._names: list[str] | None = None
        self._unlisted = Counter[str]()
        self._alone = path.is_file()
        self._matching: dict[tuple[str, int], list[str]] = {}
        self._opened: dict[str, Any] = {}

    @property
    def names(self) -> list[str]:
        """Files by name relative to the path, `data_2` before `data_10`; the file's own name for a file."""
        if self._names is None:
            root = self.path
            found = [root.name] if self._alone else _files(root, "", DEPTH, self._unlisted)
            self._names = sorted(found, key=natural)
        return self._names

    @property
    def unlisted(self) -> Counter[str]:
        """How many folders were not listed: DEEPER ones and LINKED ones. `names` counts them."""
        return self._unlisted

    def file(self, name: str) -> Path:
        return self.path if self._alone else self.path / name

    def matching(self, pattern: str, flags: int = 0) -> list[str]:
        """Names whose whole text matches a regular expression."""
        key = (pattern, flags)
        if key not in self._matching:
            expression = re.compile(pattern, re.DOTALL | flags)  # a name may hold a newline
            self._matching[key] = [name for name in self.names if expression.fullmatch(name)]
        return self._matching[key]

    def pickled(self, name: str) -> Any:
        """The content of a torch file; None where it cannot be read."""
        return self._read(name, pickled.load)

    def tensors(self, name: str) -> dict[str, Tensor] | None:
        """The header of a safetensors file; None where it cannot be read."""
        return self._read(name, read_header)

    def _read(self, name: str, load: Callable[[Path], Any]) -> Any:
        if name not in self._opened:
            try:
                with guarded(self.file(name)):
                    self._opened[name] = load(self.file(name))
            except HsparityError as error:
                self._opened[name] = None
                self.problems.append(error)
        return self._opened[name]


def _files(root: Path, under: str, depth: int, unlisted: Counter[str]) -> Iterator[str]:
    try:
        entries = list(os.scandir(root / under))
    except OSError as error:
        raise HsparityError("E202", f"cannot read {root / under}", (str(error),)) from None
    if under and any(entry.name in OURS for entry in entries):
        return  # a capture made of the dataset is no part of it
    for entry in entries:
        name = f"{under}/{entry.name}" if under else entry.name
        kind = _kind(entry)
        if kind == "folder" and not entry.name.startswith("."):
            if entry.is_symlink() or not depth:
                unlisted[LINKED if entry.is_symlink() else DEEPER] += 1
            else:
                yield from _files(root, name, depth - 1, unlisted)
        elif kind == "file":
            yield name


def _kind(entry: os.DirEntry[str]) -> str:
    """ "file", "folder", or "" for what is neither. A link counts as what it leads to, as a file where it leads nowhere."""
    try:
        if entry.is_dir():
            return "folder"
        if entry.is_file() or (entry.is_symlink() and not os.path.exists(entry.path)):
            return "file"
    except OSError:  # a loop of links
        return "file"
    return ""


_DIGITS = re.compile(r"([0-9]+)")


def natural(name: str) -> tuple[Any, ...]:
    """Sort key that counts digits as numbers."""
    # Every second part is one of digits; a name is at most 255 bytes, which no number of digits is too long for.
    parts = _DIGITS.split(name)
    return tuple((0, int(p), "") if i % 2 else (1, 0, p) for i, p in enumerate(parts) if p)


def number_in(name: str) -> int:
    """The last number in a file's stem; 0 where there is none."""
    found = _DIGITS.findall(name.rpartition("/")[2].partition(".")[0])
    return int(found[-1]) if found else 0


def read_json(path: Path) -> Any:
    """A small JSON file. Raises E206."""
    try:
        size = path.stat().st_size
        if not is_regular(path):
            raise ValueError("it is no regular file")
        if size > JSON_BYTES:
            raise ValueError(f"{size} bytes are more than any such file has")
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise HsparityError("E206", f"cannot read {path} as JSON", (str(error)[:200],)) from None
