"""HS612."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from hsparity.drafter.checks.base import ERROR, WARNING, Change, Unchecked, problem, shaped

if TYPE_CHECKING:
    from hsparity.drafter.checks.base import Case, Problem


class VocabMapRefused:
    """
    ## What it is
    The head carries d2t although its vocabulary is the target's, and vLLM has no place for it.
    ## Why it happens
    vLLM makes its map only when draft_vocab_size differs from the target's vocabulary; a d2t in the weights is then a tensor
    without a place. Converters write one of zeros for every head.
    ## How it shows
    The server stops while it loads the head: no module or parameter named draft_id_to_target_id.
    ## Fix
    Leave d2t and t2d out of the weights. SGLang takes them as they are.
    """

    code, name = "HS612", "vocab-map-refused"

    def look(self, case: Case) -> Sequence[Problem] | Unchecked:
        draft = case.draft
        if case.contract.engine != "vllm" or "d2t" not in draft.tensors:
            return ()
        vocab = case.target.number("vocab_size") if case.target else draft.vocab_size
        said = draft.says("draft_vocab_size") or draft.vocab_size
        if said != vocab:
            return ()
        return (
            problem(
                self,
                ERROR if case.contract.exact else WARNING,
                "vLLM refuses d2t in a head of the target's whole vocabulary",
                sides=(
                    ("draft", f"{shaped('d2t', draft.tensors['d2t'].shape)}, draft_vocab_size {said}"),
                    ("target", f"vocab_size {vocab}"),
                ),
                changes=(Change("weights", draft.stored["d2t"], "present", "left out"),),
            ),
        )


CHECK = VocabMapRefused()
