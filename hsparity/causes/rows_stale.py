"""HS117."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hsparity.causes.row_fault import from_rows

if TYPE_CHECKING:
    from hsparity.evidence import Evidence
    from hsparity.model import Finding


class RowsStale:
    """
    ## What it is
    Rows repeat the state of another row: padding, an old buffer, or rows beyond the real batch.
    ## Why it happens
    A view into a reused buffer in place of a copy; a CUDA graph's buffer padded to its bucket; rows past the
    last real token.
    ## How it shows
    Several rows have one owner, which is itself in place. Repeated rows are often equal in every bit.
    ## Fix
    Copy when storing, and cut the buffer at the real number of tokens.
    """

    code, name = "HS117", "rows-stale"

    def find(self, evidence: Evidence) -> Finding | None:
        fix = {"any": "copy rows when storing, and cut padded buffers at the real number of tokens"}
        return from_rows(evidence, self, fix)


CAUSE = RowsStale()
