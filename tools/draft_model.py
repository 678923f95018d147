"""A small EAGLE-3 head in the layout of SpecForge and SGLang, and its test-time training over chained steps."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional


@dataclass(frozen=True)
class Shape:
    """Sizes of a head. `hidden` and `rope_theta` are the target's; the rest is the head's own."""

    hidden: int = 576
    slots: int = 3
    heads: int = 6
    kv_heads: int = 2
    head_dim: int = 64
    intermediate: int = 576
    draft_vocab: int = 1536
    rope_theta: float = 100000.0
    eps: float = 1e-5


class RMSNorm(nn.Module):
    """x / rms(x) * weight over the last axis."""

    def __init__(self, size: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.eps = eps

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Same shape and dtype as `x`."""
        return functional.rms_norm(x, self.weight.shape, self.weight, self.eps)


class Attention(nn.Module):
    """Projections of the head's one attention; its input is the normed embedding beside the normed hidden state."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        wide = 2 * shape.hidden
        self.q_proj = nn.Linear(wide, shape.heads * shape.head_dim, bias=False)
        self.k_proj = nn.Linear(wide, shape.kv_heads * shape.head_dim, bias=False)
        self.v_proj = nn.Linear(wide, shape.kv_heads * shape.head_dim, bias=False)
        self.o_proj = nn.Linear(shape.heads * shape.head_dim, shape.hidden, bias=False)


class MLP(nn.Module):
    """down(silu(gate(x)) * up(x))."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(shape.hidden, shape.intermediate, bias=False)
        self.up_proj = nn.Linear(shape.hidden, shape.intermediate, bias=False)
        self.down_proj = nn.Linear(shape.intermediate, shape.hidden, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[..., hidden] -> [..., hidden]."""
        return self.down_proj(functional.silu(self.gate_proj(x)) * self.up_proj(x))


class MidLayer(nn.Module):
    """Parameters of the decoder layer, named as in the checkpoint."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.self_attn = Attention(shape)
        self.mlp = MLP(shape)
        self.hidden_norm = RMSNorm(shape.hidden, shape.eps)
        self.input_layernorm = RMSNorm(shape.hidden, shape.eps)
        self.post_attention_layernorm = RMSNorm(shape.hidden, shape.eps)


class Head(nn.Module):
    """fc over the target's slots, one decoder layer, a norm and an lm_head over the draft vocabulary."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        self.fc = nn.Linear(shape.slots * shape.hidden, shape.hidden, bias=False)
        self.midlayer = MidLayer(shape)
        self.norm = RMSNorm(shape.hidden, shape.eps)
        self.lm_head = nn.Linear(shape.hidden, shape.draft_vocab, bias=False)

    def forward(
        self, slots: torch.Tensor, embeds: torch.Tensor, real: torch.Tensor, first: int, steps: int
    ) -> list[torch.Tensor]:
        """Draft logits of each step, [batch, rows - first - step, draft vocab], for the rows from first + step.

        `slots` is [batch, rows, slots * hidden], `embeds` [batch, rows, hidden] the embedding of each row's next
        token, `real` [batch, rows] bool (false: padding). Rows before `first` are only attended to, the last of them
        must be real. Row i of step j
        continues the chain that began at row i - j: it starts from the hidden state that step j - 1 left at row
        i - 1 and attends to the target's rows up to i - j and to the chain's own rows after them.
        """
        hidden = self.fc(slots)
        key, value = self._keys_values(hidden, embeds, 0)
        own: list[tuple[torch.Tensor, torch.Tensor]] = []  # of step 1, 2, …: from row first + step on
        logits = []
        for step in range(steps):
            begin = first + step
            embed = embeds[:, begin:]
            hidden = hidden[:, first:] if step == 0 else hidden[:, :-1]
            if step:
                own.append(self._keys_values(hidden, embed, begin))
            attended = self._attend(self._queries(hidden, embed, begin), key, value, own, real, begin, step)
            hidden = hidden + self.midlayer.self_attn.o_proj(attended)
            hidden = hidden + self.midlayer.mlp(self.midlayer.post_attention_layernorm(hidden))
            logits.append(self.lm_head(self.norm(hidden)))
        return logits

    def _wide(self, hidden: torch.Tensor, embed: torch.Tensor) -> torch.Tensor:
        layer = self.midlayer
        return torch.cat([layer.input_layernorm(embed), layer.hidden_norm(hidden)], -1)

    def _queries(self, hidden: torch.Tensor, embed: torch.Tensor, begin: int) -> torch.Tensor:
        q = self.midlayer.self_attn.q_proj(self._wide(hidden, embed))
        return self._rotated(self._split(q), begin)

    def _keys_values(
        self, hidden: torch.Tensor, embed: torch.Tensor, begin: int
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Both [batch, heads, rows, head_dim], each kv head repeated for the query heads it serves."""
        wide, attention = self._wide(hidden, embed), self.midlayer.self_attn
        shared = self.shape.heads // self.shape.kv_heads
        key = self._rotated(self._split(attention.k_proj(wide)), begin).repeat_interleave(shared, 1)
        return key, self._split(attention.v_proj(wide)).repeat_interleave(shared, 1)

    def _attend(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        own: list[tuple[torch.Tensor, torch.Tensor]],
        real: torch.Tensor,
        begin: int,
        step: int,
    ) -> torch.Tensor:
        """[batch, rows, heads * head_dim]: every query over the target's rows, then over its own chain's."""
        count = query.shape[2]
        scale = self.shape.head_dim**-0.5
        row = torch.arange(begin, begin + count)[:, None]
        seen = (torch.arange(key.shape[2]) <= row - step) & real[:, None, None]
        scores = (query @ key.transpose(-1, -2) * scale).masked_fill(~seen, float("-inf"))
        # The chain's row of step m, seen from step j at row i, is row i - (j - m): one key for each query.
        chain = [(k[:, :, :count], v[:, :, :count]) for k, v in own]
        alone = [(query * k).sum(-1, keepdim=True) * scale for k, _ in chain]
        weights = torch.cat([scores, *alone], -1).softmax(-1)
        out = weights[..., : key.shape[2]] @ value
        for number, (_, v) in enumerate(chain):
            out = out + weights[..., key.shape[2] + number, None] * v
        return out.transpose(1, 2).flatten(2)

    def _split(self, x: torch.Tensor) -> torch.Tensor:
        return x.unflatten(-1, (-1, self.shape.head_dim)).transpose(1, 2)

    def _rotated(self, x: torch.Tensor, begin: int) -> torch.Tensor:
        """Rotary embedding in halves, as Llama's; rows count from `begin`."""
        half = self.shape.head_dim // 2
        rate = self.shape.rope_theta ** (-torch.arange(half) / half)
        angle = torch.arange(begin, begin + x.shape[2])[:, None] * rate
        cos, sin = torch.cat([angle.cos()] * 2, -1), torch.cat([angle.sin()] * 2, -1)
        return x * cos + torch.cat([-x[..., half:], x[..., :half]], -1) * sin
