"""HS208."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hsparity.causes.reading import from_readings, names, whose

if TYPE_CHECKING:
    from hsparity.evidence import Evidence
    from hsparity.model import Finding


class RowsGain:
    """
    ## What it is
    A set of rows is a constant times what it should be; the other rows are right.
    ## Why it happens
    Image or audio rows enter at 1/sqrt(H) of their size, or text rows are scaled twice, because the embedding
    multiplier moved between modules.
    ## How it shows
    Cosine is 1 on every row; the norm ratio has two values. It begins at boundary 0. The constant is often
    sqrt(H) or its inverse.
    ## Fix
    Apply the embedding multiplier once, to the rows that need it.
    """

    code, name = "HS208", "rows-gain"

    def find(self, evidence: Evidence) -> Finding | None:
        group = evidence.slots.solution.of("rows-gain")
        if not group:
            return None
        headline = f"rows of {whose(group)} {names(group)} are scaled by a constant of their own"
        fix = {"any": "apply the embedding multiplier once, and to every kind of row the same way"}
        return from_readings(evidence, self, group, headline, fix)


CAUSE = RowsGain()
