"""HS113."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hsparity.causes.row_fault import from_rows

if TYPE_CHECKING:
    from hsparity.evidence import Evidence
    from hsparity.model import Finding


class RequestOrder:
    """
    ## What it is
    The prompts' states came back in another order than the prompts: each is whole, and at another's place.
    ## Why it happens
    Request ids sorted as text (0, 1, 10, 11, 2 …), which is right up to ten requests; or results taken in the
    order in which they finished.
    ## How it shows
    The owner of every prompt's rows is one other prompt, and each prompt appears once.
    ## Fix
    Match results to prompts by request id; sort the ids as numbers.
    """

    code, name = "HS113", "request-order"

    def find(self, evidence: Evidence) -> Finding | None:
        fix = {"any": "match results to prompts by request id, sorted as numbers"}
        return from_rows(evidence, self, fix)


CAUSE = RequestOrder()
