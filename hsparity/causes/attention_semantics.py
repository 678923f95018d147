"""HS505."""

from __future__ import annotations

from hsparity.causes.hypothesis import Hypothesis


class AttentionSemantics(Hypothesis):
    """
    ## What it is
    Attention computes another function: a softmax scale, a soft-cap, sinks, heads laid out otherwise.
    ## Why it happens
    A config value that one engine does not read, a scale applied twice or never, a kernel without soft-cap or sinks.
    ## How it shows
    Position 0 is exact, whatever the scores are. Later positions are off from the first layer on, without growing with
    position; the error points along the update, as attention is sharper or flatter than it should be. A replay finds
    attention off and the MLP at its floor, in every layer.
    ## Fix
    Compare what both engines read of `config.json` (HS404), then the arguments of the kernel: scale, soft-cap, sinks, window.
    """

    code, name = "HS505", "attention-semantics"


CAUSE = AttentionSemantics()
