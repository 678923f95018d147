"""HS516."""

from __future__ import annotations

from hsparity.causes.hypothesis import Hypothesis


class LayerWeights(Hypothesis):
    """
    ## What it is
    One layer's weights are not those of the other side, or one part of several layers, such as every router, is not run as
    the checkpoint says.
    ## Why it happens
    A shard that did not load or loaded elsewhere, a layer left out of a weight update, a layer excluded from quantisation on
    one side.
    ## How it shows
    All boundaries before the layer are at the floor, those behind are not; the layer adds more than any later one, at every
    token. A replay finds the layers concerned beyond and all others at the floor.
    ## Fix
    Compare the digests of the tensors concerned on both sides; load again what differs. Of a router whose files are equal, compare
    what the engine made of them: `e_score_correction_bias`, the scoring function, group limits, top-k normalisation.
    """

    code, name = "HS516", "layer-weights"


CAUSE = LayerWeights()
