"""HS206."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hsparity.causes.reading import from_readings, names, plural, whose

if TYPE_CHECKING:
    from hsparity.evidence import Evidence
    from hsparity.model import Finding


class MidLayer:
    """
    ## What it is
    A slot that was said to be the output of a layer holds the stream between the layer's attention and its MLP:
    the residual without the last MLP output.
    ## Why it happens
    Taking `residual` instead of hidden_states + residual, or a hook on `post_attention_layernorm`'s input.
    ## How it shows
    The slot fits boundary k plus the attention output of layer k, and neither neighbouring boundary. It
    takes a reference that holds its branches: without them HS301 only says that what is left points along
    the update of layer k. The same tensor in a slot said to be boundary k is an aliased capture (HS211).
    ## Fix
    Store hidden_states + residual. To prove it, give the reference its branches:
    `hsparity capture hf --sites attn_out,mlp_out`.
    """

    code, name = "HS206", "mid-layer"

    def find(self, evidence: Evidence) -> Finding | None:
        group = evidence.slots.solution.of("mid-layer")
        if not group:
            return None
        headline = (
            f"{whose(group)} {names(group)} {plural(group, 'was', 'were')} taken between attention and MLP"
        )
        fix = {
            "any": "store hidden_states + residual, after the layer's MLP",
            "vllm": "residual alone lacks the last MLP output: add hidden_states",
        }
        return from_readings(
            evidence,
            self,
            group,
            headline,
            fix,
            ("rival with the same tensor: aliased-capture, if the claim is one boundary too high",),
        )


CAUSE = MidLayer()
