"""HS901."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hsparity.evidence import Evidence
    from hsparity.model import Finding


class WithinFloor:
    """
    ## What it is
    A note: every requested layer lies within the noise floor. What is left between the sides is what bf16
    arithmetic, or a repeat of one engine, costs anyway.
    ## Why it happens
    Kernels add in different orders. In a mixture of experts a near tie between two experts falls one way or
    the other.
    ## How it shows
    Ratios near 1, tails no heavier than the floor's, no token beyond its largest error.
    ## Fix
    None. If a draft is still accepted less on one engine, look at the draft: its layer ids, vocabulary map,
    rope, norms.
    """

    code, name = "HS901", "within-floor"

    def find(self, evidence: Evidence) -> Finding | None:
        from hsparity.model import Finding, Verdict

        wanted = [d for d in evidence.deltas if d.requested]
        if not wanted or any(d.verdict is not Verdict.PARITY for d in wanted):
            return None
        equal = all(d.bit_equal == d.tokens for d in wanted)
        if equal:
            words = f"equal in every bit at {len(wanted)} sites over {evidence.rows.tokens} tokens"
        else:
            worst = max(wanted, key=lambda d: max((r.median for r in d.ratios), default=0.0))
            words = f"largest ratio to the floor at {worst.ref}: {worst.reason}"
        return Finding(self.code, self.name, words, sites=tuple(d.ref for d in wanted), severity="note")


CAUSE = WithinFloor()
