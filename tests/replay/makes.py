"""Tiny checkpoints, copies of them with one thing wrong, and captures of both by Transformers in this process."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from hsprobe.drive import capture
from hsprobe.schema import CaptureSpec, PromptSpec

VOCABULARY, LAYERS, HIDDEN, EXPERTS = 96, 4, 64, 8
SITES = ("boundary.*", "attn_out.*", "mlp_out.*")
ROUTED = (*SITES, "router_logits.*", "experts.*")
WEIGHTS = "model.safetensors"

Tensors = dict[str, torch.Tensor]


def save_deepseek(folder: Path) -> Path:
    """A 4-layer DeepSeek-V3 in bfloat16: MLA, yarn, 8 experts in 4 groups of which 2 are chosen, one shared expert, a
    correction bias that decides; layer 0 is dense."""
    from transformers import DeepseekV3Config, DeepseekV3ForCausalLM

    torch.manual_seed(0)
    config = DeepseekV3Config(
        vocab_size=VOCABULARY, hidden_size=HIDDEN, intermediate_size=96, moe_intermediate_size=48,
        num_hidden_layers=LAYERS, num_attention_heads=4, num_key_value_heads=4, n_shared_experts=1,
        n_routed_experts=EXPERTS, routed_scaling_factor=2.0, kv_lora_rank=32, q_lora_rank=24, qk_rope_head_dim=16,
        v_head_dim=16, qk_nope_head_dim=16, n_group=4, topk_group=2, num_experts_per_tok=2, first_k_dense_replace=1,
        initializer_range=0.2, rope_theta=10000.0, max_position_embeddings=512,
        rope_scaling={"type": "yarn", "factor": 2.0, "original_max_position_embeddings": 256, "mscale": 1.0,
                      "mscale_all_dim": 1.0, "beta_fast": 32, "beta_slow": 1},
    )  # fmt: skip
    model = DeepseekV3ForCausalLM(config)
    with torch.no_grad():
        for name, value in (*model.named_parameters(), *model.named_buffers()):
            if "layernorm" in name:
                value.add_(0.2 * torch.randn_like(value))
            elif "e_score_correction_bias" in name:
                value.copy_(0.1 * torch.randn_like(value))
    model.to(torch.bfloat16).save_pretrained(folder)
    return folder


def changed(model: Path, out: Path, weights: Callable[[Tensors], None] | None = None, **config: Any) -> Path:
    """A copy of a checkpoint with its tensors changed in place by `weights` and its config by `config`."""
    shutil.copytree(model, out)
    if weights is not None:
        tensors = load_file(out / WEIGHTS)
        weights(tensors)
        save_file(tensors, out / WEIGHTS, metadata={"format": "pt"})
    stated = json.loads((out / "config.json").read_text())
    (out / "config.json").write_text(json.dumps(stated | config))
    return out


def prompts(count: int = 4, tokens: int = 60) -> tuple[PromptSpec, ...]:
    draw = torch.Generator().manual_seed(3)
    return tuple(
        PromptSpec(f"p{i}", tuple(torch.randint(3, VOCABULARY, (tokens + 7 * i,), generator=draw).tolist()))
        for i in range(count)
    )


def taken(
    model: Path, out: Path, dtype: str = "bfloat16", sites: tuple[str, ...] = SITES, **more: Any
) -> Path:
    """A capture of `model` by Transformers."""
    settings: dict[str, Any] = {"prompts": prompts(), **more}
    spec = CaptureSpec("hf", str(model), sites=sites, dtype=dtype, **settings)
    capture(spec, out, lambda _event: None)
    return out
