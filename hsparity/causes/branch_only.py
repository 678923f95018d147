"""HS205."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hsparity.causes.reading import from_readings, names, plural, whose

if TYPE_CHECKING:
    from hsparity.evidence import Evidence
    from hsparity.model import Finding


class BranchOnly:
    """
    ## What it is
    A slot holds the output of an attention block alone, before it is added to the stream.
    ## Why it happens
    A hook on `self_attn` in place of the decoder layer, or on a fused layer whose first output is the branch.
    ## How it shows
    The slot fits the captured attention output of one layer at the floor, and no boundary. It takes a reference
    that holds `attn_out`.
    ## Fix
    Hook the decoder layer and store the completed stream.
    """

    code, name = "HS205", "branch-only"

    def find(self, evidence: Evidence) -> Finding | None:
        group = evidence.slots.solution.of("branch-only")
        if not group:
            return None
        who = f"{whose(group)} {names(group)}"
        verb = plural(group, "holds", "hold")
        headline = f"{who} {verb} an attention output alone, not the stream"
        fix = {"any": "hook the decoder layer, not its attention block, and store hidden_states + residual"}
        return from_readings(evidence, self, group, headline, fix)


CAUSE = BranchOnly()
