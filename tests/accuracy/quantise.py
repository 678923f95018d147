"""Checkpoints quantised by the published compressed-tensors formats, each with a dequantised bfloat16 twin.

The formats: https://github.com/vllm-project/compressed-tensors (pack-quantized, int-quantized, float-quantized).
A twin holds what the quantised weights stand for, so that twin against original is the error of the weights and
quantised against twin is the error of the kernel.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

GROUP = 32  # Kimi-K2's group size
# Never quantised: no CPU kernel of vLLM takes quantised experts, and MLA absorbs kv_b_proj, which needs plain weights.
KEPT = (r"re:.*lm_head", r"re:.*\.kv_b_proj$", r"re:.*\.mlp\.gate$", r"re:.*\.mlp\.experts\..*")


@dataclass(frozen=True, slots=True)
class Quantised:
    """One linear layer: what the checkpoint stores, by the suffix of its names, and the values it stands for."""

    stored: dict[str, torch.Tensor]
    weight_oi: torch.Tensor  # float32 [out, in]


def w4a16(weight_oi: torch.Tensor) -> Quantised:
    """Symmetric 4-bit integers, a bfloat16 scale per row and group of 32 inputs, eight to an int32."""
    out_features, in_features = weight_oi.shape
    grouped_ogi = weight_oi.view(out_features, in_features // GROUP, GROUP)
    scale_og1 = _scale(grouped_ogi, 7.5)
    level_ogi = (grouped_ogi / scale_og1).round().clamp(-8, 7)
    level_oi = level_ogi.view(out_features, in_features).to(torch.int64) + 8
    stored = {
        "weight_packed": _pack(level_oi),
        "weight_scale": scale_og1[..., 0].to(torch.bfloat16),
        "weight_shape": torch.tensor([out_features, in_features], dtype=torch.int64),
    }
    return Quantised(stored, (level_ogi * scale_og1).view(out_features, in_features))


def w8a8(weight_oi: torch.Tensor) -> Quantised:
    """Symmetric 8-bit integers, a bfloat16 scale per row; activations are quantised per token as they come."""
    scale_o1 = _scale(weight_oi, 127.5)
    level_oi = (weight_oi / scale_o1).round().clamp(-128, 127)
    return Quantised(
        {"weight": level_oi.to(torch.int8), "weight_scale": scale_o1.to(torch.bfloat16)}, level_oi * scale_o1
    )


def fp8(weight_oi: torch.Tensor) -> Quantised:
    """float8_e4m3fn, a bfloat16 scale per row; activations are quantised per token as they come."""
    scale_o1 = _scale(weight_oi, 448.0)
    level_oi = (weight_oi / scale_o1).clamp(-448, 448).to(torch.float8_e4m3fn)
    return Quantised(
        {"weight": level_oi, "weight_scale": scale_o1.to(torch.bfloat16)}, level_oi.float() * scale_o1
    )


@dataclass(frozen=True, slots=True)
class Scheme:
    """A format: how a layer is stored, and what config.json says of weights and activations."""

    store: Callable[[torch.Tensor], Quantised]
    format: str
    weights: dict[str, Any]
    activations: dict[str, Any] | None


_PER_TOKEN = {"dynamic": True, "strategy": "token", "group_size": None, "symmetric": True}
_PER_ROW = {"dynamic": False, "strategy": "channel", "group_size": None, "symmetric": True}
_INT8, _FP8 = {"num_bits": 8, "type": "int"}, {"num_bits": 8, "type": "float"}
SCHEMES = {
    "w4a16": Scheme(
        w4a16,
        "pack-quantized",
        {**_PER_ROW, "strategy": "group", "group_size": GROUP, "num_bits": 4, "type": "int"},
        None,
    ),
    "w8a8": Scheme(w8a8, "int-quantized", _PER_ROW | _INT8, _PER_TOKEN | _INT8),
    "fp8": Scheme(fp8, "float-quantized", _PER_ROW | _FP8, _PER_TOKEN | _FP8),
}


def write(source: Path, out: Path, scheme: str) -> None:
    """Write `out`, the quantised checkpoint, and `out`-dequant, its twin. Raises KeyError for an unknown scheme."""
    chosen = SCHEMES[scheme]
    config = json.loads((source / "config.json").read_text())
    quantised, twin = {}, {}
    for name, tensor in load_file(source / "model.safetensors").items():
        layer = name.removesuffix(".weight")
        if "_proj" not in layer or tensor.dim() != 2 or any(re.match(k[3:], layer) for k in KEPT):
            quantised[name] = twin[name] = tensor
            continue
        done = chosen.store(tensor.float())
        quantised |= {f"{layer}.{suffix}": stored.contiguous() for suffix, stored in done.stored.items()}
        twin[name] = done.weight_oi.to(tensor.dtype)
    about = {
        "quant_method": "compressed-tensors",
        "format": chosen.format,
        "quantization_status": "compressed",
        "ignore": list(KEPT),
        "kv_cache_scheme": None,
        "config_groups": {
            "group_0": {
                "targets": ["Linear"],
                "weights": chosen.weights,
                "input_activations": chosen.activations,
                "output_activations": None,
            }
        },
    }
    _save(source, out, quantised, {**config, "quantization_config": about})
    _save(source, out.with_name(f"{out.name}-dequant"), twin, config)


def _scale(weight: torch.Tensor, levels: float) -> torch.Tensor:
    """The largest magnitude along the last axis over `levels`, rounded to the bfloat16 that is stored."""
    return (weight.abs().amax(-1, keepdim=True) / levels).clamp_min(1e-8).to(torch.bfloat16).float()


def _pack(level_oi: torch.Tensor) -> torch.Tensor:
    """Eight 4-bit values to an int32, the first in the lowest bits."""
    shift_8 = torch.arange(8) * 4
    word_ow = (level_oi.unflatten(1, (-1, 8)) << shift_8).sum(-1)
    return torch.where(word_ow >= 2**31, word_ow - 2**32, word_ow).to(torch.int32)


def _save(source: Path, out: Path, tensors: dict[str, torch.Tensor], config: dict[str, Any]) -> None:
    """Written beside and renamed: a checkpoint that exists is whole."""
    staged = out.with_name(f".{out.name}")
    shutil.rmtree(staged, ignore_errors=True)
    staged.mkdir(parents=True)
    for file in source.iterdir():
        if file.name not in ("model.safetensors", "config.json"):
            shutil.copy(file, staged)
    save_file(tensors, staged / "model.safetensors", {"format": "pt"})
    (staged / "config.json").write_text(json.dumps(config, indent=1, sort_keys=True) + "\n")
    shutil.rmtree(out, ignore_errors=True)
    staged.rename(out)
