"""HS501."""

from __future__ import annotations

from hsparity.causes.hypothesis import Hypothesis


class QuantisedWeights(Hypothesis):
    """
    ## What it is
    One side computes with weights that were rounded to few bits, and the error is what that rounding costs.
    ## Why it happens
    A quantised checkpoint (AWQ, GPTQ, compressed-tensors, FP8 blocks) beside the original, or scales that were read or
    rounded otherwise. The arithmetic may be perfect: the weights are other numbers.
    ## How it shows
    Every token and every layer is off, the first one included: position 0 stands where later positions do, because a linear
    layer does not know positions. Each layer adds the same. 4-bit weights in groups stand at 20 to 30 times the floor, 8-bit
    ones at 1.7 to 10. The same weights dequantised to bf16, run without the scheme, show the same error.
    ## Fix
    Compare with the dequantised twin of the checkpoint (`hsparity bisect --knobs weights` makes it): what is left then is the
    kernel's. A draft is best trained on the states of the quantised target that will serve it.
    """

    code, name = "HS501", "quantised-weights"


CAUSE = QuantisedWeights()
