"""HS503."""

from __future__ import annotations

from hsparity.causes.hypothesis import Hypothesis


class QuantisedKv(Hypothesis):
    """
    ## What it is
    One side keeps keys and values in 8 bits or fewer.
    ## Why it happens
    `kv_cache_dtype=fp8`, or a default that came with a quantised checkpoint. Scales of 1.0 where none were calibrated.
    ## How it shows
    Every layer is off from the first on, a few times the floor. The error is largest at the first positions, where one
    rounded value stands alone, and falls as values average out over more keys. Engines that prefill on fresh keys show it in
    decoded rows and later chunks alone.
    ## Fix
    Start the engine with `kv_cache_dtype=auto`, or calibrate the scales; `hsparity bisect --knobs kv-dtype` measures which part
    of the excess it is.
    """

    code, name = "HS503", "quantised-kv"


CAUSE = QuantisedKv()
