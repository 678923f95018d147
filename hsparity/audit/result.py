"""What an audit found, as plain records."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, fields, is_dataclass
from enum import Enum
from typing import Any

from hsparity.model import Comparison, Cost, Verdict

SCHEMA = "hsparity.audit/1"


@dataclass(frozen=True, slots=True)
class Trouble:
    """One kind of thing that is wrong with samples, and how many have it. `code` is the error's, where it is one."""

    kind: str  # "unreadable", "not-finite", "duplicate", …
    count: int
    text: str  # one line
    samples: tuple[str, ...] = ()  # the first few


@dataclass(frozen=True, slots=True)
class Integrity:
    """What every sample shows without an engine. `complete` is False where the scan was left out."""

    complete: bool
    samples: int
    read: int  # how many were scanned
    tokens: int
    bytes: int
    slots: int
    hidden_size: int
    dtype: str
    lengths: tuple[int, int, int]  # shortest, median, longest, in tokens
    troubles: tuple[Trouble, ...] = ()
    change: str = ""  # "data_312": from here on the states look otherwise, by their norms
    change_text: str = ""


@dataclass(frozen=True, slots=True)
class Reading:
    """What one slot holds, by the data: over the sampled samples of one group."""

    slot: str  # the format's own name
    role: str  # "aux" | "last"
    said: str  # what the files or --slots say: "id 2", "boundary 3", ""
    holds: str  # "boundary 3", "boundary 8, normed", "" where nothing fits
    boundary: int | None  # L + 1 for the normed last one
    error: float  # median over samples of the median over tokens
    rival: str
    rival_error: float
    server: str  # what the server feeds at this place; "" where it feeds none
    right: bool | None  # None: nothing says what it should be
    refuted: bool = False  # the files or the user say that it is another place than it holds


@dataclass(frozen=True, slots=True)
class Group:
    """Sampled samples whose slots read alike, and the comparison made on them."""

    samples: tuple[str, ...]  # in the dataset's order
    readings: tuple[Reading, ...]
    comparison: Comparison | None
    since: str = ""  # where in the dataset they begin, when the dataset changes there


@dataclass(frozen=True, slots=True)
class Server:
    """What the dataset was measured against."""

    path: str
    engine: str
    version: str
    model: str
    architecture: str
    num_layers: int
    ids: tuple[int, ...]  # as given to it; empty: its default
    feeds: tuple[
        int, ...
    ]  # boundaries of its slots, by the data, in their order; empty where nothing says it
    own: bool = False  # `ids` are the dataset's own: none were given
    named: bool = False  # `feeds` are the boundaries that the user named
    slots: tuple[int, ...] = ()  # what its own slots are, by the data


@dataclass(frozen=True, slots=True)
class Repair:
    """Whether the file can be put right, and what was done."""

    possible: bool
    text: str  # one sentence
    steps: tuple[str, ...] = ()
    out: str = ""  # where it was written
    written: int = 0
    left_out: int = 0
    verdict: Verdict | None = None  # of the repaired samples, compared again


@dataclass(frozen=True, slots=True, eq=False)
class Audit:
    """The verdict is on the sampled samples; `integrity` is about all of them."""

    schema: str
    hsparity: str
    dataset: str
    format: str
    title: str
    producer: str
    verdict: Verdict
    headline: str
    server: Server | None  # None: integrity only
    sampled: int
    seed: int
    tokens: int  # sampled tokens that were compared
    max_tokens: int
    integrity: Integrity
    groups: tuple[Group, ...]  # the largest first
    fix: tuple[str, ...]
    repair: Repair | None
    numbering: str  # one sentence on ids, where both sides have some
    notes: tuple[str, ...]
    next: tuple[str, ...]
    command: tuple[str, ...] = ()
    cost: Cost | None = None  # to a draft head that was named

    def to_json(self, indent: int | None = None) -> str:
        """Sorted keys; a figure that is not finite is null. Comparisons are whole `hsparity.comparison/1` results."""
        return json.dumps(_plain(self), indent=indent, sort_keys=True, ensure_ascii=False, allow_nan=False)


def _plain(value: Any) -> Any:
    if isinstance(value, Comparison):
        from hsparity.model import to_json

        return json.loads(to_json(value))
    if is_dataclass(value) and not isinstance(value, type):
        return {f.name: _plain(getattr(value, f.name)) for f in fields(value)}
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, (list, tuple)):
        return [_plain(each) for each in value]
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items()}
    return None if isinstance(value, float) and not math.isfinite(value) else value
