"""What an engine measured beside what was predicted: the same steps of the same text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from hsparity.align.tokens import PromptRows, common_prefix
from hsparity.capture.source import Source
from hsparity.drafter.acceptance import (
    Agreement,
    by_position,
    difference,
    differences,
    estimate,
    walked,
)
from hsparity.drafter.measurement import MeasuredPrompt, Measurement, counted, disagreements
from hsparity.drafter.result import Beside
from hsparity.errors import HsparityError


@dataclass(frozen=True, slots=True)
class Choice:
    """A feeding that a measurement may be held against: its key, the engine that feeds so, and the boundaries."""

    key: str
    engine: str
    numbers: tuple[int, ...]


def read(path: str) -> Measurement:
    """A record of `drafter measure`. Raises E202 where there is none, E293 where it is no such record."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        help_text = "hsparity drafter measure DRAFT --engine E --model M -o FILE writes one"
        raise HsparityError("E202", f"cannot read the record {path}", (str(error),), help_text) from None
    return Measurement.from_json(text)


def beside(
    path: str,
    record: Measurement,
    choices: Sequence[Choice],
    agreed: dict[str, Sequence[Agreement]],
    rows: Sequence[PromptRows],
    ref: Source,
    steps: int,
    draft_sha256: str,
) -> Beside:
    """Lay a measurement beside the feeding of the same boundaries, on the text that both have: acceptance of two texts is no
    comparison. Figures are those of steps all of whose drafts lie in it."""
    choice = _choice(record, choices)
    blank = Beside(path, record.engine, record.version, record.aux_layers, record.stand_ins)
    if broken := disagreements(record):
        return blank.because(f"its steps contradict the engine's own counters or its text: {broken[0]}")
    if record.draft_sha256 != draft_sha256:
        return blank.because(f"it ran another head: {record.draft}, whose weights are not this head's")
    if choice is None:
        fed = (
            "; ".join(f"{c.key}: {', '.join(map(str, c.numbers))}" for c in choices)
            or "nothing that is told apart"
        )
        return blank.because(f"it ran on boundaries {_listed(record.aux_layers)}, and predicted was {fed}")
    if (
        record.k != steps
    ):  # a longer chain steps over other rows: its first positions are not those of a shorter one
        return blank.because(
            f"it ran with {record.k} draft positions, and {steps} were predicted: --steps {record.k}"
        )
    known = {p.prompt: p for p in record.prompts}
    predicted, measured = [], []
    for p, agreement in zip(rows, agreed[choice.key], strict=True):
        ids = ref.token_ids(p.prompts[0])
        other = known.get(tuple(int(i) for i in ids[: agreement.prefill]))
        if other is None:
            continue
        shared = common_prefix(ids, np.array(other.text, np.int32))
        predicted.append(_cut(agreement, shared - steps - 1))
        measured.append(_steps(other, shared, steps))
    if not measured or not sum(len(m) for m in measured):
        return blank.because(
            "it shares no step of generated text with the captures: the same --prompts for both"
        )
    theirs = counted(measured, steps)
    ours = walked(predicted)
    return Beside(
        path=path,
        engine=record.engine,
        version=record.version,
        boundaries=record.aux_layers,
        stand_ins=record.stand_ins,
        feed=choice.key,
        prompts=len(measured),
        predicted_steps=int(ours.steps_p.sum()),
        measured_steps=int(theirs.steps_p.sum()),
        predicted=by_position(ours),
        measured=by_position(theirs),
        difference=differences(theirs, ours),
        predicted_accepted=estimate(ours),
        measured_accepted=estimate(theirs),
        accepted_difference=difference(theirs, ours),
    )


def _choice(record: Measurement, choices: Sequence[Choice]) -> Choice | None:
    """Of the feedings of the same boundaries, the one of the same engine."""
    same = [c for c in choices if c.numbers and c.numbers == record.aux_layers]
    return next((c for c in same if c.engine == record.engine), same[0] if same else None)


def _cut(a: Agreement, starts: int) -> Agreement:
    kept = max(starts, 0)
    return Agreement(a.prompt, a.prefill, a.match_ks[:, :kept], a.overlap_ks[:, :kept])


def _steps(prompt: MeasuredPrompt, shared: int, steps: int) -> list[int]:
    """Drafts accepted in each step whose first `steps` drafts lie in the shared text."""
    return [min(s.accepted, steps) for s in prompt.steps if s.first + steps <= shared]


def _listed(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers))
