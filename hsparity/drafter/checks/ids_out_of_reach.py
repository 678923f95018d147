"""HS605."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from hsparity.conventions.rule import OUT
from hsparity.drafter.checks.base import ERROR, NO_MODEL, WARNING, Unchecked, problem, spelled
from hsparity.drafter.contract import fed

if TYPE_CHECKING:
    from hsparity.drafter.checks.base import Case, Problem


class IdsOutOfReach:
    """
    ## What it is
    An id of the config gives no state on this engine, or the engine captures none for this model.
    ## Why it happens
    Boundary L, the last one before the final norm, is not captured by every model class: SGLang's Llama and Qwen leave it
    out or stop at start-up, vLLM's DeepSeek did until 0.24. Ids beyond the model's layers give nothing. Some classes have no
    auxiliary states at all, or layers whose output is no single tensor.
    ## How it shows
    One slot fewer than fc is made for, an IndexError at start-up, or an error at the first step.
    ## Fix
    Train on boundaries that the engine captures, serve on one that captures these, or use another release.
    """

    code, name = "HS605", "ids-out-of-reach"

    def look(self, case: Case) -> Sequence[Problem] | Unchecked:
        rule, layers = case.contract.rule, case.contract.num_layers
        if case.contract.engine == "hf":
            return Unchecked("the reference code reads no list")
        if layers is None:
            return NO_MODEL
        if rule.numbering.read((2,), layers) is None:
            return (
                problem(
                    self,
                    ERROR if case.contract.exact else WARNING,
                    f"{case.engine} cannot hand over this target's states: {rule.rule}",
                    sides=(("target", rule.models), (case.engine, rule.source)),
                ),
            )
        found: list[Problem] = []
        for reading in case.contract.readings:
            if reading.ids is None or reading.boundaries is None or found:
                continue
            each = {i: fed(rule, (i,), layers) for i in reading.ids}
            beyond = [b for b in reading.boundaries if not 0 <= b <= layers]
            lost = len(set(reading.ids)) - len(reading.boundaries)
            lost += layers in reading.boundaries and rule.last.startswith(OUT)
            zero = rule.numbering.write((0,), layers).remark if 0 in reading.boundaries else ""
            if not (lost > 0 or beyond or zero):
                continue
            words = zero or (
                f"boundary {beyond[0]} is beyond the last, {layers}" if beyond else f"{rule.last}"
            )
            found.append(
                problem(
                    self,
                    ERROR if case.contract.exact and len(case.contract.readings) == 1 else WARNING,
                    f"of ids {', '.join(map(str, reading.ids))} not all give a state: {words}",
                    sides=(
                        ("draft", f"{reading.key} {spelled(reading.ids)}"),
                        (case.engine, f"boundaries {reading.spelled} of 0..{layers}"),
                    ),
                    advice=", ".join(
                        f"id {i} gives nothing" for i, b in each.items() if not b or (lost and b == (layers,))
                    ),
                )
            )
        return found


CHECK = IdsOutOfReach()
