"""HS511."""

from __future__ import annotations

from hsparity.causes.hypothesis import Hypothesis


class WindowEdge(Hypothesis):
    """
    ## What it is
    The sliding window ends one token, or more, elsewhere.
    ## Why it happens
    One engine counts the current token and the other does not; a window ignored, or taken from another key.
    ## How it shows
    Tokens before the window's length are exact, those behind are off, in every prompt at the same position; only layers
    with a window add to it.
    ## Fix
    Compare how both kernels count the window: W keys before the token, or W with it.
    """

    code, name = "HS511", "window-edge"


CAUSE = WindowEdge()
