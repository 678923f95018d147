"""What changed between two comparisons, as plain records."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from hsparity.errors import ExitCode
from hsparity.model import Verdict, document

SCHEMA = "hsparity.diff/1"


class Change(str, Enum):
    """Of a site, a cost, a verdict and of the whole."""

    WORSE = "worse"
    BETTER = "better"
    SAME = "same"
    UNKNOWN = "not comparable"


@dataclass(frozen=True, slots=True)
class Span:
    """A figure with the 95 % interval it is known to; NaN where none was measured."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Standing:
    """How one site stood in one of the two comparisons."""

    tokens: int
    verdict: Verdict
    rel_l2: float  # median over tokens
    ratio: Span | None  # of `SiteChange.of`, over the floor


@dataclass(frozen=True, slots=True)
class SiteChange:
    """One site, then and now; None where it was not compared."""

    ref: str  # site key
    cand: str  # site key
    requested: bool  # in one of the two at least
    of: str  # whose ratio is shown: "cand", "pair", "ref"; "" without ratios
    then: Standing | None
    now: Standing | None
    change: Change
    reason: str  # one line: why this word


@dataclass(frozen=True, slots=True)
class Held:
    """A finding as one of the two comparisons has it."""

    severity: str
    headline: str
    explained: float | None
    tokens: int
    slots: tuple[str, ...]
    structural: bool


@dataclass(frozen=True, slots=True)
class FindingChange:
    code: str
    name: str
    status: str  # "new" | "gone" | "stayed"
    then: Held | None
    now: Held | None
    change: Change
    reason: str


@dataclass(frozen=True, slots=True)
class SettingChange:
    """One thing that a side ran with, and that is another now."""

    role: str  # "ref" | "cand"
    kind: str  # "engine" | "model" | "setting" | "environment"
    name: str
    then: str
    now: str


@dataclass(frozen=True, slots=True)
class Loss:
    """Draft tokens accepted a step, and the bounds of what the difference costs."""

    ref: float
    cand: float
    low: float | None
    high: float | None


@dataclass(frozen=True, slots=True)
class CostChange:
    draft: str
    then: Loss | None
    now: Loss | None
    change: Change
    reason: str


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One of the two comparisons, in words."""

    file: str
    hsparity: str
    verdict: Verdict
    headline: str
    sides: str  # hf 5.19.0 against vllm 0.32.0, bf16
    compared: str  # layers, prompts and tokens
    floor: str


@dataclass(frozen=True, slots=True)
class Step:
    """A command to type, and what it settles."""

    command: str
    why: str


@dataclass(frozen=True, slots=True)
class Diff:
    """The answer of `hsparity diff`."""

    schema: str
    hsparity: str
    change: Change
    headline: str  # one sentence
    model: str
    then: Snapshot
    now: Snapshot
    verdict: Change
    verdict_reason: str
    warnings: tuple[str, ...]  # what is not held against one another, and why
    start: str  # where it starts, one sentence; empty when nothing got worse
    sites: tuple[SiteChange, ...]  # in site order
    findings: tuple[FindingChange, ...]  # new, gone, stayed
    settings: tuple[SettingChange, ...]  # engine first, environment last
    explained: str  # what the changed settings are worth as an explanation
    cost: CostChange | None
    next: tuple[Step, ...]
    command: tuple[str, ...] = ()

    @property
    def exit_code(self) -> ExitCode:
        """1 where something got worse, 3 where that cannot be told, else 0."""
        return {Change.WORSE: ExitCode.DIVERGED, Change.UNKNOWN: ExitCode.INCONCLUSIVE}.get(
            self.change, ExitCode.PARITY
        )

    def to_json(self, indent: int | None = None) -> str:
        """Sorted keys; a figure that is not finite is null."""
        return document(self, indent)
