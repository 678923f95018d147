"""HS614."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from hsparity.drafter.checks.base import NO_MODEL, WARNING, Unchecked, problem

if TYPE_CHECKING:
    from hsparity.drafter.checks.base import Case, Problem


class TargetVocab:
    """
    ## What it is
    The vocabulary that the head was made for is not the target's.
    ## Why it happens
    A head of a sibling model, a tokenizer that was extended, an embedding that was padded on one side.
    ## How it shows
    Wrong tokens beyond the smaller vocabulary; logits of another width than the target's.
    ## Fix
    Serve the head on the target that it was trained for, or train it again.
    """

    code, name = "HS614", "target-vocab"

    def look(self, case: Case) -> Sequence[Problem] | Unchecked:
        if case.target is None:
            return NO_MODEL
        mine, theirs = case.draft.vocab_size, case.target.number("vocab_size")
        if not mine or not theirs or mine == theirs:
            return ()
        return (
            problem(
                self,
                WARNING,
                f"the head is made for {mine} tokens, the target has {theirs}",
                sides=(("draft", f"vocab_size {mine}"), ("target", f"vocab_size {theirs}")),
                rival="the smaller one is the larger without padding rows",
            ),
        )


CHECK = TargetVocab()
