"""Checkpoints that a fault needs and hsparity does not bundle: a tiny Gemma3, a DeepSeek that scales."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import torch


def scaling_deepseek(plain: Path, folder: Path, factor: float) -> Path:
    """A copy of a DeepSeek checkpoint whose experts are scaled by `factor`, as V3's are by 2.5."""
    shutil.copytree(plain, folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "routed_scaling_factor": factor}))
    return folder


def tiny_gemma3(folder: Path) -> Path:
    """A random 8-layer Gemma3 text model, H 256, vocabulary 512."""
    from transformers import Gemma3ForCausalLM, Gemma3TextConfig

    config = Gemma3TextConfig(
        vocab_size=512,
        hidden_size=256,
        intermediate_size=512,
        num_hidden_layers=8,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=64,
        max_position_embeddings=2048,
        sliding_window=64,
        query_pre_attn_scalar=64,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
    )
    model = Gemma3ForCausalLM(config)
    draw = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for weight in model.parameters():
            # The embedding is multiplied by sqrt(H) on its way in.
            scale = 0.1 if weight.dim() == 1 else weight.shape[1] ** -0.5
            weight.normal_(0.0, scale, generator=draw)
    model.to(torch.bfloat16).save_pretrained(folder)
    return folder
