"""What identifies a model: a digest of its weights and the config keys that change hidden states."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from .schema import canonical_sha256
from .writer import file_sha256

HASH_BYTES = 20 * 2**30  # above it the digest is skipped: ten seconds at 2 GB/s
CONFIG_KEYS = (
    "architectures",
    "model_type",
    "num_hidden_layers",
    "hidden_size",
    "intermediate_size",
    "num_attention_heads",
    "num_key_value_heads",
    "head_dim",
    "vocab_size",
    "tie_word_embeddings",
    "hidden_act",
    "rms_norm_eps",
    "sliding_window",
    "layer_types",
    "attention_bias",
    "quantization_config",
    "dtype",
    "torch_dtype",
    "n_routed_experts",
    "num_experts",
    "num_local_experts",
    "num_experts_per_tok",
    "n_shared_experts",
    "first_k_dense_replace",
    "moe_intermediate_size",
    "n_group",
    "topk_group",
    "norm_topk_prob",
    "scoring_func",
    "topk_method",
    "q_lora_rank",
    "kv_lora_rank",
    "qk_nope_head_dim",
    "qk_rope_head_dim",
    "v_head_dim",
    "final_logit_softcapping",
    "attn_logit_softcapping",
    "query_pre_attn_scalar",
)
CONFIG_MARKS = (
    "rope_",
    "scal",
    "multiplier",
)  # rope_theta, rope_scaling, routed_scaling_factor, residual_multiplier
EMBEDDING_KEYS = ("embedding_multiplier", "scale_emb", "mup_embedding_multiplier", "embedding_scale")


def weights_sha256(model: str) -> tuple[str, str]:
    """SHA-256 over the sorted safetensors digests of a local model folder, and why it is "" where it is."""
    folder = Path(model)
    if not folder.is_dir():
        return "", f"weights not hashed: {model} is not a local folder"
    files = sorted(folder.glob("*.safetensors"))
    if not files:
        return "", f"weights not hashed: {model} holds no safetensors files"
    size = sum(path.stat().st_size for path in files)
    if size > HASH_BYTES:
        return "", f"weights not hashed: {size / 2**30:.0f} GiB is over {HASH_BYTES // 2**30} GiB"
    return canonical_sha256(sorted(file_sha256(path) for path in files)), ""


def model_config(config: Any) -> dict[str, Any]:
    """What matters to a comparison in a Hugging Face config object, dict or model folder, as JSON values.

    A multimodal config gives its text part with the outer architectures; a path without config.json gives {}.
    """
    if isinstance(config, (str, Path)):
        path = Path(config) / "config.json"
        config = json.loads(path.read_text()) if path.is_file() else {}
    raw: Mapping[str, Any] = config if isinstance(config, Mapping) else config.to_dict()
    text: Mapping[str, Any] = next(
        (raw[k] for k in ("text_config", "llm_config") if isinstance(raw.get(k), Mapping)), {}
    )
    merged = {**raw, **text, "architectures": raw.get("architectures") or text.get("architectures")}
    kept = {k: v for k, v in merged.items() if k in CONFIG_KEYS or any(mark in k for mark in CONFIG_MARKS)}
    plain: dict[str, Any] = json.loads(json.dumps(kept, default=str, sort_keys=True))
    return {k: v for k, v in plain.items() if v is not None}


def embedding_multipliers(config: Mapping[str, Any], hidden_size: int) -> tuple[float, ...]:
    """What a model of this config may scale its embedding by: 1, the config's factor, Gemma's sqrt(H)."""
    named = [float(config[k]) for k in EMBEDDING_KEYS if isinstance(config.get(k), (int, float))]
    if "gemma" in str(config.get("model_type", "")):
        root = math.sqrt(hidden_size)
        named += [root, float(torch.tensor(root).bfloat16())]  # engines keep the factor in the model's dtype
    return (1.0, *named)
