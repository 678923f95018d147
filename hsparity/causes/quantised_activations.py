"""HS502."""

from __future__ import annotations

from hsparity.causes.hypothesis import Hypothesis


class QuantisedActivations(Hypothesis):
    """
    ## What it is
    One side rounds the inputs of its linear layers to 8 bits while it computes (W8A8, FP8).
    ## Why it happens
    The scheme of the checkpoint says so, or an engine was started with online quantisation.
    ## How it shows
    As quantised weights do: every token, every layer, position 0 as well, each layer the same. INT8 per token stands near 3
    times the floor, FP8 near 7 to 10. Captures alone do not part it from the weights of the same scheme: against the
    dequantised twin it stays, and the error of the weights goes.
    ## Fix
    Run the dequantised twin, or a weight-only scheme. Static scales that were calibrated on other text show as single
    channels that carry the error.
    """

    code, name = "HS502", "quantised-activations"


CAUSE = QuantisedActivations()
