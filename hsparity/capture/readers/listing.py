"""What readers of one file per sample share: the files of a folder as records, and recognising a format by a few of them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import Any, TypeVar

from hsparity.capture.readers.base import Record
from hsparity.capture.readers.look import DEEPER, DEPTH, LINKED, TRIED, Look, natural, number_in
from hsparity.capture.shards import INT32_MAX

Found = TypeVar("Found")


def first(
    look: Look, pattern: str, opened: Callable[[str], Any], says: Callable[[Any], Found | None]
) -> Found | None:
    """What `says` answers of the first file that it knows; a few are tried, so one odd file hides no dataset.

    `opened` is `look.pickled` or `look.tensors`.
    """
    for name in look.matching(pattern)[:TRIED]:
        content = opened(name)
        if content is not None and (found := says(content)):
            return found
    return None


def several(look: Look, pattern: str, count: Callable[[Path], int]) -> tuple[Record, ...]:
    """The samples of files that may hold more than one each, in order; `count` says how many a file holds."""
    found: list[Record] = []
    for name in look.matching(pattern):
        path, stem = look.file(name), name.rpartition(".")[0]
        size = count(path)
        for part in range(size):
            found.append(Record(stem if size == 1 else f"{stem}[{part}]", len(found), path, part))
    return tuple(found)


def numbered(look: Look, pattern: str) -> tuple[Record, ...]:
    """Files as samples, by the last number in their names.

    Numbers that start again in every folder (one folder for each job) are counted on, folder after folder, and the
    folder joins the id.
    """
    names = look.matching(pattern)
    numbers = _numbers(names)
    again = max(Counter(map(_stem, names)).values(), default=0) > 1
    start: dict[str, int] = {}
    if again:
        last = Counter[str]()
        for name in names:
            last[_folder(name)] = max(last[_folder(name)], numbers[name] + 1)
        total = 0
        for folder in sorted(last, key=natural):
            start[folder], total = total, total + last[folder]
    found: list[Record] = []
    taken: set[str] = set()
    for name in names:
        stem, folder = _stem(name), _folder(name)
        ident = f"{folder}/{stem}" if again and folder else stem
        if ident in taken:  # data_3.ckpt beside data_3.ckpt.gz
            ident = name
        taken.add(ident)
        found.append(Record(ident, start.get(folder, 0) + numbers[name], look.file(name)))
    return tuple(sorted(found, key=lambda record: record.index))  # names of one number stay in their order


def in_order(look: Look, pattern: str) -> tuple[Record, ...]:
    """Files as samples, counted in the order of their names: for names that hold no number of a sample."""
    return tuple(
        Record(name.removesuffix(PurePosixPath(name).suffix), i, look.file(name))
        for i, name in enumerate(look.matching(pattern))
    )


def passed_over(look: Look, pattern: str, numbers: bool = False) -> tuple[str, ...]:
    """What lies in a folder and is no sample though it looks like one, a sentence each.

    `numbers`: the format counts its samples by the numbers in their names, so that one that comes twice is told too.
    """
    names = look.matching(pattern)
    notes: list[str] = []
    if numbers:
        seen = Counter((_folder(name), number) for name, number in _numbers(names).items())
        if twice := sum(count - 1 for count in seen.values()):
            notes.append(
                f"{_files(twice)} the number of another one in the same folder; each is a sample of its own."
            )
    if odd := len(look.matching(pattern, re.IGNORECASE)) - len(names):
        notes.append(f"{_files(odd)} a sample's name in other upper and lower case; such files are not read.")
    if deeper := look.unlisted[DEEPER]:
        notes.append(f"Folders more than {DEPTH} levels down are not looked into: {deeper} of them.")
    if linked := look.unlisted[LINKED]:
        notes.append(f"Folders that are links are not looked into: {linked} of them.")
    return tuple(notes)


def _files(count: int) -> str:
    return "1 file bears" if count == 1 else f"{count} files each bear"


def _numbers(names: list[str]) -> dict[str, int]:
    return {name: min(number_in(name), INT32_MAX) for name in names}


def _stem(name: str) -> str:
    return name.rpartition("/")[2].partition(".")[0]


def _folder(name: str) -> str:
    return name.rpartition("/")[0]
