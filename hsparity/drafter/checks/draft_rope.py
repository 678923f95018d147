"""HS631."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from hsparity.drafter.checks.base import NO_MODEL, NOTE, Unchecked, problem

if TYPE_CHECKING:
    from hsparity.drafter.checks.base import Case, Problem


class DraftRope:
    """
    ## What it is
    The head turns its queries and keys by another rope than its target.
    ## Why it happens
    Many heads are trained with the default base of 10000 beside a target of a million, and are right so: the head has to be
    served with what it was trained with, not with what its target has. It is a fault where the config was mended to the
    target's after training, or lost what was trained.
    ## How it shows
    Target states are clean; acceptance falls with the position where the rope is not the trained one.
    ## Fix
    Ask the trainer's config. Change nothing where the head was trained with the rope that it states.
    """

    code, name = "HS631", "draft-rope"

    def look(self, case: Case) -> Sequence[Problem] | Unchecked:
        if case.target is None:
            return NO_MODEL
        from hsparity.drafter.rotary import rules

        mine, theirs = rules(case.draft.layer), rules(case.target.config)
        if mine[:2] == theirs[:2] and (
            mine[0] == "default" or mine[2].get("factor") == theirs[2].get("factor")
        ):
            return ()
        stated = any(case.draft.layer.get(k) for k in ("rope_theta", "rope_scaling", "rope_parameters"))
        return (
            problem(
                self,
                NOTE,
                "the head's rope is not its target's, which is right if it was trained so",
                sides=(
                    ("draft", _words(mine) + ("" if stated else "  (none stated: the default)")),
                    ("target", _words(theirs)),
                ),
            ),
        )


def _words(rope: tuple[str, float, dict[str, object]]) -> str:
    kind, theta, rest = rope
    factor = f", factor {rest['factor']}" if "factor" in rest else ""
    return f"base {theta:g}" + ("" if kind == "default" else f", {kind}{factor}")


CHECK = DraftRope()
