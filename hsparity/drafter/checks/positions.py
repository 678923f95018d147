"""HS633."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from hsparity.drafter.checks.base import NO_MODEL, NOTE, Unchecked, problem
from hsparity.drafter.contract import within

if TYPE_CHECKING:
    from hsparity.drafter.checks.base import Case, Problem


class Positions:
    """
    ## What it is
    The head's config allows fewer positions than its target's.
    ## Why it happens
    Heads are trained on 2048 or 4096 tokens and say so. vLLM 0.31 and later raise the number to the target's; SGLang gives the
    head the target's context length and stops where that is more than the head's own.
    ## How it shows
    SGLang stops at start-up and names context_length. Beyond the trained positions acceptance falls in any engine.
    ## Fix
    Start SGLang with SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN=1 or a --context-length of the head's.
    """

    code, name = "HS633", "positions"

    def look(self, case: Case) -> Sequence[Problem] | Unchecked:
        if case.target is None:
            return NO_MODEL
        mine = case.draft.layer.get("max_position_embeddings")
        theirs = case.target.number("max_position_embeddings")
        engine = case.contract.engine
        if not isinstance(mine, int) or not theirs or mine >= theirs:
            return ()
        if engine == "hf" or (engine == "vllm" and within(case.contract.version, "0.31", "")):
            return ()
        does = "stops, unless it is told otherwise" if engine == "sglang" else "not known for this release"
        return (
            problem(
                self,
                NOTE,
                f"the head allows {mine} positions, its target {theirs}",
                sides=(
                    ("draft", f"max_position_embeddings {mine}"),
                    ("target", str(theirs)),
                    (case.engine, does),
                ),
                advice=f"SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN=1, or --context-length {mine}"
                if engine == "sglang"
                else "",
            ),
        )


CHECK = Positions()
