"""HS602."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from hsparity.drafter.checks.algorithm_flag import one_state
from hsparity.drafter.checks.base import CONFIG, ERROR, WARNING, Change, Unchecked, problem, shaped, spelled
from hsparity.drafter.classes import head_class, slots_built

if TYPE_CHECKING:
    from hsparity.drafter.checks.base import Case, Problem


class FcWidth:
    """
    ## What it is
    The input of fc is not as wide as the states that this engine hands over together.
    ## Why it happens
    fc takes the slots side by side, so its width is their number times the target's hidden size. The class makes fc for a
    number that it takes from num_aux_hidden_states or from a list of ids, each class from other keys, and for 3 without one:
    vLLM's Llama class does not look at a list on the top level.
    ## How it shows
    An error about shapes while weights are loaded; with a width that happens to fit, states cut in the wrong places.
    ## Fix
    State num_aux_hidden_states, write as many ids as fc has slots, and serve the head on the target it was trained for.
    """

    code, name = "HS602", "fc-width"

    def look(self, case: Case) -> Sequence[Problem] | Unchecked:
        out, width = case.draft.fc_shape
        size = case.draft.target_hidden_size
        held = shaped("fc.weight", (out, width))
        found: list[Problem] = []
        if case.target is not None and (real := case.target.number("hidden_size")) and real != size:
            return (
                problem(
                    self,
                    ERROR,
                    f"the head takes states {size} wide, the target's are {real}",
                    sides=(
                        ("draft", f"{held}, target_hidden_size {size}"),
                        ("target", f"hidden_size {real}"),
                    ),
                    advice="this head was made for another target, or target_hidden_size is not stated",
                ),
            )
        if one_state(case):
            return ()
        if not size or width % size:
            return (
                problem(
                    self,
                    ERROR,
                    f"fc takes {width}, which is no multiple of the hidden size {size}",
                    sides=(("draft", held), ("slots", f"{width} / {size}")),
                ),
            )
        slots = width // size
        made = head_class(case.contract.engine, case.draft)
        if made is not None:
            built, why = slots_built(made, case.draft)
            if built != slots:
                found.append(
                    problem(
                        self,
                        ERROR if case.contract.exact else WARNING,
                        f"fc has {slots} slots, {case.engine} makes it for {built}",
                        sides=(("draft", held), (case.engine, f"{built} × {size}, by {why}")),
                        changes=(Change(CONFIG, "num_aux_hidden_states", "", str(slots)),),
                    )
                )
        return found or self._fed(case, slots, held)

    def _fed(self, case: Case, slots: int, held: str) -> Sequence[Problem]:
        """How many states come, on every runner that may be at work."""
        counts = [3 if r.ids is None else len(set(r.ids)) for r in case.contract.readings]
        wrong = [r for r, n in zip(case.contract.readings, counts, strict=True) if n != slots]
        if not wrong or case.contract.engine == "hf":
            return ()
        reading = wrong[0]
        if reading.ids is None:
            words = f"{case.engine} feeds its default of 3"
            said, advice = (
                f"boundaries {reading.spelled}",
                "write the ids under the key that this engine reads",
            )
        else:
            words = f"the config names {len(set(reading.ids))} layers"
            said, advice = f"{reading.key} {spelled(reading.ids)}", f"write {slots} ids"
        return (
            problem(
                self,
                ERROR if len(wrong) == len(counts) else WARNING,
                f"fc has {slots} slots, {words}",
                sides=(("draft", held), (f"{case.engine} {reading.runner.upper()}".strip(), said)),
                advice=advice,
                settle="" if len(wrong) == len(counts) else "--runner v1 or --runner v2",
            ),
        )


CHECK = FcWidth()
