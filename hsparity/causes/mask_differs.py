"""HS517."""

from __future__ import annotations

from hsparity.causes.hypothesis import Hypothesis


class MaskDiffers(Hypothesis):
    """
    ## What it is
    Attention skips tokens on one side only.
    ## Why it happens
    A mask made from `pad_token_id` hides real tokens of that id (an end-of-turn token in the middle of a chat); left padding
    that one side attends to.
    ## How it shows
    Rows before the first such token of a prompt are exact, and all from it on are off; prompts without one agree.
    ## Fix
    Give the mask instead of letting it be guessed: ones for every token that was fed.
    """

    code, name = "HS517", "mask-differs"


CAUSE = MaskDiffers()
