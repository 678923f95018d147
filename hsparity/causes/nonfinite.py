"""HS303."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hsparity.causes.base import counted

if TYPE_CHECKING:
    from hsparity.evidence import Evidence
    from hsparity.model import Finding


class Nonfinite:
    """
    ## What it is
    States hold NaN or Inf. Such tokens are counted and left out of every metric; on one side only they are a
    divergence.
    ## Why it happens
    Overflow in float16, an uninitialised or freed buffer, a padded row, an attention row with nothing to
    attend to.
    ## How it shows
    The count per side stands beside each layer. The first layer that has any is where to look.
    ## Fix
    Capture in bfloat16; if it stays, the first layer's kernel is at fault.
    """

    code, name = "HS303", "nonfinite"

    def find(self, evidence: Evidence) -> Finding | None:
        from hsparity.model import Finding

        bad = [d for d in evidence.deltas if any(d.nonfinite)]
        if not bad:
            return None
        first = bad[0]
        ref, cand = (max(d.nonfinite[i] for d in bad) for i in (0, 1))
        who = "both sides" if ref and cand else "the reference" if ref else "the candidate"
        return Finding(
            code=self.code,
            name=self.name,
            headline=f"{who} {'hold' if ref and cand else 'holds'} NaN or Inf, first at {first.ref}",
            slots=tuple(d.ref for d in bad),
            # Values beyond float16's range are the storage's fault, which has a name of its own.
            severity="note" if evidence.slots.solution.precision.fp16 else "cause",
            structural=not (ref and cand) and not evidence.slots.solution.precision.fp16,
            fix={
                "any": "capture in bfloat16; if it stays, look at the kernel of the first layer that has any"
            },
            evidence=tuple(
                f"{d.ref}: {counted(d.nonfinite[0], 'element')} in ref, {d.nonfinite[1]} in cand"
                for d in bad[:4]
            ),
        )


CAUSE = Nonfinite()
