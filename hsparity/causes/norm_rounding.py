"""HS512."""

from __future__ import annotations

from hsparity.causes.hypothesis import Hypothesis


class NormRounding(Hypothesis):
    """
    ## What it is
    A norm computes otherwise: another epsilon, rounding before the weight instead of after, or fewer bits inside.
    ## Why it happens
    A default epsilon where the config has one, a fused kernel that keeps bf16, weights stored with or without the 1.
    ## How it shows
    Every token is off from the first layer on, those of small norm most. A replay finds attention and MLP off alike on the
    side's own weights.
    ## Fix
    Compare epsilon and the dtype inside of the norm on both sides.
    """

    code, name = "HS512", "norm-rounding"


CAUSE = NormRounding()
