"""What drift costs a draft head: the record, to and from JSON. Needs numpy and no torch."""

from __future__ import annotations

from dataclasses import dataclass, replace

from hsparity.model import Cost, Verdict, document, record

SCHEMA = "hsparity.draft-cost/1"


@dataclass(frozen=True, slots=True)
class Estimate:
    """A figure with its 95 % bootstrap interval over prompts; None where one prompt leaves nothing to draw from."""

    value: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, slots=True)
class Acceptance:
    """What one feeding of the head gets. Lists run over draft positions 1..k."""

    key: str  # "ref", "cand", "undone:HS101", "undone:all", "noise", "only:0", "shift:+1"
    words: str
    steps: int  # target steps counted: of the walk over generated text, else every row as a start
    accepted: Estimate  # draft tokens accepted a step, without the target's own; accept length less one
    by_position: tuple[float, ...]  # share of steps in which the position is accepted, as engines count it
    conditional: tuple[float, ...]  # given that the position before it is; NaN where that never happens
    agreement: tuple[float, ...]  # teacher-forced: draft and target agree on a row, whatever came before
    sampled: tuple[
        float, ...
    ] = ()  # 1 - total variation of the two distributions; empty without the target's
    sampled_accepted: float | None = None  # draft tokens accepted a step when both sample at temperature 1
    change: Estimate | None = None  # of accepted, against the reference's feeding, paired by prompt
    stands_in: tuple[str, ...] = ()  # slots for which the reference's own state stands in
    note: str = ""
    nonfinite: int = 0  # rows fed, or drafted from, that are not finite: nothing of theirs counts as accepted


@dataclass(frozen=True, slots=True)
class Bin:
    """Accepted draft tokens a step among rows of these positions or of this prompt."""

    label: str
    steps: int
    ref: float
    cand: float


@dataclass(frozen=True, slots=True)
class Beside:
    """What an engine measured beside what was predicted of the same steps; `why_not` where they cannot be laid side by side.

    Lists run over draft positions 1..k; differences are predicted less measured.
    """

    path: str
    engine: str
    version: str
    boundaries: tuple[int, ...]  # that the engine fed
    stand_ins: tuple[str, ...]  # our Python in place of kernels that the engine lacks: not its own behaviour
    feed: str = ""  # the key of the prediction
    prompts: int = 0
    predicted_steps: int = 0
    measured_steps: int = 0
    predicted: tuple[Estimate, ...] = ()
    measured: tuple[Estimate, ...] = ()
    difference: tuple[Estimate, ...] = ()
    predicted_accepted: Estimate | None = None
    measured_accepted: Estimate | None = None
    accepted_difference: Estimate | None = None
    why_not: str = ""

    def because(self, why: str) -> Beside:
        """The same without figures."""
        return replace(self, why_not=why)


@dataclass(frozen=True, slots=True)
class FedSide:
    """What one side feeds the head, slot by slot."""

    path: str
    engine: str
    version: str
    slots: tuple[str, ...]  # site keys
    places: tuple[str, ...]  # "boundary 2" | "not told apart"
    why: str  # how the slots were chosen
    target: str  # whose last state says what the target takes
    model: str = ""  # as its manifest has it; "" in results that do not say
    weights_sha256: str = ""
    prompts: int = 0  # of the capture; 0 in results that do not say, as `tokens`
    tokens: int = 0


@dataclass(frozen=True, slots=True)
class DraftCost:
    """The answer of `hsparity drafter`."""

    schema: str
    hsparity: str
    verdict: Verdict
    headline: str
    draft: str
    layout: str
    runner: str  # what ran the head
    model: str
    steps: int  # draft positions
    tokens: str  # which rows are starts
    ref: FedSide
    cand: FedSide
    prompts: int
    dropped: tuple[str, ...]  # prompts left out, and why
    states: str  # what the comparison of the fed slots says, one line
    state_verdict: Verdict
    feeds: tuple[Acceptance, ...]
    positions: tuple[Bin, ...]
    by_prompt: tuple[Bin, ...]
    notes: tuple[str, ...]
    next: tuple[str, ...]
    command: tuple[str, ...] = ()
    beside: tuple[Beside, ...] = ()
    fix: tuple[str, ...] = ()  # what to change for what costs most: per engine, in its own terms
    redacted: bool = False  # prompts and paths were taken out

    def feed(self, key: str) -> Acceptance:
        """The feeding of that key. Raises KeyError."""
        return {f.key: f for f in self.feeds}[key]

    def _repr_html_(self) -> str:
        """The HTML page, as a notebook shows it."""
        from hsparity.report.notebook import cost_cell

        return cost_cell(self)

    def to_json(self, indent: int | None = None) -> str:
        """Sorted keys; a figure that is not finite is null."""
        return document(self, indent)

    @staticmethod
    def from_json(text: str) -> DraftCost:
        """The record that `to_json` wrote. Raises ValueError for another schema, TypeError for a damaged one."""
        return record(DraftCost, SCHEMA, text)


def summary(found: DraftCost) -> Cost:
    """What a comparison's headline says of it."""
    ref, cand = found.feed("ref"), found.feed("cand")
    change = cand.change
    assert change is not None  # only the reference's own feeding has none
    return Cost(
        draft=found.draft,
        verdict=found.verdict,
        headline=found.headline,
        ref=ref.accepted.value,
        cand=cand.accepted.value,
        low=None if change.high is None else -change.high,
        high=None if change.low is None else -change.low,
        undone={
            f.key.partition(":")[2]: f.accepted.value for f in found.feeds if f.key.startswith("undone:HS")
        },
    )
