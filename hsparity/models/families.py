"""Tiny random checkpoints, one recipe per model family: eight layers, hidden size 256, bfloat16.

Tensor names and config keys are those of published checkpoints, so that each engine's own loader reads them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from .checkpoint import BOS, EOS, Recipe, Weight, bias, linear, norm

LAYERS, HIDDEN, HEADS, KV_HEADS, HEAD = 8, 256, 4, 2, 64
FEED_FORWARD, EXPERT, EXPERTS, EXPERTS_PER_TOKEN = 512, 128, 8, 2
VOCABULARY, POSITIONS = 512, 2048

SHARED: dict[str, Any] = {
    "bos_token_id": BOS,
    "eos_token_id": EOS,
    "dtype": "bfloat16",
    "torch_dtype": "bfloat16",  # what engines older than the key `dtype` read
    "hidden_size": HIDDEN,
    "hidden_act": "silu",
    "intermediate_size": FEED_FORWARD,
    "max_position_embeddings": POSITIONS,
    "num_attention_heads": HEADS,
    "num_hidden_layers": LAYERS,
    "num_key_value_heads": KV_HEADS,
    "rms_norm_eps": 1e-6,
    "rope_theta": 10000.0,
    "tie_word_embeddings": False,
    "use_cache": True,
    "vocab_size": VOCABULARY,
}


def llama() -> Recipe:
    config = {**SHARED, "architectures": ["LlamaForCausalLM"], "model_type": "llama", "head_dim": HEAD}
    config |= {"attention_bias": False, "mlp_bias": False}
    return Recipe("tiny-llama", config, _decoder(lambda p: [*_attention(p), *_mlp(f"{p}.mlp")]))


def qwen2() -> Recipe:
    config = {
        **SHARED,
        "architectures": ["Qwen2ForCausalLM"],
        "model_type": "qwen2",
        "use_sliding_window": False,
    }
    return Recipe("tiny-qwen2", config, _decoder(lambda p: [*_attention(p, biased="qkv"), *_mlp(f"{p}.mlp")]))


def qwen3() -> Recipe:
    config = {**SHARED, "architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "head_dim": HEAD}
    config |= {"attention_bias": False, "use_sliding_window": False}
    return Recipe("tiny-qwen3", config, _decoder(lambda p: [*_attention(p, normed=True), *_mlp(f"{p}.mlp")]))


def qwen3_moe() -> Recipe:
    config = {**SHARED, "architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe", "head_dim": HEAD}
    config |= {
        "attention_bias": False,
        "use_sliding_window": False,
        "decoder_sparse_step": 1,
        "mlp_only_layers": [],
    }
    config |= {
        "num_experts": EXPERTS,
        "num_experts_per_tok": EXPERTS_PER_TOKEN,
        "moe_intermediate_size": EXPERT,
    }
    config |= {"norm_topk_prob": True}

    def layer(prefix: str) -> list[Weight]:
        return [*_attention(prefix, normed=True), *_experts(f"{prefix}.mlp")]

    return Recipe("tiny-qwen3-moe", config, _decoder(layer))


def gpt_oss() -> Recipe:
    yarn = {"rope_type": "yarn", "factor": 2.0, "original_max_position_embeddings": 1024, "beta_fast": 32.0}
    yarn |= {"beta_slow": 1.0, "truncate": False}
    config = {**SHARED, "architectures": ["GptOssForCausalLM"], "model_type": "gpt_oss", "head_dim": HEAD}
    config |= {"attention_bias": True, "sliding_window": 32, "swiglu_limit": 7.0, "rope_scaling": yarn}
    config |= {"layer_types": ["sliding_attention", "full_attention"] * (LAYERS // 2)}
    config |= {"num_local_experts": EXPERTS, "num_experts_per_tok": EXPERTS_PER_TOKEN}
    config |= {"initial_context_length": 1024}

    def layer(prefix: str) -> list[Weight]:
        mlp = f"{prefix}.mlp"
        return [
            *_attention(prefix, biased="qkvo"),
            Weight(f"{prefix}.self_attn.sinks", (HEADS,), 0.5),
            linear(f"{mlp}.router", EXPERTS, HIDDEN),
            bias(f"{mlp}.router", EXPERTS),
            Weight(f"{mlp}.experts.gate_up_proj", (EXPERTS, HIDDEN, 2 * FEED_FORWARD), HIDDEN**-0.5),
            Weight(f"{mlp}.experts.gate_up_proj_bias", (EXPERTS, 2 * FEED_FORWARD), 0.1),
            Weight(f"{mlp}.experts.down_proj", (EXPERTS, FEED_FORWARD, HIDDEN), FEED_FORWARD**-0.5),
            Weight(f"{mlp}.experts.down_proj_bias", (EXPERTS, HIDDEN), 0.1),
        ]

    return Recipe("tiny-gpt-oss", config, _decoder(layer))


def deepseek_v3() -> Recipe:
    config = _deepseek_config(topk_method="noaux_tc", scoring_func="sigmoid")
    config |= {
        "architectures": ["DeepseekV3ForCausalLM"],
        "model_type": "deepseek_v3",
        "num_nextn_predict_layers": 0,
    }
    return Recipe("tiny-deepseek-v3", config, _deepseek_weights(correction=True))


def kimi_k2() -> Recipe:
    """Kimi-K2 publishes DeepSeek-V3's architecture under a model type of its own."""
    recipe = deepseek_v3()
    return Recipe("tiny-kimi-k2", {**recipe.config, "model_type": "kimi_k2"}, recipe.weights)


def deepseek_v2() -> Recipe:
    config = _deepseek_config(topk_method="greedy", scoring_func="softmax")
    config |= {"architectures": ["DeepseekV2ForCausalLM"], "model_type": "deepseek_v2"}
    # As published. Transformers never renormalises the weights in this family; vLLM obeys the key.
    config |= {"norm_topk_prob": False, "aux_loss_alpha": 0.0, "seq_aux": True}
    return Recipe("tiny-deepseek-v2", config, _deepseek_weights(correction=False))


FAMILIES: dict[str, Callable[[], Recipe]] = {
    "deepseek-v2": deepseek_v2,
    "deepseek-v3": deepseek_v3,
    "gpt-oss": gpt_oss,
    "kimi-k2": kimi_k2,
    "llama": llama,
    "qwen2": qwen2,
    "qwen3": qwen3,
    "qwen3-moe": qwen3_moe,
}

# vLLM's MLA accepts only the published head sizes, and SGLang's CPU rope for DeepSeek accepts only yarn.
Q_RANK, KV_RANK, ROPE_HEAD, NOPE_HEAD, VALUE_HEAD = 96, 512, 64, 128, 128


def _deepseek_config(**routing: str) -> dict[str, Any]:
    yarn = {
        "type": "yarn",
        "factor": 2.0,
        "original_max_position_embeddings": 1024,
        "beta_fast": 32,
        "beta_slow": 1,
    }
    yarn |= {"mscale": 1.0, "mscale_all_dim": 1.0}
    config = {
        **SHARED,
        "num_key_value_heads": HEADS,
        "rope_scaling": yarn,
        "attention_bias": False,
        **routing,
    }
    config |= {
        "q_lora_rank": Q_RANK,
        "kv_lora_rank": KV_RANK,
        "qk_rope_head_dim": ROPE_HEAD,
        "v_head_dim": VALUE_HEAD,
    }
    config |= {"qk_nope_head_dim": NOPE_HEAD, "n_group": 1, "topk_group": 1, "norm_topk_prob": True}
    config |= {"n_routed_experts": EXPERTS, "n_shared_experts": 1, "num_experts_per_tok": EXPERTS_PER_TOKEN}
    config |= {"moe_intermediate_size": EXPERT, "first_k_dense_replace": 1, "moe_layer_freq": 1, "ep_size": 1}
    return config | {"routed_scaling_factor": 1.0}


def _deepseek_weights(correction: bool) -> list[Weight]:
    def layer(prefix: str) -> list[Weight]:
        attention, mlp = f"{prefix}.self_attn", f"{prefix}.mlp"
        weights = [
            linear(f"{attention}.q_a_proj", Q_RANK, HIDDEN),
            norm(f"{attention}.q_a_layernorm", Q_RANK),
            linear(f"{attention}.q_b_proj", HEADS * (NOPE_HEAD + ROPE_HEAD), Q_RANK),
            linear(f"{attention}.kv_a_proj_with_mqa", KV_RANK + ROPE_HEAD, HIDDEN),
            norm(f"{attention}.kv_a_layernorm", KV_RANK),
            linear(f"{attention}.kv_b_proj", HEADS * (NOPE_HEAD + VALUE_HEAD), KV_RANK),
            linear(f"{attention}.o_proj", HIDDEN, HEADS * VALUE_HEAD),
        ]
        if prefix == "model.layers.0":
            return [*weights, *_mlp(mlp)]
        if correction:
            weights.append(
                Weight(f"{mlp}.gate.e_score_correction_bias", (EXPERTS,), 0.02, dtype=torch.float32)
            )
        return [*weights, *_experts(mlp), *_mlp(f"{mlp}.shared_experts", EXPERT)]

    return _decoder(layer)


def _decoder(layer: Callable[[str], list[Weight]]) -> list[Weight]:
    weights = [Weight("model.embed_tokens.weight", (VOCABULARY, HIDDEN), 1.0)]
    for index in range(LAYERS):
        prefix = f"model.layers.{index}"
        weights += [
            norm(f"{prefix}.input_layernorm", HIDDEN),
            norm(f"{prefix}.post_attention_layernorm", HIDDEN),
        ]
        weights += layer(prefix)
    return [*weights, norm("model.norm", HIDDEN), linear("lm_head", VOCABULARY, HIDDEN)]


def _attention(prefix: str, biased: str = "", normed: bool = False) -> list[Weight]:
    prefix = f"{prefix}.self_attn"
    width, kv_width = HEADS * HEAD, KV_HEADS * HEAD
    sizes = {"q": (width, HIDDEN), "k": (kv_width, HIDDEN), "v": (kv_width, HIDDEN), "o": (HIDDEN, width)}
    weights = [linear(f"{prefix}.{part}_proj", *size) for part, size in sizes.items()]
    weights += [bias(f"{prefix}.{part}_proj", sizes[part][0]) for part in biased]
    return weights + ([norm(f"{prefix}.q_norm", HEAD), norm(f"{prefix}.k_norm", HEAD)] if normed else [])


def _mlp(prefix: str, width: int = FEED_FORWARD) -> list[Weight]:
    return [
        linear(f"{prefix}.gate_proj", width, HIDDEN),
        linear(f"{prefix}.up_proj", width, HIDDEN),
        linear(f"{prefix}.down_proj", HIDDEN, width),
    ]


def _experts(prefix: str) -> list[Weight]:
    weights = [linear(f"{prefix}.gate", EXPERTS, HIDDEN)]
    for expert in range(EXPERTS):
        weights += _mlp(f"{prefix}.experts.{expert}", EXPERT)
    return weights
