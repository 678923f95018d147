"""What readers of one file per sample share: the files of a folder as records, and recognising a format by a few of them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from pathlib import PurePosixPath
from typing import Any, TypeVar

from hsparity.capture.readers.base import Record
from hsparity.capture.readers.look import TRIED, Look, natural, number_in

Found = TypeVar("Found")


def first(
    look: Look, pattern: str, opened: Callable[[str], Any], says: Callable[[Any], Found | None]
) -> Found | None:
    """What `says` answers of the first file that it knows; a few are tried, so one odd file hides no dataset.

    `opened` is `look.pickled` or `look.tensors`.
    """
    for name in look.matching(pattern)[:TRIED]:
        content = opened(re.escape(name))
        if content is not None and (found := says(content)):
            return found
    return None


def numbered(look: Look, pattern: str) -> tuple[Record, ...]:
    """Files as samples, by the last number in their names.

    Numbers that start again in every folder (one folder for each job) are counted on, folder after folder, and the
    folder joins the id.
    """
    names = look.matching(pattern)
    numbers = {name: number_in(name) for name in names}
    stems = Counter(_stem(name) for name in names)
    again = max(stems.values(), default=0) > 1
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
        stem = _stem(name)
        ident = f"{_folder(name)}/{stem}" if again and _folder(name) else stem
        if ident in taken:  # data_3.ckpt beside data_3.ckpt.gz
            ident = name
        taken.add(ident)
        found.append(Record(ident, start.get(_folder(name), 0) + numbers[name], look.file(name)))
    return tuple(sorted(found, key=lambda record: (record.index, natural(record.id))))


def in_order(look: Look, pattern: str) -> tuple[Record, ...]:
    """Files as samples, counted in the order of their names: for names that hold no number of a sample."""
    return tuple(
        Record(name.removesuffix(PurePosixPath(name).suffix), i, look.file(name))
        for i, name in enumerate(look.matching(pattern))
    )


def _stem(name: str) -> str:
    return PurePosixPath(name).name.partition(".")[0]


def _folder(name: str) -> str:
    return name.rpartition("/")[0]
