"""HS616."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from hsparity.drafter.checks.base import CONFIG, ERROR, WARNING, Change, Unchecked, problem, shaped, spelled
from hsparity.drafter.classes import LLAMA, head_class

if TYPE_CHECKING:
    from hsparity.drafter.checks.base import Case, Problem


class LmHeadSource:
    """
    ## What it is
    The engine takes the head's output layer from another place than the head's file, or has none.
    ## Why it happens
    SGLang takes the target's lm_head when draft_vocab_size is null, and the embedding when tie_word_embeddings is true,
    whatever the head's file holds; without the key draft_vocab_size its Llama class stops. vLLM takes the target's where the
    head has none, which fits only the whole vocabulary.
    ## How it shows
    Acceptance near zero with fluent output, or an error at start-up.
    ## Fix
    State draft_vocab_size as lm_head has rows and tie_word_embeddings false, and export lm_head with the head.
    """

    code, name = "HS616", "lm-head-source"

    def look(self, case: Case) -> Sequence[Problem] | Unchecked:
        engine = case.contract.engine
        if engine == "hf":
            return ()
        return self._vllm(case) if engine == "vllm" else self._sglang(case)

    def _vllm(self, case: Case) -> Sequence[Problem]:
        draft = case.draft
        if "lm_head.weight" in draft.tensors:
            return ()
        vocab = case.target.number("vocab_size") if case.target else draft.vocab_size
        said = draft.says("draft_vocab_size") or draft.vocab_size
        if said == vocab:
            return ()
        return (
            problem(
                self,
                ERROR,
                f"the head has no lm_head, and the target's has {vocab} rows, not {said}",
                sides=(
                    ("draft", f"no lm_head, draft_vocab_size {said}"),
                    (case.engine, "takes the target's"),
                ),
                advice="export lm_head with the head",
            ),
        )

    def _sglang(self, case: Case) -> Sequence[Problem] | Unchecked:
        draft = case.draft
        made = head_class("sglang", draft)
        if made is None:
            return Unchecked("SGLang has no class for this head")
        own = draft.tensors.get("lm_head.weight")
        rows = own.shape[0] if own else draft.vocab_size
        size, tied = (
            draft.config.get("draft_vocab_size"),
            bool(draft.config.get("tie_word_embeddings", False)),
        )
        severity = ERROR if case.contract.exact else WARNING
        sides = (
            ("draft", shaped("lm_head.weight", own.shape) if own else "no lm_head"),
            (case.engine, "the target's embedding is the head's output layer"),
        )
        if tied and (own is not None or draft.draft_vocab_size != draft.vocab_size):
            change = Change(CONFIG, "tie_word_embeddings", "true", "false")
            return (
                problem(
                    self,
                    severity,
                    "tie_word_embeddings puts the embedding in lm_head's place",
                    sides=sides,
                    changes=(change,),
                ),
            )
        if tied:
            return ()
        add = Change(
            CONFIG, "draft_vocab_size", spelled(size) if "draft_vocab_size" in draft.config else "", str(rows)
        )
        if "draft_vocab_size" not in draft.config and made.family == LLAMA:
            sides = (sides[0], (case.engine, "asks for draft_vocab_size and stops without it"))
            return (
                problem(self, severity, "SGLang stops without draft_vocab_size", sides=sides, changes=(add,)),
            )
        if size is None:
            sides = (sides[0], (case.engine, "takes the target's lm_head, as draft_vocab_size is null"))
            return self._replaced(case, severity, sides, add) if own else ()
        if own is None:
            sides = (sides[0], (case.engine, f"makes one of {size} rows and loads nothing into it"))
            return (
                problem(
                    self,
                    severity,
                    "the head has no lm_head and SGLang does not share it",
                    sides=sides,
                    changes=(Change(CONFIG, "draft_vocab_size", spelled(size), "null"),)
                    if size == draft.vocab_size
                    else (),
                ),
            )
        return ()

    def _replaced(
        self, case: Case, severity: str, sides: tuple[tuple[str, str], ...], change: Change
    ) -> Sequence[Problem]:
        from hsparity.drafter.checks.embedding_replaced import ROUNDED
        from hsparity.drafter.stored import (
            EMBEDDINGS,
            LM_HEADS,
            distance,
            sample,
            spread,
            target_sample,
        )

        mine = theirs = None
        if case.target is not None:
            chosen = spread(
                min(case.draft.tensors["lm_head.weight"].shape[0], case.target.number("vocab_size"))
            )
            mine = sample(case.draft, "lm_head.weight", chosen)
            theirs = target_sample(case.target, LM_HEADS, chosen)
            if theirs is None and case.target.config.get("tie_word_embeddings"):
                theirs = target_sample(case.target, EMBEDDINGS, chosen)
        words = "the head's own lm_head is not used"
        if mine is None or theirs is None or mine.shape != theirs.shape:
            rival = "the head's is a copy of the target's"
            return (
                problem(
                    self,
                    WARNING,
                    words,
                    sides=sides,
                    changes=(change,),
                    rival=rival,
                    settle="--model M with its weights",
                ),
            )
        gap = distance(mine, theirs)
        if gap <= ROUNDED:
            return ()
        return (
            problem(
                self,
                severity,
                f"{words}, and differs from the target's by {gap:.2g}",
                sides=sides,
                changes=(change,),
            ),
        )


CHECK = LmHeadSource()
