"""HS204."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hsparity.causes.reading import from_readings, names, plural, whose

if TYPE_CHECKING:
    from hsparity.evidence import Evidence
    from hsparity.model import Finding


class ResidualMissing:
    """
    ## What it is
    A slot holds only what a layer added (its MLP output, or its whole update), not the stream that the addition
    makes.
    ## Why it happens
    Engines keep the stream in two tensors, `hidden_states` and `residual`, and add them in the next norm. A
    capture of the first alone misses the rest. SGLang's Gemma3 had this after the residual was split out of the
    layer's return value; accept length fell from 1.89 to 1.06.
    ## How it shows
    The norm is a fraction of the stream's, cosine to the stream is low, and the slot fits the branch or the
    update of the layer below. Boundary 0 is unharmed.
    ## Fix
    Store hidden_states + residual (SGLang: residual_stream.snapshot, or the model's own completed output).
    """

    code, name = "HS204", "residual-missing"

    def find(self, evidence: Evidence) -> Finding | None:
        group = evidence.slots.solution.of("residual-missing")
        if not group:
            return None
        who = f"{whose(group)} {names(group)}"
        verb = plural(group, "holds", "hold")
        headline = f"the residual is missing: {who} {verb} only what a layer added"
        fix = {
            "any": "store hidden_states + residual",
            "vllm": "a layer returns (hidden_states, residual): add them",
            "sglang": "add forward_batch.residual_stream to the layer's output",
        }
        return from_readings(evidence, self, group, headline, fix)


CAUSE = ResidualMissing()
