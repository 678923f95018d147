"""HS211."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hsparity.causes.reading import from_readings, names, plural, whose

if TYPE_CHECKING:
    from hsparity.evidence import Evidence
    from hsparity.model import Finding


class AliasedCapture:
    """
    ## What it is
    A stored slot was changed after it was stored: the next layer added its attention output to the same buffer.
    ## Why it happens
    The hook kept a reference, not a copy, and a fused add-and-norm kernel writes in place. A published case was
    first blamed on the precision of the norm: its fp32 path cured it only because it is not in place.
    ## How it shows
    It looks like 3 % drift. The slot fits boundary k plus the attention output of layer k. It takes a
    reference that holds its branches (`hsparity capture hf --sites attn_out,mlp_out`): without them HS301
    only says that what is left points along the update of layer k. A slot said to be boundary k + 1 with the
    same tensor was taken mid-layer (HS206).
    ## Fix
    Clone when storing. The test that settles it is a clone and nothing else; a switch of the norm's precision
    proves nothing.
    """

    code, name = "HS211", "aliased-capture"

    def find(self, evidence: Evidence) -> Finding | None:
        group = evidence.slots.solution.of("aliased-capture")
        if not group:
            return None
        who = f"{whose(group)} {names(group)}"
        verb, it = plural(group, "was", "were"), plural(group, "it", "them")
        headline = f"{who} {verb} overwritten in place: the next layer's attention is added to {it}"
        fix = {"any": "clone the state when it is stored: the engine reuses its buffer"}
        return from_readings(
            evidence,
            self,
            group,
            headline,
            fix,
            ("rival with the same tensor: mid-layer, if the claim is one boundary too low",),
        )


CAUSE = AliasedCapture()
