"""HS114."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hsparity.causes.row_fault import from_rows

if TYPE_CHECKING:
    from hsparity.evidence import Evidence
    from hsparity.model import Finding


class RowsPermuted:
    """
    ## What it is
    Rows of a prompt changed places among themselves.
    ## Why it happens
    Blocks of a paged buffer read in the wrong order, pairs exchanged by a layout change, a batch reordered and
    not put back.
    ## How it shows
    The owners of a prompt's rows are that prompt's own positions, each once, with no stride between them.
    ## Fix
    Put rows back by position. Compare a prompt shorter than one block: it is right when blocks are exchanged.
    """

    code, name = "HS114", "rows-permuted"

    def find(self, evidence: Evidence) -> Finding | None:
        fix = {"any": "lay rows by position; look at how blocks are gathered"}
        return from_rows(evidence, self, fix)


CAUSE = RowsPermuted()
