"""HS611."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from hsparity.drafter.checks.base import ERROR, WARNING, Change, Unchecked, problem, shaped

if TYPE_CHECKING:
    from hsparity.drafter.checks.base import Case, Problem


class VocabMap:
    """
    ## What it is
    The map from the head's tokens to the target's is absent, has another length, leads out of the vocabulary, or is read otherwise.
    ## Why it happens
    A head with a pruned vocabulary carries d2t, which both engines add to the draft id: target id = draft id + d2t. An
    exporter that writes target ids there gives other tokens. t2d, where it is there, marks the tokens that can be drafted and
    says which of the two d2t is; engines do not read it.
    ## How it shows
    Drafted tokens are others than the head means: acceptance near zero from the first position on.
    ## Fix
    Write d2t as target id minus draft id, int64, one entry for each row of lm_head.
    """

    code, name = "HS611", "vocab-map"

    def look(self, case: Case) -> Sequence[Problem] | Unchecked:
        draft = case.draft
        pruned = 0 < draft.draft_vocab_size < draft.vocab_size
        if "d2t" not in draft.tensors:
            if not pruned or "lm_head.weight" not in draft.tensors:
                return ()
            head = draft.tensors["lm_head.weight"].shape
            return (
                problem(
                    self,
                    ERROR,
                    "the vocabulary is pruned and no d2t says to which tokens",
                    sides=(
                        ("draft", shaped("lm_head.weight", head)),
                        ("target", f"{draft.vocab_size} tokens"),
                    ),
                    advice="export d2t from the map that the head was trained with; engines take the first tokens without it",
                ),
            )
        header = draft.tensors["d2t"]
        if header.dtype not in ("I64", "I32"):
            return (
                problem(
                    self,
                    WARNING,
                    f"d2t is stored as {header.dtype}, not as whole numbers",
                    sides=(("draft", f"{shaped('d2t', header.shape)} {header.dtype}"), ("engines", "int64")),
                ),
            )
        return self._values(case)

    def _values(self, case: Case) -> Sequence[Problem] | Unchecked:
        from hsparity.drafter.stored import whole
        from hsparity.errors import HsparityError

        draft = case.draft
        rows = draft.tensors["lm_head.weight"].shape[0] if "lm_head.weight" in draft.tensors else 0
        rows = rows or draft.draft_vocab_size
        maps = {name: whole(draft, name) for name in ("d2t", "t2d") if name in draft.tensors}
        if maps["d2t"] is None:
            return Unchecked("the values of d2t cannot be read", essential=True)
        import torch

        from hsparity.drafter.vocabulary import ABSOLUTE, read_vocabulary

        d2t = torch.from_numpy(maps["d2t"])
        mask = maps.get("t2d")
        t2d = None if mask is None else torch.from_numpy(mask).bool()
        try:
            found = read_vocabulary(d2t, t2d, rows, draft.vocab_size, draft.spelled)
        except HsparityError as error:
            sides = tuple((who, what.strip()) for who, _, what in (n.partition("  ") for n in error.notes))
            return (problem(self, ERROR, error.message, sides=sides, advice=error.help),)
        if found.reading == ABSOLUTE:
            last = len(d2t) - 1
            return (
                problem(
                    self,
                    ERROR,
                    "d2t holds target ids, engines add it to the draft id",
                    sides=(
                        ("draft", f"draft id {last} is target id {int(d2t[last])}, by t2d or its range"),
                        (case.engine, f"takes it for target id {last + int(d2t[last])}"),
                    ),
                    changes=(Change("weights", "d2t", "target id", "target id - draft id"),),
                ),
            )
        return ()


CHECK = VocabMap()
