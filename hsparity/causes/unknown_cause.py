"""HS599."""

from __future__ import annotations

from hsparity.causes.hypothesis import Hypothesis


class UnknownCause(Hypothesis):
    """
    ## What it is
    Something is beyond the floor, and none of the causes known here fits what was measured.
    ## Why it happens
    A cause without a name here, several at once, or captures that show too little of it.
    ## How it shows
    The report gives the fingerprint: where it starts, which tokens carry it, what position and layer kind do to it, and what was
    ruled out by what.
    ## Fix
    Replay the layers on their captured inputs (`hsparity replay`), then turn one setting at a time (`hsparity bisect`).
    """

    code, name = "HS599", "unknown"


CAUSE = UnknownCause()
