"""HS608."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from hsparity.drafter.checks.base import NOTE, WARNING, Unchecked, problem, spelled

if TYPE_CHECKING:
    from hsparity.drafter.checks.base import Case, Problem


class IdsContradict:
    """
    ## What it is
    The config names layers under two keys, and not the same.
    ## Why it happens
    A config was converted, or mended for one engine, and the other key stayed.
    ## How it shows
    Two engines, or two runners of vLLM, feed one head different layers.
    ## Fix
    Keep one list, or make both mean the same layers; each in the numbering of the engine that reads it.
    """

    code, name = "HS608", "ids-contradict"

    def look(self, case: Case) -> Sequence[Problem] | Unchecked:
        held = case.draft.ids_by_key
        if len(held) < 2 or len({tuple(ids) for ids in held.values()}) == 1:
            return ()
        read = case.contract.reading.key
        return (
            problem(
                self,
                NOTE if case.trained is not None and case.trained.given else WARNING,
                "two keys name different layers" + (f"; {case.engine} reads {read}" if read else ""),
                sides=tuple((f"draft {key}", spelled(ids)) for key, ids in held.items()),
                rival="each list is in the numbering of the engine that reads it",
                settle="--trained-on LIST",
            ),
        )


CHECK = IdsContradict()
