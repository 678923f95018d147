"""Runs the head on every feeding of one prompt and holds its choices against the target's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from hsparity.align.tokens import PromptRows
from hsparity.drafter.acceptance import UNKNOWN, Agreement
from hsparity.drafter.feedings import Feeding, Part, fed_rows
from hsparity.drafter.head import Head
from hsparity.drafter.target import Target

CHUNK_BYTES = 256 << 20  # of logits in float32
HIDDEN_BYTES = 1 << 30  # of draft states that are kept at once

TRIALS = ("only:", "shift:")

Chain = Callable[[torch.Tensor, torch.Tensor, int], torch.Tensor]


@dataclass(frozen=True, slots=True, eq=False)
class Bench:
    """What does not change from prompt to prompt. `chain(fed_tk, token_ids_t, steps)` gives [steps, S, H]."""

    head: Head
    chain: Chain
    steps: int
    targets: tuple[Target, Target]  # of feedings of the reference's states, and of the candidate's
    originals: Sequence[Part]
    generated: bool = True  # only rows of the generated text count


def agree(
    bench: Bench, p: PromptRows, token_ids: NDArray[np.int32], prefill: int, feedings: Sequence[Feeding]
) -> list[Agreement]:
    """An Agreement for each feeding. `token_ids` int [T]: the text, whose first n tokens the rows are of.

    Distributions are compared for the feedings that somebody serves or would serve, not for the trials of single slots and of
    other layers. The target's choice at a row of the generated part is the token that was written there; at a row of the prompt
    it is what its last state says, and UNKNOWN where that is not held.
    """
    n = len(p.positions)
    ids = torch.from_numpy(np.asarray(token_ids[: n + 1], np.int64))
    starts = len(ids) - 1
    size = 4 * bench.steps * max(starts, 1) * bench.head.hidden_size
    at_once = max(1, HIDDEN_BYTES // size)
    found: dict[int, Agreement] = {}
    for first in range(0, len(feedings), at_once):
        some = feedings[first : first + at_once]
        drafted = [_drafted(bench, feeding, p, token_ids) for feeding in some]
        for side, target in enumerate(bench.targets):
            mine = [i for i, f in enumerate(some) if _of_candidate(f) == bool(side)]
            if mine:
                weighed = [not some[i].key.startswith(TRIALS) for i in mine]
                made = _compared(bench, target, side, p, ids, prefill, [drafted[i] for i in mine], weighed)
                found |= zip([first + i for i in mine], made, strict=True)
    return [found[i] for i in range(len(feedings))]


def _of_candidate(feeding: Feeding) -> bool:
    """Whether the candidate serves: its own target says what is accepted."""
    return feeding.key == "cand" or feeding.key.startswith("undone:")


def fed_text(
    bench: Bench, feeding: Feeding, p: PromptRows, token_ids: NDArray[np.int32]
) -> tuple[torch.Tensor, torch.Tensor]:
    """What the head is fed float32 [T, slots x H], and the text int64 [T]: one token more than there are rows, where the text
    goes on; no chain starts at that one."""
    ids = torch.from_numpy(np.asarray(token_ids[: len(p.positions) + 1], np.int64))
    fed = fed_rows(feeding, p, bench.originals)
    return torch.cat([fed, fed.new_zeros(len(ids) - len(fed), fed.shape[1])]), ids


def _drafted(
    bench: Bench, feeding: Feeding, p: PromptRows, token_ids: NDArray[np.int32]
) -> tuple[torch.Tensor, NDArray[np.bool_]]:
    """The head's states [steps, S, H], and which of the rows fed [T] are not finite."""
    fed, ids = fed_text(bench, feeding, p, token_ids)
    return bench.chain(fed, ids, bench.steps), (~torch.isfinite(fed).all(1)).numpy()


def _compared(
    bench: Bench,
    target: Target,
    side: int,
    p: PromptRows,
    ids: torch.Tensor,
    prefill: int,
    drafted: Sequence[tuple[torch.Tensor, NDArray[np.bool_]]],
    weighed: Sequence[bool],
) -> list[Agreement]:
    n, starts, k = len(p.positions), len(ids) - 1, bench.steps
    match = np.full((len(drafted), k, starts), UNKNOWN, np.int8)
    overlap = np.full((len(drafted), k, starts), np.nan, np.float32)
    bad = [rows_t.copy() for _, rows_t in drafted]
    vocab = max(bench.head.vocab, int(bench.head.target_ids.max()) + 1)
    rows = max(1, CHUNK_BYTES // (4 * vocab))
    # The first row that a chain which counts is asked about is the one behind the prompt's last.
    for begin in range(min(prefill, n) if bench.generated else 0, n, rows):
        r = np.arange(begin, min(begin + rows, n))
        states = target.states(p.prompts[side], p.rows[side][r])
        chance = torch.softmax(target.logits(states), dim=-1) if states is not None else None
        choice = np.full(len(r), -1, np.int64)
        if chance is not None:
            finite = torch.isfinite(chance).all(-1).numpy()
            choice[finite] = chance.argmax(-1).numpy()[finite]
        written = (r >= prefill - 1) & (r + 1 < len(ids))
        choice[written] = ids.numpy()[r[written] + 1]
        for f, (states_ksh, _) in enumerate(drafted):
            for j in range(1, k + 1):
                asked = np.flatnonzero((r - j >= 0) & (r - j < starts))
                if not len(asked):
                    continue
                start = r[asked] - j
                logits = bench.head.logits(states_ksh[j - 1, torch.from_numpy(start)]).float()
                # Of what is not finite argmax names a token all the same; that one is no draft.
                finite = torch.isfinite(logits).all(-1).numpy()
                bad[f][start[~finite]] = True
                token = bench.head.target_ids[logits.argmax(-1)].numpy()
                known = choice[asked] >= 0
                match[f, j - 1, start[known]] = (finite & (token == choice[asked]))[known]
                if chance is not None and weighed[f]:
                    least = torch.minimum(
                        torch.softmax(logits, dim=-1),
                        chance[torch.from_numpy(asked)][:, bench.head.target_ids],
                    )
                    overlap[f, j - 1, start] = least.sum(-1).numpy()
    return [
        Agreement(p.prompts[0], prefill, m, o, int(b.sum()))
        for m, o, b in zip(match, overlap, bad, strict=True)
    ]
