"""HS513."""

from __future__ import annotations

from hsparity.causes.hypothesis import Hypothesis


class DtypeRounding(Hypothesis):
    """
    ## What it is
    The sides computed in different dtypes, and differ by what the coarser one rounds.
    ## Why it happens
    `--dtype half` on a device without bf16, or a reference in float32.
    ## How it shows
    No layer differs by more than roundings of the coarser dtype add up to; nothing depends on position.
    ## Fix
    Run both sides in one dtype, or give a floor: `hsparity capture hf --dtype float32` and one in bf16.
    """

    code, name = "HS513", "dtype-rounding"


CAUSE = DtypeRounding()
