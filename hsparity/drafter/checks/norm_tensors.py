"""HS621."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from hsparity.drafter.checks.base import CONFIG, ERROR, Change, Unchecked, problem, spelled
from hsparity.drafter.classes import head_class

if TYPE_CHECKING:
    from hsparity.drafter.checks.base import Case, Problem


class NormTensors:
    """
    ## What it is
    A norm in front of fc is switched on and its weights are not there, or the other way round.
    ## Why it happens
    norm_before_fc (one norm over all slots, input_norm) and fc_norm (one for each slot) are flags of the config, and each engine
    knows its own: use_aux_norm switches fc_norm on in SGLang and means nothing to vLLM.
    ## How it shows
    Slots come into fc at another size than in training; with vLLM also an error for a tensor without a place.
    ## Fix
    Set the flag as the tensors say; the report gives the line.
    """

    code, name = "HS621", "norm-tensors"

    def look(self, case: Case) -> Sequence[Problem] | Unchecked:
        draft = case.draft
        made = head_class(case.contract.engine, draft)
        keys = made.norm_flags if made else ("fc_norm", "use_aux_norm")
        slotwise = sorted(n for n in draft.tensors if n.startswith("fc_norm.") and n.endswith(".weight"))
        found: list[Problem] = []
        for flag, held, on in (
            (
                "norm_before_fc",
                [n for n in ("input_norm.weight",) if n in draft.tensors],
                bool(draft.says("norm_before_fc")),
            ),
            ("fc_norm", slotwise, any(_top(case, k) for k in keys)),
        ):
            if bool(held) == on:
                continue
            words = (
                f"{flag} is on and its weights are not there"
                if on
                else f"{held[0]} is there and {flag} is off"
            )
            key = "eagle_config.norm_before_fc" if flag in draft.nested else flag
            found.append(
                problem(
                    self,
                    ERROR,
                    words,
                    sides=(
                        ("draft config", f"{flag} {spelled(draft.says(flag))}"),
                        ("draft weights", ", ".join(held) or "none"),
                    ),
                    changes=(Change(CONFIG, key, spelled(draft.says(flag)), spelled(not on)),),
                )
            )
        if slotwise and len(slotwise) != draft.slots and not found:
            found.append(
                problem(
                    self,
                    ERROR,
                    f"{len(slotwise)} norms for {draft.slots} slots",
                    sides=(("fc", f"{draft.slots} slots"), ("draft weights", ", ".join(slotwise))),
                )
            )
        return found


def _top(case: Case, key: str) -> bool:
    """A flag where engines look for it: on the top level, which is the layer's config for a Llama layout."""
    return bool(case.draft.config.get(key) or case.draft.layer.get(key))


CHECK = NormTensors()
