"""HS606."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from hsparity.drafter.checks.base import CONFIG, ERROR, WARNING, Change, Unchecked, problem, spelled

if TYPE_CHECKING:
    from hsparity.drafter.checks.base import Case, Problem


class IdsOrder:
    """
    ## What it is
    The ids of the config are not ascending, or one is there twice.
    ## Why it happens
    Engines capture layers as the model runs through them: slots come out ascending, whatever the list's order, and an id that
    is there twice gives one slot. Trainers that collect by hooks keep the order of the list, and fc is then trained on it.
    ## How it shows
    Each slot is right on its own and fc reads it with another slot's columns: acceptance near that of noise.
    ## Fix
    Write the ids ascending. If the head was trained on another order, permute fc's columns in blocks of the hidden size to the
    ascending one.
    """

    code, name = "HS606", "ids-order"

    def look(self, case: Case) -> Sequence[Problem] | Unchecked:
        if case.contract.engine == "hf":
            return Unchecked("the reference code reads no list")
        reading = case.contract.reading
        ids = reading.ids or case.draft.ids
        if not ids:
            return ()
        twice = sorted({i for i in ids if ids.count(i) > 1})
        if not twice and tuple(sorted(ids)) == tuple(ids):
            return ()
        head = (
            f"id {twice[0]} is there twice and gives one slot"
            if twice
            else "the ids are not ascending, the slots will be"
        )
        return (
            problem(
                self,
                ERROR if twice and reading.ids else WARNING,
                head,
                sides=(
                    ("draft", f"{reading.key or 'ids'} {spelled(ids)}"),
                    (case.engine, f"boundaries {reading.spelled}, {case.contract.rule.order}"),
                ),
                changes=()
                if twice
                else (Change(CONFIG, reading.key, spelled(ids), spelled(sorted(ids))),)
                if reading.key
                else (),
                rival=""
                if twice
                else "the trainer sorted them as well; the order of the list then means nothing",
            ),
        )


CHECK = IdsOrder()
