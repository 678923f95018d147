"""Answers side by side: prompts padded on the left, so that all responses start in one column."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from tools.draft_features import Features


@dataclass(frozen=True)
class Batch:
    """Rows a head runs over. Column `first` is each answer's last prompt row: the first that drafts.

    slots [batch, rows, slots * hidden] f32; tokens, the token after each row, and truth, the one a draft from that
    row must name, both [batch, rows] int64; real [batch, rows] bool; taught [batch, rows - first, hidden] f32, the
    state that decides `truth`; greedy [batch, rows - first] int64, the argmax that state has.
    """

    slots: torch.Tensor
    tokens: torch.Tensor
    truth: torch.Tensor
    real: torch.Tensor
    taught: torch.Tensor
    greedy: torch.Tensor
    first: int


def collate(features: Features, chosen: Sequence[int], slots: Sequence[str], target: str) -> Batch:
    """The batch of the `chosen` answers, with the states named in `slots` and the `target` state to learn from."""
    some = [features.answers[n] for n in chosen]
    first = max(len(a.prompt) for a in some) - 1
    # A row needs the two tokens after it: the one it is given and the one it drafts.
    rows = first + max(len(a.response) for a in some) - 1
    width = features.states[target].shape[1]
    batch = Batch(
        slots=torch.zeros(len(some), rows, len(slots) * width),
        tokens=torch.zeros(len(some), rows, dtype=torch.int64),
        truth=torch.zeros(len(some), rows, dtype=torch.int64),
        real=torch.zeros(len(some), rows, dtype=torch.bool),
        taught=torch.zeros(len(some), rows - first, width),
        greedy=torch.zeros(len(some), rows - first, dtype=torch.int64),
        first=first,
    )
    for row, (n, answer) in enumerate(zip(chosen, some, strict=True)):
        ids = torch.tensor(answer.prompt + answer.response)
        count, last = len(ids) - 2, len(answer.prompt) - 1
        begin, start = first - last, features.starts[n]
        span = slice(begin, begin + count)
        batch.slots[row, span] = torch.cat(
            [features.states[s][start : start + count] for s in slots], -1
        ).float()
        batch.tokens[row, span], batch.truth[row, span], batch.real[row, span] = ids[1:-1], ids[2:], True
        after = slice(start + last + 1, start + count + 1)
        batch.taught[row, : count - last] = features.states[target][after].float()
        batch.greedy[row, : count - last] = features.greedy[target][after]
    return batch
