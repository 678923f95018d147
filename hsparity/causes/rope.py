"""HS507."""

from __future__ import annotations

from hsparity.causes.hypothesis import Hypothesis


class Rope(Hypothesis):
    """
    ## What it is
    Positions are rotated otherwise on one side: theta, scaling (yarn, linear, llama3), or how dimensions are paired.
    ## Why it happens
    `rope_theta` or `rope_scaling` that one engine does not read or reads under another key; interleaved against halved pairs;
    yarn's mscale applied twice or never; positions that start elsewhere.
    ## How it shows
    Position 0 is exact: it is not rotated, and sees itself alone. The error grows with position, from the first layer on, in
    all layers alike. A wrong magnitude (mscale) does not grow: it looks like a softmax scale.
    ## Fix
    Load the same rope settings on both sides; print what each engine made of them.
    """

    code, name = "HS507", "rope"


CAUSE = Rope()
