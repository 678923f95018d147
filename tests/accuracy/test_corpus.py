"""The corpus is what it says: formats that decode to their twins, and pairs that differ in one thing."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from hsparity import models

from . import quantise
from .cases import Case, Take, cases

CASES = cases()


def unpacked(stored: dict[str, torch.Tensor]) -> torch.Tensor:
    """What a pack-quantized layer stands for, read from the bytes: nibbles from the lowest, less 8, times the scale."""
    raw_ob = stored["weight_packed"].view(torch.uint8)
    level_oi = torch.stack([raw_ob & 15, raw_ob >> 4], -1).flatten(1).float() - 8
    scale_oi = stored["weight_scale"].float().repeat_interleave(quantise.GROUP, 1)
    return level_oi * scale_oi


@pytest.mark.parametrize("scheme", ["w4a16", "w8a8", "fp8"])
def test_stored_layers_decode_to_the_twin(scheme: str) -> None:
    """The checkpoint's bytes decode to exactly the twin's values, within half a level of the original."""
    weight_oi = torch.randn(64, 128, generator=torch.Generator().manual_seed(1))
    done = quantise.SCHEMES[scheme].store(weight_oi)
    if scheme == "w4a16":
        decoded_oi = unpacked(done.stored)
        assert done.stored["weight_shape"].tolist() == [64, 128]
    else:
        decoded_oi = done.stored["weight"].float() * done.stored["weight_scale"].float()
    assert torch.equal(decoded_oi, done.weight_oi)
    error = float((decoded_oi - weight_oi).norm() / weight_oi.norm())
    low, high = {"w4a16": (0.05, 0.12), "w8a8": (0.003, 0.01), "fp8": (0.02, 0.04)}[scheme]
    assert low < error < high


def test_deepseek_keeps_its_experts(tmp_path: Path) -> None:
    """Routed experts, router, kv_b_proj and head stay in bfloat16; the dense linears are packed, both fused parts too."""
    source = models.path("tiny:deepseek-v3")
    quantise.write(source, tmp_path / "q", "w4a16")
    stored, original = (
        load_file(tmp_path / "q" / "model.safetensors"),
        load_file(source / "model.safetensors"),
    )
    packed = {name.removesuffix(".weight_packed") for name in stored if name.endswith(".weight_packed")}
    assert {f"model.layers.3.self_attn.{n}" for n in ("q_a_proj", "kv_a_proj_with_mqa", "o_proj")} <= packed
    assert {f"model.layers.3.mlp.shared_experts.{n}_proj" for n in ("gate", "up", "down")} <= packed
    kept = ("mlp.experts.5.up_proj", "mlp.gate", "self_attn.kv_b_proj")
    for name in (*(f"model.layers.3.{n}.weight" for n in kept), "lm_head.weight"):
        assert torch.equal(stored[name], original[name])
    twin = load_file(tmp_path / "q-dequant" / "model.safetensors")
    assert twin.keys() == original.keys()
    assert "quantization_config" not in json.loads((tmp_path / "q-dequant" / "config.json").read_text())


def settings(take: Take) -> dict[str, Any]:
    """Everything that a capture is made with, flat."""
    spec = {k: v for k, v in take.spec.items() if k not in ("engine_args", "env")}
    nested = {**take.spec.get("engine_args", {}), **take.spec.get("env", {})}
    return {
        "dtype": "bfloat16",
        "engine": take.engine,
        "weights": take.weights,
        "prompts": take.prompts,
        **spec,
        **nested,
    }


# One thing, and what it needs.
ALLOWED = (
    {"attention_backend", "TRITON_INTERPRET"},
    {"enable_chunked_prefill", "max_num_batched_tokens"},
    {"tensor_parallel_size", "VLLM_CPU_OMP_THREADS_BIND"},
    {"VLLM_MLA_DISABLE", "kv_cache_dtype"},  # MLA has no fp8 cache on a CPU
)


@pytest.mark.parametrize("case", CASES, ids=[c.name for c in CASES])
def test_sides_differ_in_one_thing(case: Case) -> None:
    """Of the settings of its two captures one differs, with what it needs; the engine may differ beside it."""
    ref, cand = settings(case.ref), settings(case.cand)
    differ = {k for k in ref.keys() | cand.keys() if ref.get(k) != cand.get(k)}
    assert case.ref.model == case.cand.model
    beside = differ - {"engine"}
    assert differ
    assert len(beside) <= 1 or any(beside <= together for together in ALLOWED)
    assert all(f.prompts == case.ref.prompts for f in case.floors)


def test_names_are_unique() -> None:
    """A case is found by its name, a capture by its folder: neither stands for two things."""
    assert max(Counter(c.name for c in CASES).values()) == 1
    takes = [t for c in CASES for t in (c.ref, c.cand, *c.floors)]
    folders: dict[str, list[Take]] = {}
    for take in takes:
        folders.setdefault(take.name, []).append(take)
    assert all(take == same[0] for same in folders.values() for take in same)
