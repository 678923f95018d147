"""A layer's experts as the checkpoint stores them, each dequantised when a token needs it.

384 experts of 44 million weights are 67 GB in float32 and 9 GB as int4: a layer of a large model fits this way only.
"""

from __future__ import annotations

import inspect
import re
import textwrap
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from hsparity.weights.checkpoint import Checkpoint

# Float32 bytes of a layer's experts from which on they are kept as stored.
LARGE = 4 << 30
EXPERT = re.compile(
    r"^(?P<mlp>.+)\.experts\.(?P<number>\d+)\.(?P<matrix>gate_proj|up_proj|down_proj)\.weight$"
)

Parts = dict[str, torch.Tensor]


class Stock:
    """The stored experts of one layer, read from disk once and shared by the layer's copies in several dtypes."""

    def __init__(self, checkpoint: Checkpoint, names: dict[str, str], device: str) -> None:
        self.checkpoint, self.device = checkpoint, device
        self.names: dict[tuple[int, str], str] = {}
        self.inner: set[str] = set()  # names inside the layer that this stands for
        for inner, name in names.items():
            if match := EXPERT.match(inner):
                self.names[int(match["number"]), match["matrix"]] = name
                self.inner.add(inner)
        self._parts: dict[tuple[int, str], Parts] = {}

    @property
    def count(self) -> int:
        return len({number for number, _ in self.names})

    def matrix(self, number: int, matrix: str, dtype: torch.dtype) -> torch.Tensor:
        """A weight [o, i] of one expert, dequantised."""
        key = number, matrix
        name = self.names[key]
        if key not in self._parts:
            self._parts[key] = {k: v.to(self.device) for k, v in self.checkpoint.parts(name).items()}
        return self.checkpoint.join(name, self._parts[key]).to(dtype)


class StoredExperts(nn.Module):
    """Takes the place of a family's fused experts; computes what they compute, one expert at a time."""

    def __init__(self, stock: Stock, act_fn: Callable[[torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.stock, self.act_fn = stock, act_fn

    def forward(
        self, hidden_nh: torch.Tensor, top_k_index: torch.Tensor, top_k_weights: torch.Tensor
    ) -> torch.Tensor:
        """The weighted sum over the chosen experts, [n, H]."""
        total_nh = torch.zeros_like(hidden_nh)
        for number in top_k_index.unique().tolist():
            token_n, place_n = torch.where(top_k_index == number)
            both = [self.stock.matrix(number, m, hidden_nh.dtype) for m in ("gate_proj", "up_proj")]
            gate, up = functional.linear(hidden_nh[token_n], torch.cat(both)).chunk(2, dim=-1)
            made_nh = functional.linear(
                self.act_fn(gate) * up, self.stock.matrix(number, "down_proj", hidden_nh.dtype)
            )
            made_nh = made_nh * top_k_weights[token_n, place_n, None]
            total_nh.index_add_(0, token_n, made_nh.to(total_nh.dtype))
        return total_nh


def stock_of(checkpoint: Checkpoint, index: int, device: str) -> Stock | None:
    """The stored experts of layer `index` where they are LARGE and lie one by one; None where the layer is loaded
    whole."""
    names = checkpoint.layer(index)
    if not any(EXPERT.match(inner) for inner in names):
        return None
    config = checkpoint.config
    width, inside = (
        config.get("hidden_size"),
        config.get("moe_intermediate_size") or config.get("intermediate_size"),
    )
    stock = Stock(checkpoint, names, device)
    if not isinstance(width, int) or not isinstance(inside, int) or 12 * width * inside * stock.count < LARGE:
        return None
    return stock


def put_in(layer: nn.Module, stock: Stock) -> bool:
    """Replace the layer's fused experts by the stored ones; False where the family's experts compute something else."""
    mlp = getattr(layer, "mlp", None)
    experts = getattr(mlp, "experts", None)
    if not isinstance(mlp, nn.Module) or experts is None or not _usual(type(experts)):
        return False
    mlp.experts = StoredExperts(stock, experts.act_fn)
    return True


def _usual(kind: Any) -> bool:
    """Whether a family's experts run the code that `StoredExperts` mirrors, DeepSeek-V3's, line by line."""
    from transformers.models.deepseek_v3.modeling_deepseek_v3 import DeepseekV3Experts

    return _code(kind) == _code(DeepseekV3Experts)


def _code(kind: Any) -> str:
    return textwrap.dedent(inspect.getsource(inspect.unwrap(kind.forward)))
