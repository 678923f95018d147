"""HS112."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hsparity.causes.row_fault import from_rows

if TYPE_CHECKING:
    from hsparity.evidence import Evidence
    from hsparity.model import Finding


class RowsWrongRequest:
    """
    ## What it is
    Rows of one prompt hold the states of another prompt of the batch.
    ## Why it happens
    States of a batch were cut apart by running offsets that ignore the scheduler's order, or a second call was
    given what the first had left. speculators 0.4 did this with batches and repeated calls.
    ## How it shows
    Every row has its owner elsewhere in the batch: the nearest state over all prompts at one boundary. Often the
    first request is right. Not every prompt appears once, which sets it apart from another order (HS113).
    ## Fix
    Cut by request, not by offset; capture one prompt at a time (`--batch 1`) and compare again.
    """

    code, name = "HS112", "rows-wrong-request"

    def find(self, evidence: Evidence) -> Finding | None:
        fix = {"any": "capture with --batch 1, or cut the batch by request id and position"}
        return from_rows(evidence, self, fix)


CAUSE = RowsWrongRequest()
