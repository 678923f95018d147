"""HS902."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hsparity.evidence import Evidence
    from hsparity.model import Finding


LEFT = (
    "left to check on the draft: EAGLE-3 mode, fc width = slots x hidden size",
    "its layer ids in this engine's terms: hsparity conventions",
    "d2t and t2d maps, shared embedding and lm_head, norm before fc, rope, trained dtype",
)


class TargetClean:
    """
    ## What it is
    A note: the target's states are the same on both sides, as claimed: tokens, weights, slots, rows, basis,
    storage and numbers, in what was compared: these prompts, passes, layers and devices, and no others.
    ## Why it happens
    Low acceptance also comes from the draft's own side: mode flag, vocabulary map, rope, shared weights. Five
    of 83 public reports read were such cases, and some of those that stayed unsolved may be.
    ## How it shows
    Every requested site is at parity and no test of the solver found anything.
    ## Fix
    Check the draft: EAGLE against EAGLE-3 mode, the width of its fc layer against slots times hidden size, its
    layer ids in this engine's terms (`hsparity conventions`), the d2t and t2d maps, shared embedding and lm_head,
    norms before fc, rope, and the dtype it was trained on.
    """

    code, name = "HS902", "target-clean"

    def find(self, evidence: Evidence) -> Finding | None:
        from hsparity.model import Finding, Verdict

        wanted = [d for d in evidence.deltas if d.requested]
        if not wanted or any(d.verdict is not Verdict.PARITY for d in wanted):
            return None
        aligned = evidence.alignment
        tested = (
            f"{len(wanted)} sites over {evidence.rows.tokens} tokens of {len(evidence.rows.prompts)} prompts"
        )
        where = (
            "each where it is said to be"
            if aligned.offset_testable
            else "their layer could not be tested: capture all boundaries on one side"
        )
        return Finding(
            code=self.code,
            name=self.name,
            headline=f"the target is clean where it was compared: {tested}, {where}",
            slots=tuple(d.ref for d in wanted),
            tokens=evidence.rows.tokens,
            evidence=LEFT,
            severity="note",
        )


CAUSE = TargetClean()
