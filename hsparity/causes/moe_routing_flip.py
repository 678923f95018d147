"""HS508."""

from __future__ import annotations

from hsparity.causes.hypothesis import Hypothesis


class MoeRoutingFlip(Hypothesis):
    """
    ## What it is
    Some tokens were given to other experts than on the other side.
    ## Why it happens
    Two experts score nearly the same, and any rounding upstream tips the choice. A wrong bias, group limit or scoring function
    tips many.
    ## How it shows
    The median is at the floor and a tail is not, from the first layer with experts on; those tokens jump at once, by a tenth
    of their norm or more. With `router_logits` and `experts` captured, the report names token, layer and experts, and the margin
    that was lost. Near ties are healthy; wide margins are a fault of the router.
    ## Fix
    None for near ties: compare distributions, not tokens. Otherwise compare bias, groups and scoring of the router.
    """

    code, name = "HS508", "moe-routing-flip"


CAUSE = MoeRoutingFlip()
