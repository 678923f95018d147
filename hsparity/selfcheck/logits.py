"""Log-probabilities from lm_head inputs, the vocabulary streamed: the weight is never whole in memory."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from hsparity.selfcheck.checkpoint import Head

BLOCK_BYTES = 64 << 20  # of weight, and of logits, both float32
MOST_ROWS = 8192


@dataclass(frozen=True, slots=True, eq=False)
class Rated:
    """Of C candidates and N tokens."""

    logprob_cn: torch.Tensor  # float64: log-probability of the asked token
    top_cn: torch.Tensor  # int64: the most likely token
    largest_cn: torch.Tensor  # float64: the largest logit's magnitude

    def pick(self, candidates: list[int]) -> Rated:
        """Some of the candidates."""
        return Rated(self.logprob_cn[candidates], self.top_cn[candidates], self.largest_cn[candidates])


def rate(
    head: Head,
    inputs_cnh: torch.Tensor,
    next_n: torch.Tensor,
    rounded: torch.dtype | None = None,
    scale_c: torch.Tensor | None = None,
) -> Rated:
    """Log-probabilities of `next_n` under each candidate's inputs float32 [C, N, H].

    Logits and their exponentials are float32, the sums of the log-sum-exp float64. `rounded` rounds inputs,
    weight and logits to that dtype, as an engine that computes in it does. `scale_c`, float64 [C], multiplies
    the logits, as 1 / temperature would.
    """
    count, tokens, hidden = inputs_cnh.shape
    flat_mh = inputs_cnh.reshape(-1, hidden)
    if rounded is not None:
        flat_mh = flat_mh.to(rounded).float()
    next_m = next_n.repeat(count)
    largest_m = torch.full((len(flat_mh),), -torch.inf, dtype=torch.float64)
    smallest_m, total_m = -largest_m, torch.zeros(len(flat_mh), dtype=torch.float64)
    asked_m, top_m = torch.full_like(total_m, torch.nan), torch.zeros_like(next_m)
    rows = min(MOST_ROWS, BLOCK_BYTES // (4 * hidden), BLOCK_BYTES // (4 * len(flat_mh)))
    for start, weight_vh in head.blocks(max(rows, 16)):
        if rounded is not None:
            weight_vh = weight_vh.to(rounded).float()  # noqa: PLW2901
        logits_mv = head.shape(flat_mh @ weight_vh.T, start)
        if rounded is not None:
            logits_mv = logits_mv.to(rounded).float()
        if scale_c is not None:
            logits_mv = logits_mv * scale_c.float().repeat_interleave(tokens)[:, None]
        block_m, place_m = logits_mv.max(-1)
        top_m = torch.where(block_m > largest_m, place_m + start, top_m)
        smallest_m = torch.minimum(smallest_m, logits_mv.amin(-1))
        inside_m = (next_m >= start) & (next_m < start + len(weight_vh))
        asked_m[inside_m] = logits_mv[inside_m, next_m[inside_m] - start].double()
        raised_m = torch.maximum(largest_m, block_m.double())
        part_m = logits_mv.sub_(raised_m.float()[:, None]).exp_().sum(-1, dtype=torch.float64)
        total_m = total_m * (largest_m - raised_m).exp() + part_m
        largest_m = raised_m
    logprob_m = asked_m - largest_m - total_m.log()
    magnitude_m = torch.maximum(largest_m.abs(), smallest_m.abs())
    return Rated(*(each.reshape(count, tokens) for each in (logprob_m, top_m, magnitude_m)))
