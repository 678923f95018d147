"""HS641."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from hsparity.drafter.checks.algorithm_flag import one_state
from hsparity.drafter.checks.base import CONFIG, ERROR, Change, problem, shaped, spelled

if TYPE_CHECKING:
    from hsparity.drafter.checks.base import Case, Problem

ATTN = "layers.0.self_attn"


class AttentionShape:
    """
    ## What it is
    The head's weights have other shapes than its config gives its layer.
    ## Why it happens
    A config of another head, or one whose head_dim was left out where it is not hidden_size over the number of heads.
    ## How it shows
    An error about shapes while weights are loaded, or heads cut in the wrong places.
    ## Fix
    State num_attention_heads, num_key_value_heads and head_dim as the weights have them.
    """

    code, name = "HS641", "attention-shape"

    def look(self, case: Case) -> Sequence[Problem]:
        draft = case.draft
        wrong = [
            (name, wanted, draft.tensors[name].shape, why)
            for name, wanted, why in self._wanted(case)
            if name in draft.tensors and all(wanted) and tuple(draft.tensors[name].shape) != wanted
        ]
        if not wrong:
            return ()
        name, wanted, held, _ = wrong[0]
        return (
            problem(
                self,
                ERROR,
                f"{name} is {list(held)}, the config makes it {list(wanted)}",
                sides=tuple((shaped(n, h), f"{list(w)}, by {y}") for n, w, h, y in wrong[:4]),
                changes=_head_dim(case, held, name),
            ),
        )

    def _wanted(self, case: Case) -> list[tuple[str, tuple[int, int], str]]:
        draft, layer = case.draft, case.draft.layer
        size = draft.hidden_size

        def number(key: str) -> int:
            value = layer.get(key)
            return value if isinstance(value, int) else 0

        heads = number("num_attention_heads")
        both = size if one_state(case) else 2 * size
        inner = number("intermediate_size")
        made = [
            ("layers.0.mlp.gate_proj.weight", (inner, size), "intermediate_size"),
            ("layers.0.mlp.down_proj.weight", (size, inner), "intermediate_size"),
        ]
        if draft.is_mla:
            rank, turned, plain = (
                number("kv_lora_rank"),
                number("qk_rope_head_dim"),
                number("qk_nope_head_dim"),
            )
            values = number("v_head_dim")
            return [
                *made,
                (f"{ATTN}.q_a_proj.weight", (number("q_lora_rank"), both), "q_lora_rank"),
                (
                    f"{ATTN}.kv_a_proj_with_mqa.weight",
                    (rank + turned, both),
                    "kv_lora_rank + qk_rope_head_dim",
                ),
                (f"{ATTN}.kv_b_proj.weight", (heads * (plain + values), rank), "num_attention_heads"),
                (f"{ATTN}.o_proj.weight", (size, heads * values), "num_attention_heads"),
            ]
        width = number("head_dim") or (size // heads if heads else 0)
        few = (number("num_key_value_heads") or heads) * width
        why = "num_attention_heads × head_dim"
        return [
            *made,
            (f"{ATTN}.q_proj.weight", (heads * width, both), why),
            (f"{ATTN}.k_proj.weight", (few, both), "num_key_value_heads × head_dim"),
            (f"{ATTN}.v_proj.weight", (few, both), "num_key_value_heads × head_dim"),
            (f"{ATTN}.o_proj.weight", (size, heads * width), why),
        ]


def _head_dim(case: Case, held: Sequence[int], name: str) -> tuple[Change, ...]:
    """The head_dim that the weights have, where that is what is wrong."""
    heads = case.draft.layer.get("num_attention_heads")
    if not name.endswith("q_proj.weight") or not isinstance(heads, int) or held[0] % heads:
        return ()
    return (Change(CONFIG, "head_dim", spelled(case.draft.layer.get("head_dim")), str(held[0] // heads)),)


CHECK = AttentionShape()
