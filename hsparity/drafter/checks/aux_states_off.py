"""HS645."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from hsparity.drafter.checks.algorithm_flag import one_state
from hsparity.drafter.checks.base import CONFIG, ERROR, NOTE, Change, problem, shaped

if TYPE_CHECKING:
    from hsparity.drafter.checks.base import Case, Problem


class AuxStatesOff:
    """
    ## What it is
    use_aux_hidden_state is false, and fc is made for several states.
    ## Why it happens
    The flag inside eagle_config tells both engines to hand over the last state alone. It is for heads without fc, and stays
    false where a config was started from one of those.
    ## How it shows
    SGLang skips fc, as the width of one state is the head's own; vLLM drops fc while it loads. Acceptance near zero, no error.
    ## Fix
    Set eagle_config.use_aux_hidden_state to true, or leave it out.
    """

    code, name = "HS645", "aux-states-off"

    def look(self, case: Case) -> Sequence[Problem]:
        draft = case.draft
        said = draft.nested.get("use_aux_hidden_state")
        if draft.slots < 2 or one_state(case):
            return ()
        if said is False and case.contract.engine != "hf" and draft.layout != "speculators":
            return (
                problem(
                    self,
                    ERROR,
                    f"use_aux_hidden_state is false, and fc takes {draft.slots} states",
                    sides=(
                        ("draft", f"use_aux_hidden_state false, {shaped('fc.weight', draft.fc_shape)}"),
                        (case.engine, "feeds the last state alone and leaves fc out"),
                    ),
                    changes=(Change(CONFIG, "eagle_config.use_aux_hidden_state", "false", "true"),),
                ),
            )
        if said is not False and draft.config.get("use_aux_hidden_state") is False:
            return (
                problem(
                    self,
                    NOTE,
                    "use_aux_hidden_state false on the top level is not read",
                    sides=(
                        ("draft", "use_aux_hidden_state false"),
                        (case.engine, "reads it inside eagle_config"),
                    ),
                    changes=(Change(CONFIG, "use_aux_hidden_state", "false", ""),),
                ),
            )
        return ()


CHECK = AuxStatesOff()
