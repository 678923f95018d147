"""HS632."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from hsparity.drafter.checks.base import CONFIG, ERROR, WARNING, Change, problem
from hsparity.drafter.contract import within

if TYPE_CHECKING:
    from hsparity.drafter.checks.base import Case, Problem

DEFAULT = 10000.0
# The first releases that were seen to run on Transformers 5.
FIVE = {"vllm": "0.31", "sglang": "0.5.23"}


class RopeForm:
    """
    ## What it is
    The head's config states its rope where this engine does not read it, or twice and differently.
    ## Why it happens
    Transformers 5 keeps rope_theta inside rope_parameters, 4 on the level of the layer's config; a file written by one loses it
    in the other, and the base falls back to 10000. With both, 5 takes rope_parameters and 4 rope_theta. In a speculators
    config only transformer_layer_config is read.
    ## How it shows
    Acceptance falls with the position; the log says nothing.
    ## Fix
    State the base in both forms with one value; the report gives the line.
    """

    code, name = "HS632", "rope-form"

    def look(self, case: Case) -> Sequence[Problem]:
        draft, engine = case.draft, case.contract.engine
        layer = draft.layer
        inner = layer.get("rope_parameters")
        nested = inner.get("rope_theta") if isinstance(inner, dict) else None
        plain = layer.get("rope_theta")
        if draft.layout == "speculators" and plain is None and nested is None:
            outer = draft.config.get("rope_theta")
            if outer is not None and float(outer) != DEFAULT:
                return (
                    problem(
                        self,
                        ERROR,
                        "rope_theta is outside transformer_layer_config and is not read",
                        sides=(
                            ("draft", f"rope_theta {outer:g} on the top level"),
                            (case.engine, "base 10000, the default"),
                        ),
                        changes=(Change(CONFIG, "transformer_layer_config.rope_theta", "", f"{outer:g}"),),
                    ),
                )
        where = "transformer_layer_config." if draft.layout == "speculators" else ""
        if plain is not None and nested is not None and float(plain) != float(nested):
            return (
                problem(
                    self,
                    WARNING,
                    "two bases are stated, and which is taken hangs on the release of Transformers",
                    sides=(
                        ("draft", f"rope_theta {plain:g}, rope_parameters.rope_theta {nested:g}"),
                        (case.engine, f"{nested:g} on Transformers 5, {plain:g} on 4"),
                    ),
                    changes=(Change(CONFIG, f"{where}rope_theta", f"{plain:g}", f"{nested:g}"),),
                    rival=f"the head was trained with {plain:g}",
                ),
            )
        old = engine in FIVE and not within(case.contract.version, FIVE[engine], "")
        if plain is None and nested is not None and float(nested) != DEFAULT and old:
            return (
                problem(
                    self,
                    WARNING,
                    "the base is stated in rope_parameters alone, which Transformers 4 does not read",
                    sides=(
                        ("draft", f"rope_parameters.rope_theta {nested:g}"),
                        (case.engine, "base 10000 where it runs on Transformers 4"),
                    ),
                    changes=(Change(CONFIG, f"{where}rope_theta", "", f"{nested:g}"),),
                    rival="this release runs on Transformers 5",
                ),
            )
        return ()


CHECK = RopeForm()
