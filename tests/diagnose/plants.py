"""Faults planted in a loaded Transformers model: every function gives what changes it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from tests.diagnose.runs import Plant


def rope_theta(factor: float) -> Plant:
    """The rotation's base times `factor`."""

    def change(model: Any) -> None:
        rope = model.model.rotary_emb
        half = len(rope.inv_freq)
        rope.inv_freq *= factor ** -(torch.arange(half, dtype=torch.float) / half)

    return change


def mscale(factor: float) -> Plant:
    """Yarn's magnitude on cos and sin."""

    def change(model: Any) -> None:
        model.model.rotary_emb.attention_scaling *= factor

    return change


def softmax_scale(factor: float) -> Plant:
    def change(model: Any) -> None:
        for layer in model.model.layers:
            layer.self_attn.scaling *= factor

    return change


def norm_eps(value: float) -> Plant:
    def change(model: Any) -> None:
        for layer in model.model.layers:
            for norm in (layer.input_layernorm, layer.post_attention_layernorm):
                norm.variance_epsilon = value

    return change


def routed_scale(factor: float) -> Plant:
    def change(model: Any) -> None:
        for layer in model.model.layers:
            if hasattr(layer.mlp, "gate"):
                layer.mlp.gate.routed_scaling_factor *= factor

    return change


def router_bias(size: float) -> Plant:
    """A bias on the experts' scores that the other side lacks."""

    def change(model: Any) -> None:
        for k, layer in enumerate(model.model.layers):
            if hasattr(layer.mlp, "gate"):
                draw = torch.randn(layer.mlp.gate.num_experts, generator=torch.Generator().manual_seed(k))
                layer.mlp.gate.e_score_correction_bias += size * draw

    return change


def expert_scale(factor: float, expert: int = 0) -> Plant:
    """One expert's output times `factor` in every layer, as with a wrong scale."""

    def change(model: Any) -> None:
        for layer in model.model.layers:
            if hasattr(layer.mlp, "experts"):
                with torch.no_grad():
                    layer.mlp.experts.down_proj[expert] *= factor

    return change


def one_layer(k: int, size: float) -> Plant:
    """Every weight of layer k off by `size` of its own size."""

    def change(model: Any) -> None:
        torch.manual_seed(3)
        with torch.no_grad():
            for weight in _weights(model.model.layers[k]):
                weight.add_(size * weight.float().std().to(weight.dtype) * torch.randn_like(weight))

    return change


def int_weights(bits: int = 4, group: int = 32) -> Plant:
    """Every linear weight in symmetric integers of one scale per `group` inputs."""

    def change(model: Any) -> None:
        with torch.no_grad():
            for layer in model.model.layers:
                for weight in _weights(layer):
                    weight.copy_(_rounded(weight, bits, group))

    return change


def fp8_weights() -> Plant:
    """Every linear weight in float8 e4m3, one scale per output channel."""

    def change(model: Any) -> None:
        with torch.no_grad():
            for layer in model.model.layers:
                for weight in _weights(layer):
                    weight.copy_(_fp8(weight))

    return change


def int8_activations() -> Plant:
    """The input of every linear layer in 8-bit integers, one scale per token."""
    return _activations(lambda x: _rounded(x, 8, x.shape[-1]))


def fp8_activations() -> Plant:
    return _activations(_fp8)


def fp8_kv(scale: float = 1.0) -> Plant:
    """Keys and values pass through a float8 e4m3 cache."""

    def change(model: Any) -> None:
        from transformers import DynamicCache

        class Fp8Cache(DynamicCache):
            def update(self, key: Any, value: Any, layer: int, *rest: Any, **more: Any) -> Any:
                stored = ((x / scale).to(torch.float8_e4m3fn).to(x.dtype) * scale for x in (key, value))
                return super().update(*stored, layer, *rest, **more)

        model.hs_cache = Fp8Cache

    return change


def cached_fp8(least: int = 1) -> Plant:
    """Keys and values that an earlier pass left in the cache come back in float8; fresh ones do not. `least`: rows of
    a pass that sees it (1: decoding too)."""

    def change(model: Any) -> None:
        from transformers import DynamicCache

        class OldInFp8(DynamicCache):
            def update(self, key: Any, value: Any, layer: int, *rest: Any, **more: Any) -> Any:
                fresh = key.shape[2]
                found = super().update(key, value, layer, *rest, **more)
                if fresh < least:
                    return found
                kept = [x[:, :, :-fresh].to(torch.float8_e4m3fn).to(x.dtype) for x in found]
                return tuple(
                    torch.cat((old, x[:, :, -fresh:]), 2) for old, x in zip(kept, found, strict=True)
                )

        model.hs_cache = OldInFp8

    return change


def window(width: int) -> Plant:
    """Every layer attends to the last `width` tokens."""

    def change(model: Any) -> None:
        attend = model.model.layers[0].self_attn.forward.__func__

        def forward(self: Any, *args: Any, attention_mask: Any = None, **kw: Any) -> Any:
            x = kw["hidden_states"] if "hidden_states" in kw else args[0]
            n = x.shape[1]
            far = torch.arange(n)[:, None] - torch.arange(n)[None, :]
            mask = torch.where((far >= 0) & (far < width), 0.0, torch.finfo(x.dtype).min).to(x.dtype)
            return attend(self, *args, attention_mask=mask[None, None], **kw)

        for layer in model.model.layers:
            layer.self_attn.forward = forward.__get__(layer.self_attn)

    return change


def masked(*ids: int) -> Plant:
    """Nobody attends to the tokens of these ids, as a mask made from `pad_token_id` does."""
    seen: dict[str, torch.Tensor] = {}

    def change(model: Any) -> None:
        attend = model.model.layers[0].self_attn.forward.__func__
        model.model.register_forward_pre_hook(
            lambda _, a, kw: seen.update(ids=kw["input_ids"] if "input_ids" in kw else a[0]), with_kwargs=True
        )

        def forward(self: Any, *args: Any, attention_mask: Any = None, **kw: Any) -> Any:
            x = kw["hidden_states"] if "hidden_states" in kw else args[0]
            n = x.shape[1]
            hidden = torch.isin(seen["ids"][0], torch.tensor(ids))
            causal = torch.arange(n)[:, None] >= torch.arange(n)[None, :]
            open_ = causal & (~hidden[None, :] | torch.eye(n, dtype=torch.bool))
            mask = torch.where(open_, 0.0, torch.finfo(x.dtype).min).to(x.dtype)
            return attend(self, *args, attention_mask=mask[None, None], **kw)

        for layer in model.model.layers:
            layer.self_attn.forward = forward.__get__(layer.self_attn)

    return change


def both(*plants: Plant) -> Plant:
    def change(model: Any) -> None:
        for plant in plants:
            plant(model)

    return change


def _activations(quantised: Callable[[torch.Tensor], torch.Tensor]) -> Plant:
    def change(model: Any) -> None:
        for layer in model.model.layers:
            for part in layer.modules():
                if isinstance(part, nn.Linear):
                    part.register_forward_pre_hook(lambda _, a: (quantised(a[0]), *a[1:]))

    return change


def _weights(layer: Any) -> list[torch.Tensor]:
    found = [part.weight for part in layer.modules() if isinstance(part, nn.Linear)]
    if hasattr(layer.mlp, "experts"):
        found += [layer.mlp.experts.gate_up_proj, layer.mlp.experts.down_proj]
    return found


def _rounded(x: torch.Tensor, bits: int, group: int) -> torch.Tensor:
    top = 2 ** (bits - 1) - 1
    parts = x.float().reshape(*x.shape[:-1], -1, group)
    step = parts.abs().amax(-1, keepdim=True).clamp(min=1e-12) / top
    return ((parts / step).round().clamp(-top - 1, top) * step).reshape(x.shape).to(x.dtype)


def _fp8(x: torch.Tensor) -> torch.Tensor:
    step = x.float().abs().amax(-1, keepdim=True).clamp(min=1e-12) / 448.0
    return ((x.float() / step).to(torch.float8_e4m3fn).float() * step).to(x.dtype)
