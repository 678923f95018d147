"""HS642."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from hsparity.drafter.checks.base import CONFIG, ERROR, Change, problem

if TYPE_CHECKING:
    from hsparity.drafter.checks.base import Case, Problem


class LayerCount:
    """
    ## What it is
    num_hidden_layers of the head's config is not the number of layers in its weights.
    ## Why it happens
    The config was copied from the target, with its number of layers.
    ## How it shows
    The engine makes layers for which it finds no weights; SGLang's MLA class takes one layer only and stops.
    ## Fix
    State the number of layers that the weights have.
    """

    code, name = "HS642", "layer-count"

    def look(self, case: Case) -> Sequence[Problem]:
        said = case.draft.layer.get("num_hidden_layers")
        held = {
            int(n.split(".")[1])
            for n in case.draft.tensors
            if n.startswith("layers.") and n.split(".")[1].isdigit()
        }
        real = len(held)
        if not isinstance(said, int) or said == real:
            return ()
        where = "transformer_layer_config." if case.draft.layout == "speculators" else ""
        return (
            problem(
                self,
                ERROR,
                f"the config makes {said} layers, the weights have {real}",
                sides=(
                    ("draft config", f"num_hidden_layers {said}"),
                    ("draft weights", f"layers {sorted(held)}"),
                ),
                changes=(Change(CONFIG, f"{where}num_hidden_layers", str(said), str(real)),),
            ),
        )


CHECK = LayerCount()
