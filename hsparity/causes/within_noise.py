"""HS901."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from hsparity.causes.base import counted

if TYPE_CHECKING:
    from hsparity.evidence import Evidence
    from hsparity.model import Finding, SiteDelta

_WHO = {"ref": "the reference", "cand": "the candidate", "pair": "the pair"}


class WithinNoise:
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

    code, name = "HS901", "within-noise"

    def find(self, evidence: Evidence) -> Finding | None:
        from hsparity.model import Finding, Verdict

        wanted = [d for d in evidence.deltas if d.requested]
        if not wanted or any(d.verdict is not Verdict.PARITY for d in wanted):
            return None
        equal = all(d.bit_equal == d.tokens for d in wanted)
        if equal:
            words = f"equal in every bit at {counted(len(wanted), 'site')} "
            words += f"over {counted(evidence.rows.tokens, 'token')}"
        else:
            words = _largest(wanted)
        return Finding(self.code, self.name, words, slots=tuple(d.ref for d in wanted), severity="note")


def _largest(wanted: list[SiteDelta]) -> str:
    """The largest ratio of medians of any side, over all channels and tokens."""
    found = [(r, d) for d in wanted for r in d.ratios if r.of in _WHO and math.isfinite(r.median)]
    if not found:
        return f"{wanted[0].ref}: {wanted[0].reason}"
    ratio, delta = max(found, key=lambda pair: pair[0].median)
    words = f"largest ratio to the floor: {_WHO[ratio.of]} at {delta.ref}, {ratio.median:.2f}×"
    if math.isfinite(ratio.low) and ratio.low != ratio.high:
        words += f" (95 % {ratio.low:.2f} to {ratio.high:.2f})"
    return f"{words}; the limit is {ratio.limit:g}"


CAUSE = WithinNoise()
