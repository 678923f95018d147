"""DeepSeek's multi-head latent attention, its keys and values spelled out."""

from __future__ import annotations

import torch
from torch.nn import functional as F

from hsparity.drafter.attention import Rows
from hsparity.drafter.loading import Weights, rms_norm
from hsparity.drafter.rotary import Rotary, mscale_squared


class Latent:
    """Attention over keys and values that are made from one narrow state per row (DeepSeek-V2, arXiv 2405.04434)."""

    window: int | None = None

    def __init__(self, weights: Weights, index: int, width: int) -> None:
        """Layer `index` of a head, whose inputs are `width` wide. Raises E263 and E264."""
        name = f"layers.{index}.self_attn"
        hidden, self.heads = weights.number("hidden_size"), weights.number("num_attention_heads")
        self.nope, self.rope = weights.number("qk_nope_head_dim"), weights.number("qk_rope_head_dim")
        self.value, self.rank = weights.number("v_head_dim"), weights.number("kv_lora_rank")
        self.eps = weights.eps
        query, narrow = self.heads * (self.nope + self.rope), weights.number("q_lora_rank", 0)
        self.q_a = weights.linear(f"{name}.q_a_proj", narrow, width) if narrow else None
        self.q_norm = weights.take(f"{name}.q_a_layernorm.weight", (narrow,)) if narrow else None
        self.q = weights.linear(f"{name}.{'q_b_proj' if narrow else 'q_proj'}", query, narrow or width)
        self.kv_a = weights.linear(f"{name}.kv_a_proj_with_mqa", self.rank + self.rope, width)
        self.kv_norm = weights.take(f"{name}.kv_a_layernorm.weight", (self.rank,))
        self.kv_b = weights.linear(f"{name}.kv_b_proj", self.heads * (self.nope + self.value), self.rank)
        self.o = weights.linear(f"{name}.o_proj", hidden, self.heads * self.value)
        self.scale = (self.nope + self.rope) ** -0.5 * mscale_squared(weights.layer)
        interleaved = bool(weights.layer.get("rope_interleave", True))
        self.rotary = Rotary(weights.layer, self.rope, interleaved, weights.spelled)

    def rows(self, input_nd: torch.Tensor, positions_n: torch.Tensor) -> Rows:
        """Queries and keys [heads, n, rope + nope], the turned channels first, and values [heads, n, v]."""
        count = len(input_nd)
        narrow = input_nd
        if self.q_a is not None and self.q_norm is not None:
            narrow = rms_norm(F.linear(input_nd, *self.q_a), self.q_norm, self.eps)
        query_hnd = F.linear(narrow, *self.q).view(count, self.heads, -1).transpose(0, 1)
        latent_nr, shared_nd = F.linear(input_nd, *self.kv_a).split([self.rank, self.rope], -1)
        wide = F.linear(rms_norm(latent_nr, self.kv_norm, self.eps), *self.kv_b)
        key_hnd, value_hnd = (
            wide.view(count, self.heads, -1).transpose(0, 1).split([self.nope, self.value], -1)
        )
        table = self.rotary.table(positions_n)
        plain_hnd, turned_hnd = query_hnd.split([self.nope, self.rope], -1)
        shared_hnd = self.rotary.turn(shared_nd[None], table).expand(self.heads, -1, -1)
        return Rows(
            torch.cat((self.rotary.turn(turned_hnd, table), plain_hnd), -1),
            torch.cat((shared_hnd, key_hnd), -1),
            value_hnd,
        )

    def output(self, mixed_nd: torch.Tensor) -> torch.Tensor:
        """[n, heads x v] -> [n, H]."""
        return F.linear(mixed_nd, *self.o)
