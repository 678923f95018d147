"""HS613."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from hsparity.drafter.checks.base import CONFIG, ERROR, Change, Unchecked, problem, spelled

if TYPE_CHECKING:
    from hsparity.drafter.checks.base import Case, Problem


class DraftVocab:
    """
    ## What it is
    draft_vocab_size, the rows of lm_head and the length of d2t are not one number.
    ## Why it happens
    The config was written for another pruning than the weights, or for none.
    ## How it shows
    An error about shapes while weights are loaded; in SGLang without one where d2t alone differs: wrong tokens.
    ## Fix
    State draft_vocab_size as lm_head has rows, and export d2t with as many entries.
    """

    code, name = "HS613", "draft-vocab"

    def look(self, case: Case) -> Sequence[Problem] | Unchecked:
        draft = case.draft
        said = draft.says("draft_vocab_size")
        head, map_ = draft.tensors.get("lm_head.weight"), draft.tensors.get("d2t")
        counts = {
            "draft_vocab_size": said if isinstance(said, int) else None,
            "lm_head.weight rows": head.shape[0] if head else None,
            "d2t entries": map_.shape[0] if map_ and map_.shape else None,
        }
        if said is None and head is not None and case.contract.engine == "vllm":
            counts["draft_vocab_size"] = draft.vocab_size  # what vLLM takes without it
        held = {what: n for what, n in counts.items() if n is not None}
        if len(set(held.values())) < 2:
            return ()
        rows = head.shape[0] if head else map_.shape[0] if map_ else 0
        changes = (Change(CONFIG, "draft_vocab_size", spelled(said), str(rows)),) if said != rows else ()
        return (
            problem(
                self,
                ERROR,
                "the sizes of the draft's vocabulary differ",
                sides=tuple((what, str(n)) for what, n in held.items()),
                changes=changes,
            ),
        )


CHECK = DraftVocab()
