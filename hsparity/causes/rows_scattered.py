"""HS116."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hsparity.causes.row_fault import from_rows

if TYPE_CHECKING:
    from hsparity.evidence import Evidence
    from hsparity.model import Finding


class RowsScattered:
    """
    ## What it is
    Rows lie as the ranks of a parallel run hold them: dealt in turn, or one rank's slice only.
    ## Why it happens
    Sequence or context parallelism scatters the tokens over ranks; the states were stored before the gather, or
    gathered without putting the rows back.
    ## How it shows
    The owners follow a stride (0, 2, 4 … then 1, 3, 5 …), or a prompt's rows are one slice of it.
    ## Fix
    Gather over the ranks and put the rows back in order before storing; compare with one rank.
    """

    code, name = "HS116", "rows-scattered"

    def find(self, evidence: Evidence) -> Finding | None:
        fix = {"any": "gather over ranks before storing, and undo the round-robin order"}
        return from_rows(evidence, self, fix)


CAUSE = RowsScattered()
