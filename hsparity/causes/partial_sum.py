"""HS212."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hsparity.causes.reading import from_readings, names, plural, whose

if TYPE_CHECKING:
    from hsparity.evidence import Evidence
    from hsparity.model import Finding


class PartialSum:
    """
    ## What it is
    A slot holds one rank's share of a branch: it was taken before the all-reduce, or the reduce never ran.
    ## Why it happens
    Under tensor parallelism the all-reduce is fused into the next layer's norm, so the layer's own output is
    not complete; the last layer has no next norm. Expert parallelism may leave the sum of the experts out.
    ## How it shows
    The attention part is whole and the MLP part is a fraction of what it should be, or exactly 1/n. Slots of
    several ranks differ, and their sum restores the state. With one process it does not appear.
    ## Fix
    Take the state after the reduce (SGLang: residual_stream.snapshot completes it; TensorRT-LLM: no fused
    reduce on captured layers), and compare ranks: a replicated tensor must be equal on all.
    """

    code, name = "HS212", "partial-sum"

    def find(self, evidence: Evidence) -> Finding | None:
        group = evidence.slots.solution.of("partial-sum")
        if not group:
            return None
        who = f"{whose(group)} {names(group)}"
        verb = plural(group, "holds", "hold")
        headline = f"{who} {verb} a part of a branch: taken before the ranks were summed"
        fix = {
            "any": "capture after the all-reduce",
            "vllm": "hook the decoder layer, or what follows the all-reduce in RowParallelLinear",
            "sglang": "complete the stream with residual_stream.snapshot before storing it",
        }
        return from_readings(evidence, self, group, headline, fix)


CAUSE = PartialSum()
