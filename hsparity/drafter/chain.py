"""Chains of a head from every row of a prompt at once, each drafted token replaced by the one the text has."""

from __future__ import annotations

import torch

from hsparity.drafter.attention import Rows, attend
from hsparity.drafter.head import Head


def run(head: Head, fed_tk: torch.Tensor, token_ids: torch.Tensor, steps: int) -> torch.Tensor:
    """Normed states [steps, S, H] of chains that start at rows 0..S-1 of a prompt of T = S + 1 tokens.

    [j - 1, i] predicts x[i + j + 1]: the head has read the target's states of rows 0..i beside the tokens x[1..i + 1],
    then its own states beside x[i + 2..i + j]. Row r has position r, as both engines number it: they shift the tokens
    and leave the target's positions. A start i with i + j > T - 1 has no token to read and holds NaN. The head's rows
    of the target are attended to by every chain from there on; its own rows by its own chain only. Raises E264 and
    E267 as `Head.combine` and `Head.embed` do.
    """
    total = len(token_ids)
    starts = max(0, total - 1)
    out = torch.full((steps, starts, head.hidden_size), torch.nan, dtype=head.dtype)
    if not starts:
        return out
    first: list[Rows] = []
    chains: list[list[Rows]] = [[] for _ in head.layers]
    with torch.no_grad():
        state_nh = head.combine(fed_tk[:starts])
        embedded_th = head.embed(token_ids)
        for step in range(1, min(steps, starts) + 1):
            count = total - step
            state_nh = state_nh[:count]
            positions_n = torch.arange(step - 1, step - 1 + count)
            for index, layer in enumerate(head.layers):
                input_nd, residual_nh = layer.enter(state_nh, embedded_th[step : step + count])
                rows = layer.attention.rows(input_nd, positions_n)
                if step == 1:
                    first.append(rows)
                else:
                    chains[index].append(rows)
                scale, window = layer.attention.scale, layer.attention.window
                mixed_nd = attend(rows.query_hnd, first[index], chains[index], scale, window)
                state_nh = layer.leave(residual_nh, mixed_nd)
            out[step - 1, :count] = normed_nh = head.norm(state_nh)
            state_nh = normed_nh if head.norm_output else state_nh
    return out
