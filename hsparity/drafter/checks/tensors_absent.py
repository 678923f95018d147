"""HS624."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from hsparity.drafter.checks.algorithm_flag import one_state
from hsparity.drafter.checks.base import ERROR, problem

if TYPE_CHECKING:
    from hsparity.drafter.checks.base import Case, Problem

PARTS = (
    *("input_layernorm", "hidden_norm", "post_attention_layernorm"),
    *("mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"),
)
HEADS = tuple(f"self_attn.{p}_proj" for p in "qkvo")
MLA = tuple(f"self_attn.{p}" for p in ("kv_a_proj_with_mqa", "kv_a_layernorm", "kv_b_proj", "o_proj"))


class TensorsAbsent:
    """
    ## What it is
    A tensor without which the head cannot run is not in its weights.
    ## Why it happens
    A partial export, a shard that was not copied, weights saved under names that nothing knows.
    ## How it shows
    Engines leave what they find nothing for as it was made: drafts that are accepted no better than chance, without an error.
    ## Fix
    Export the head again with all its tensors.
    """

    code, name = "HS624", "tensors-absent"

    def look(self, case: Case) -> Sequence[Problem]:
        draft = case.draft
        kinds = MLA if draft.is_mla else HEADS
        wanted = ["fc", "norm", *(f"layers.0.{part}" for part in (*PARTS, *kinds))]
        if one_state(case):  # EAGLE-1 and 2 have neither
            wanted = [
                w for w in wanted if w not in ("norm", "layers.0.hidden_norm", "layers.0.input_layernorm")
            ]
        lacking = [f"{w}.weight" for w in wanted if not any(n.startswith(f"{w}.") for n in draft.tensors)]
        if not lacking:
            return ()
        return (
            problem(
                self,
                ERROR,
                f"{len(lacking)} tensor{'s' * (len(lacking) > 1)} of the head {'are' if len(lacking) > 1 else 'is'} absent",
                sides=(
                    ("draft", "has no " + ", ".join(lacking)),
                    (case.engine, "leaves them as they were made"),
                ),
            ),
        )


CHECK = TensorsAbsent()
