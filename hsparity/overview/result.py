"""Many results, as plain records."""

from __future__ import annotations

from dataclasses import dataclass, field

from hsparity.model import Verdict, document

SCHEMA = "hsparity.overview/1"


@dataclass(frozen=True, slots=True)
class Entry:
    """One comparison. Files are relative to the folder that was searched."""

    file: str
    report: str  # the page of the same name beside it, else the file itself
    model: str
    weights: str  # start of the reference's hash; "" when it was not hashed
    ref: str  # hf 5.19.0
    cand: str
    verdict: Verdict
    headline: str
    layer: str  # the requested site that stands worst, in words
    excess: float  # its largest error over the floor; over a tolerance, or half an ulp, where there is no floor; may be NaN
    over: str  # "floor" | "tolerance" | "half-ulp" | ""
    rel_l2: float  # its median
    code: str  # of the leading cause
    cause: str  # its name
    compared: str  # 3 prompts, 96 tokens
    facts: dict[str, str]  # settings of both sides, and what was asked: "cand tp" -> "2"
    accepted: str = ""  # what the difference costs a draft head, where that is known
    accepted_file: str = ""
    why: str = ""  # why it diverged, where `excess` alone would not say so


@dataclass(frozen=True, slots=True)
class DraftEntry:
    """One result of hsparity drafter: its own verdict, whether or not it stands beside a comparison too."""

    file: str
    report: str
    draft: str
    ref: str
    cand: str
    verdict: Verdict
    accepted: str
    model: str = ""


@dataclass(frozen=True, slots=True)
class Skipped:
    """A JSON file that holds no result of the two kinds."""

    file: str
    why: str
    kind: str = ""  # of another saved result: "hsparity.diff/1"


@dataclass(frozen=True, slots=True)
class Overview:
    """The answer of `hsparity overview`."""

    schema: str
    hsparity: str
    folder: str
    entries: tuple[Entry, ...]  # worst first
    drafts: tuple[DraftEntry, ...] = ()
    skipped: tuple[Skipped, ...] = field(default=())

    def to_json(self, indent: int | None = None) -> str:
        """Sorted keys; a figure that is not finite is null."""
        return document(self, indent)
