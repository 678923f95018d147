"""HS115."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hsparity.causes.row_fault import from_rows

if TYPE_CHECKING:
    from hsparity.evidence import Evidence
    from hsparity.model import Finding


class RowsShifted:
    """
    ## What it is
    Every row holds its neighbour's state: the state of the token before, or after.
    ## Why it happens
    A state paired with the token it predicts in place of the token it was computed from; a padded or skipped row
    counted by one side only.
    ## How it shows
    All owners lie at one distance. The token ids are equal, so it is no tokenizer.
    ## Fix
    Pair row i with the token at position i. In training data, shift ids or states once, not both.
    """

    code, name = "HS115", "rows-shifted"

    def find(self, evidence: Evidence) -> Finding | None:
        fix = {"any": "pair the row with the token it was computed from: position i, not i - 1 or i + 1"}
        return from_rows(evidence, self, fix)


CAUSE = RowsShifted()
