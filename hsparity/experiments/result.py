"""What a bisection found, as plain records."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from hsparity.model import Trial, document, record

SCHEMA = "hsparity.bisect/1"
# The stable names of causes and their codes.
CODES = {
    "quantised-weights": "HS501",
    "quantised-activations": "HS502",
    "quantised-kv": "HS503",
    "attention-backend": "HS504",
    "attention-semantics": "HS505",
    "graph-or-compile": "HS506",
    "chunk-boundary": "HS510",
    "dtype-rounding": "HS513",
    "batch-variance": "HS514",
    "prefill-decode": "HS515",
    "mask-differs": "HS517",
    "weights-differ": "HS402",
    "aliased-capture": "HS211",
    "unknown": "HS599",
}


class Outcome(str, Enum):
    """Of a bisection."""

    NOTHING = "nothing to explain"  # the sides are bit-equal
    NOISE = "within noise"  # the difference is what bf16 arithmetic costs
    SETTLED = "settled"  # what makes the difference is known
    INCONCLUSIVE = "inconclusive"


class State(str, Enum):
    """Of one experiment."""

    MEASURED = "measured"
    NO_EFFECT = "no effect (bit-equal)"
    NOT_APPLIED = "NOT APPLIED"
    IMPOSSIBLE = "not possible here"
    FAILED = "failed"
    PLANNED = "planned"


@dataclass(frozen=True, slots=True)
class SideFacts:
    role: str
    path: str
    engine: str
    version: str
    dtype: str
    model: str
    weights_sha256: str = ""
    prompts: int = 0  # of the capture; 0 in results that do not say, as `tokens`
    tokens: int = 0


@dataclass(frozen=True, slots=True)
class Span:
    """A figure with its 95 % interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Experiment:
    """One set of knobs turned, and what became of the difference."""

    turned: tuple[str, ...]  # "cand kv-dtype: fp8 -> auto"
    knobs: tuple[str, ...]
    role: str  # "ref", "cand", or both
    purpose: str  # "alike" | "toggle" | "split" | "rule"
    state: State
    capture: str = ""  # folder
    share: Span | None = None  # of the excess that is gone, by the median token
    tail: Span | None = None  # the same by the 95th percentile
    moved: float | None = None  # how far the turned side went, in units of the floor; without one relative
    left: float | None = None  # the pair's median relative distance now, at the last boundary measured
    proof: str = ""  # what shows that it was applied, or that it was not
    note: str = ""
    seconds: float | None = None
    bytes: int = 0
    cached: bool = False


@dataclass(frozen=True, slots=True)
class Blame:
    """One cause, ranked by its share."""

    name: str
    code: str
    knobs: tuple[str, ...]
    headline: str
    share: Span | None
    tail: Span | None
    confidence: str  # "settled" | "likely" | "possible" | "inconclusive"
    evidence: tuple[str, ...] = ()
    against: tuple[str, ...] = ()
    rival: str = ""
    next: str = ""  # command line


@dataclass(frozen=True, slots=True)
class Blocked:
    """A knob that cannot be turned here."""

    role: str
    knob: str
    value: str
    why: str


@dataclass(frozen=True, slots=True)
class Bisect:
    """The whole result."""

    schema: str
    hsparity: str
    outcome: Outcome
    exit_code: int
    headline: str
    ref: SideFacts
    cand: SideFacts
    floor: str  # what the shares are measured against
    ratio: float | None  # the pair's largest median over its floor
    tokens: int
    differing: int  # tokens that are not bit-equal somewhere
    distance: float  # the pair's median relative distance at the last boundary measured
    boundaries: tuple[int, ...]  # where it was measured
    unexplained: Span | None  # of the excess, with every differing knob set alike
    causes: tuple[Blame, ...]
    experiments: tuple[Experiment, ...]
    blocked: tuple[Blocked, ...]
    notes: tuple[str, ...] = ()
    next: tuple[str, ...] = ()
    command: tuple[str, ...] = ()

    def trials(self) -> tuple[Trial, ...]:
        """Every experiment that was not merely planned, in the order in which they ran."""
        return tuple(
            Trial(e.turned, e.state.value, e.share.value, e.share.low, e.share.high)
            if e.share is not None
            else Trial(e.turned, e.state.value, None)
            for e in self.experiments
            if e.state is not State.PLANNED
        )

    def to_json(self, indent: int | None = None) -> str:
        """The whole result; non-finite numbers are null."""
        return document(self, indent)


def from_json(text: str) -> Bisect:
    """Read a bisection. Raises ValueError when it is not one, or is of another major version."""
    return record(Bisect, SCHEMA, text)
