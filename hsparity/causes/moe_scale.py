"""HS509."""

from __future__ import annotations

from hsparity.causes.hypothesis import Hypothesis


class MoeScale(Hypothesis):
    """
    ## What it is
    The experts' output has another scale: `routed_scaling_factor`, a normalisation of the weights, one expert's scale.
    ## Why it happens
    A factor applied twice or never, shared experts added inside or outside of it, a block scale of one expert misread.
    ## How it shows
    Dense layers are at the floor; the first layer with experts is off on all tokens, position 0 as well. The update is more or
    less of the same rather than another one. One expert's scale shows on the tokens that chose it. A replay gives the gain.
    ## Fix
    Compare `routed_scaling_factor`, `norm_topk_prob` and the shared experts of both engines.
    """

    code, name = "HS509", "moe-scale"


CAUSE = MoeScale()
