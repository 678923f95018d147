"""Whether our run of a head in speculators' format drafts what the library's own model drafts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

import hsparity
from hsparity.drafter import chain
from hsparity.drafter.draft import SPECULATORS
from hsparity.drafter.head import Head
from hsparity.drafter.library import run_library

TEXTS, ROWS = 4, 256  # that are held against the library, whose memory grows with the square of a text
SAME = 0.99  # of the rows: the rest are ties in the last bit


@dataclass(frozen=True, slots=True)
class Runner:
    """What ran the head; `doubt` says why its figures cannot be trusted, `note` what was not done."""

    words: str
    note: str = ""
    doubt: str = ""


def runner(
    head: Head, model: Path, fed: Sequence[torch.Tensor], token_ids: Sequence[torch.Tensor], steps: int
) -> Runner:
    """Our own run, held against the library's model of the head where the head is in its format; `fed` float32
    [T, slots x H] and `token_ids` int64 [T] of a few texts. Raises E269 where the library fails."""
    ours = f"hsparity {hsparity.__version__}, float32"
    if head.draft.layout != SPECULATORS:
        return Runner(ours)
    some = [(f[:ROWS], t[:ROWS]) for f, t in zip(fed[:TEXTS], token_ids[:TEXTS], strict=True)]
    library = run_library(head, model, [f for f, _ in some], [t for _, t in some], steps)
    if library.why:
        return Runner(
            ours, note=f"speculators' own model of this head was not run beside ours: {library.why}"
        )
    same = total = 0
    for (f, t), theirs in zip(some, library.drafted, strict=True):
        drafted = head.logits(chain.run(head, f, t, steps)).argmax(-1)
        known = theirs >= 0
        same, total = same + int((drafted[known] == theirs[known]).sum()), total + int(known.sum())
    share = same / max(total, 1)
    words = f"{ours}; speculators {library.version}'s own model of it drafts the same token in {same:,} of {total:,} cases"
    return Runner(
        words,
        doubt="" if share >= SAME else f"our run of the head and the library's agree on {share:.1%} only",
    )
