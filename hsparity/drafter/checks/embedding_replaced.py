"""HS615."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from hsparity.drafter.checks.base import ERROR, WARNING, Unchecked, problem

if TYPE_CHECKING:
    from hsparity.drafter.checks.base import Case, Problem

ROUNDED = 2.0**-7  # of bfloat16, twice over: the same values stored in another dtype


class EmbeddingReplaced:
    """
    ## What it is
    The engine gives the head another embedding than the one it was trained with, or none that fits.
    ## Why it happens
    SGLang puts the target's embedding in place of the head's own whenever the two have one width. vLLM keeps the head's own and
    takes the target's only where the head has none. A head narrower than its target can share neither.
    ## How it shows
    Acceptance lower than the trainer's own evaluation on SGLang alone; with no embedding at all, that of chance.
    ## Fix
    Train with the target's embedding frozen, or serve on the engine that keeps the head's own.
    """

    code, name = "HS615", "embedding-replaced"

    def look(self, case: Case) -> Sequence[Problem] | Unchecked:
        draft, engine = case.draft, case.contract.engine
        width = case.target.number("hidden_size") if case.target else draft.target_hidden_size
        own = draft.tensors.get("embed_tokens.weight")
        if own is None:
            if engine == "hf" or not width or width == draft.hidden_size:
                return ()
            return (
                problem(
                    self,
                    ERROR,
                    "the head has no embedding, and the target's is of another width",
                    sides=(("draft", f"hidden_size {draft.hidden_size}"), ("target", f"hidden_size {width}")),
                    advice="export embed_tokens with the head",
                ),
            )
        if engine != "sglang" or draft.target_hidden_size != draft.hidden_size:
            return ()
        return self._replaced(case, own.shape[0])

    def _replaced(self, case: Case, rows: int) -> Sequence[Problem] | Unchecked:
        from hsparity.drafter.stored import EMBEDDINGS, distance, sample, spread, target_sample

        learned = bool(case.draft.says("embed_requires_grad", False))
        sides = (
            ("draft", f"embed_tokens.weight of its own{', trained' if learned else ''}"),
            (case.engine, "takes the target's in its place"),
        )
        mine = theirs = None
        if case.target is not None:
            chosen = spread(min(rows, case.target.number("vocab_size") or rows))
            theirs = target_sample(case.target, EMBEDDINGS, chosen)
            mine = None if theirs is None else sample(case.draft, "embed_tokens.weight", chosen)
        if mine is None or theirs is None or mine.shape != theirs.shape:
            if learned:
                return (problem(self, WARNING, "the head's own trained embedding is not used", sides=sides),)
            return Unchecked("the target's embedding is not here to be compared with the head's")
        gap = distance(mine, theirs)
        if gap <= ROUNDED:
            return ()
        return (
            problem(
                self,
                ERROR if learned else WARNING,
                f"the head's own embedding is not used, and differs from the target's by {gap:.2g}",
                sides=sides,
                rival="" if learned else "the copy in the head was never trained with",
            ),
        )


CHECK = EmbeddingReplaced()
