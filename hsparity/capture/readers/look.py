"""What a path holds, read once for all readers that want to recognise it: names, and the content of a few files."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hsparity.capture.readers import pickled
from hsparity.capture.shards import Tensor, read_header
from hsparity.errors import HsparityError

DEPTH = 3  # folders below the path that are listed
TRIED = 4  # files of one kind that are opened before it counts as unreadable
OURS = ("manifest.json", "journal.jsonl", "scan.jsonl")
JSON_BYTES = 64 << 20


class Look:
    """A folder or a file. Nothing is followed through a link to a folder, so a loop of links ends here."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.problems: list[HsparityError] = []  # files that were tried and could not be read
        self._names: list[str] | None = None
        self._opened: dict[str, Any] = {}

    @property
    def names(self) -> list[str]:
        """Files by name relative to the path, `data_2` before `data_10`; the file's own name for a file."""
        if self._names is None:
            root = self.path
            found = [root.name] if root.is_file() else list(_files(root, "", DEPTH))
            self._names = sorted(found, key=natural)
        return self._names

    def file(self, name: str) -> Path:
        return self.path if self.path.is_file() else self.path / name

    def matching(self, pattern: str) -> list[str]:
        """Names whose whole text matches a regular expression."""
        expression = re.compile(pattern, re.DOTALL)  # a name may hold a newline
        return [name for name in self.names if expression.fullmatch(name)]

    def pickled(self, pattern: str) -> Any:
        """The content of the first readable torch file that matches; None where none is."""
        return self._first(pattern, pickled.load)

    def tensors(self, pattern: str) -> dict[str, Tensor] | None:
        """The header of the first readable safetensors file that matches."""
        return self._first(pattern, read_header)

    def json(self, pattern: str) -> Any:
        """The content of the first readable JSON file that matches."""
        return self._first(pattern, read_json)

    def _first(self, pattern: str, load: Any) -> Any:
        for name in self.matching(pattern)[:TRIED]:
            if name not in self._opened:
                try:
                    self._opened[name] = load(self.file(name))
                except HsparityError as error:
                    self._opened[name] = None
                    self.problems.append(error)
            if self._opened[name] is not None:
                return self._opened[name]
        return None


def _files(root: Path, under: str, depth: int) -> Iterator[str]:
    try:
        entries = list(os.scandir(root / under))
    except OSError as error:
        raise HsparityError("E202", f"cannot read {root / under}", (str(error),)) from None
    if under and any(entry.name in OURS for entry in entries):
        return  # a capture made of the dataset is no part of it
    for entry in entries:
        name = f"{under}/{entry.name}" if under else entry.name
        if entry.is_dir(follow_symlinks=False):
            if depth and not entry.name.startswith("."):
                yield from _files(root, name, depth - 1)
        elif not entry.is_symlink() or _leads_to_file(entry):
            yield name


def _leads_to_file(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_file()
    except OSError:  # a loop of links
        return False


def natural(name: str) -> tuple[Any, ...]:
    """Sort key that counts digits as numbers."""
    return tuple((0, int(p), "") if p.isdigit() else (1, 0, p) for p in re.split(r"(\d+)", name) if p)


def number_in(name: str) -> int:
    """The last number in a file's stem; 0 where there is none."""
    found = re.findall(r"\d+", Path(name).name.partition(".")[0])
    return int(found[-1]) if found else 0


def read_json(path: Path) -> Any:
    """A small JSON file. Raises E206."""
    try:
        size = path.stat().st_size
        if size > JSON_BYTES:
            raise ValueError(f"{size} bytes are more than any such file has")
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise HsparityError("E206", f"cannot read {path} as JSON", (str(error)[:200],)) from None
