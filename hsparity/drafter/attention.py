"""Attention of a drafted chain: the rows of the target up to a start, then the chain's own rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch.nn import functional as F

from hsparity.drafter.loading import Weights, rms_norm
from hsparity.drafter.rotary import Rotary, rotated

SCORES = 1 << 24  # attention scores held at once


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """Queries, keys and values of n rows. Keys and values have one head for several of the queries'."""

    query_hnd: torch.Tensor
    key_gnd: torch.Tensor
    value_gnd: torch.Tensor


class Attention(Protocol):
    """One layer's attention: rows in, rows out, and nothing of who sees whom."""

    scale: float
    window: int | None

    def rows(self, input_nd: torch.Tensor, positions_n: torch.Tensor) -> Rows:
        """Queries, keys and values of these inputs at these positions."""

    def output(self, mixed_nd: torch.Tensor) -> torch.Tensor:
        """[n, heads x value width] -> [n, H]."""


def attend(
    query_hnd: torch.Tensor, first: Rows, chain: Sequence[Rows], scale: float, window: int | None = None
) -> torch.Tensor:
    """What starts 0..n-1 read, [n, heads x value width].

    Start i sees rows 0..i of `first` and row i of every member of `chain`, which stand for rows i+1, i+2, …; the query
    is the last of these rows. `window` hides rows that lie as many or more before it. Scores are made for some of the
    starts at a time, so that no more than `SCORES` of them are held.
    """
    heads, count, _ = query_hnd.shape
    groups, rows, _ = first.key_gnd.shape
    query_grnd = query_hnd.view(groups, heads // groups, count, -1)
    size = max(1, SCORES // (heads * max(rows, 1)))
    parts = [
        _some(query_grnd[:, :, start : start + size], first, chain, scale, window, start)
        for start in range(0, count, size)
    ]
    return torch.cat(parts) if parts else query_hnd.new_zeros(0, heads * first.value_gnd.shape[2])


def _some(
    query_grnd: torch.Tensor,
    first: Rows,
    chain: Sequence[Rows],
    scale: float,
    window: int | None,
    start: int,
) -> torch.Tensor:
    count = query_grnd.shape[2]
    stop = start + count
    key_gtd, value_gtd = first.key_gnd[:, :stop], first.value_gnd[:, :stop]
    scores = (query_grnd @ key_gtd[:, None].transpose(-1, -2)).float() * scale  # g r n t
    starts_n1 = torch.arange(start, stop)[:, None]
    row_t = torch.arange(stop)
    hidden = row_t > starts_n1
    if window is not None:
        hidden |= row_t <= starts_n1 + len(chain) - window
    scores.masked_fill_(hidden, -torch.inf)
    own = [
        (query_grnd * member.key_gnd[:, None, start:stop]).sum(-1, dtype=torch.float32) * scale
        for member in chain
    ]
    if window is not None:
        behind = range(len(chain) - 1, -1, -1)
        own = [s if b < window else torch.full_like(s, -torch.inf) for s, b in zip(own, behind, strict=True)]
    weight = torch.softmax(torch.cat([scores, *(s[..., None] for s in own)], -1), -1).to(query_grnd.dtype)
    mixed = weight[..., :stop] @ value_gtd[:, None]
    for index, member in enumerate(chain):
        mixed = mixed + weight[..., stop + index, None] * member.value_gnd[:, None, start:stop]
    return mixed.permute(2, 0, 1, 3).reshape(count, -1)


class Grouped:
    """Llama's attention: grouped queries, with biases and with norms of queries and keys where the head has them."""

    def __init__(self, weights: Weights, index: int, width: int) -> None:
        """Layer `index` of a head, whose inputs are `width` wide. Raises E263 and E264."""
        layer = weights.layer
        name = f"layers.{index}.self_attn"
        hidden, self.heads = weights.number("hidden_size"), weights.number("num_attention_heads")
        self.groups = weights.number("num_key_value_heads", self.heads)
        self.width = weights.number("head_dim", hidden // self.heads)
        inner, kept = self.heads * self.width, self.groups * self.width
        biased = bool(layer.get("attention_bias"))
        self.q = weights.linear(f"{name}.q_proj", inner, width, biased)
        self.k = weights.linear(f"{name}.k_proj", kept, width, biased)
        self.v = weights.linear(f"{name}.v_proj", kept, width, biased)
        self.o = weights.linear(f"{name}.o_proj", hidden, inner)
        self.eps = weights.eps
        self.q_norm = weights.maybe(f"{name}.q_norm.weight", (self.width,))
        self.k_norm = weights.maybe(f"{name}.k_norm.weight", (self.width,))
        self.scale = self.width**-0.5
        self.window = _window(layer, index)
        self.rotary = Rotary(layer, rotated(layer, self.width), False, weights.spelled)

    def rows(self, input_nd: torch.Tensor, positions_n: torch.Tensor) -> Rows:
        """Queries [heads, n, d], keys and values [groups, n, d], queries and keys turned to their positions."""
        query, key, value = (
            F.linear(input_nd, *linear).view(len(input_nd), -1, self.width).transpose(0, 1)
            for linear in (self.q, self.k, self.v)
        )
        if self.q_norm is not None:
            query = rms_norm(query, self.q_norm, self.eps)
        if self.k_norm is not None:
            key = rms_norm(key, self.k_norm, self.eps)
        table = self.rotary.table(positions_n)
        return Rows(self.rotary.turn(query, table), self.rotary.turn(key, table), value)

    def output(self, mixed_nd: torch.Tensor) -> torch.Tensor:
        """[n, heads x d] -> [n, H]."""
        return F.linear(mixed_nd, *self.o)


def _window(layer: Mapping[str, Any], index: int) -> int | None:
    """The sliding window of a layer that config.json calls a sliding one."""
    kinds = layer.get("layer_types") or []
    window = layer.get("sliding_window")
    return int(window) if window and kinds[index : index + 1] == ["sliding_attention"] else None
