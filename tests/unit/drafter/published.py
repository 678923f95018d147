"""Heads and targets in the shapes that they are published in: full-size configs, and weights that are headers over holes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

SIZES = {"BF16": 2, "I64": 8, "BOOL": 1}

# Targets: hidden_size, num_hidden_layers, vocab_size, max_position_embeddings and the rope of their published config.json.
TARGETS: dict[str, dict[str, Any]] = {
    "Llama-3.1-8B-Instruct": {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": 4096,
        "num_hidden_layers": 32,
        "vocab_size": 128256,
        "max_position_embeddings": 131072,
        "rope_theta": 500000.0,
        "rope_scaling": {"rope_type": "llama3", "factor": 8.0, "original_max_position_embeddings": 8192},
        "torch_dtype": "bfloat16",
    },
    "Qwen3-8B": {
        "architectures": ["Qwen3ForCausalLM"],
        "model_type": "qwen3",
        "hidden_size": 4096,
        "num_hidden_layers": 36,
        "vocab_size": 151936,
        "max_position_embeddings": 40960,
        "rope_theta": 1000000,
        "torch_dtype": "bfloat16",
    },
    "Qwen3-235B-A22B": {
        "architectures": ["Qwen3MoeForCausalLM"],
        "model_type": "qwen3_moe",
        "hidden_size": 4096,
        "num_hidden_layers": 94,
        "vocab_size": 151936,
        "max_position_embeddings": 40960,
        "rope_theta": 1000000.0,
        "torch_dtype": "bfloat16",
    },
    "Qwen3-30B-A3B": {
        "architectures": ["Qwen3MoeForCausalLM"],
        "model_type": "qwen3_moe",
        "hidden_size": 2048,
        "num_hidden_layers": 48,
        "vocab_size": 151936,
        "max_position_embeddings": 40960,
        "rope_theta": 1000000.0,
        "torch_dtype": "bfloat16",
    },
    "Kimi-K2-Instruct": {
        "architectures": ["DeepseekV3ForCausalLM"],
        "model_type": "kimi_k2",
        "hidden_size": 7168,
        "num_hidden_layers": 61,
        "vocab_size": 163840,
        "max_position_embeddings": 131072,
        "rope_theta": 50000.0,
        "rope_scaling": {"type": "yarn", "factor": 32.0},
        "quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]},
        "torch_dtype": "bfloat16",
    },
    "Kimi-K2.5": {
        "architectures": ["KimiK25ForConditionalGeneration"],
        "model_type": "kimi_k25",
        "text_config": {
            "hidden_size": 7168,
            "num_hidden_layers": 61,
            "vocab_size": 163840,
            "max_position_embeddings": 262144,
            "rope_theta": 50000.0,
            "rope_scaling": {"type": "yarn", "factor": 64.0},
        },
        "torch_dtype": "bfloat16",
    },
}

_LLAMA_8B = {
    "attention_bias": False,
    "head_dim": 128,
    "hidden_act": "silu",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "max_position_embeddings": 2048,
    "mlp_bias": False,
    "model_type": "llama",
    "num_attention_heads": 32,
    "num_hidden_layers": 1,
    "num_key_value_heads": 8,
    "rms_norm_eps": 1e-05,
    "rope_scaling": None,
    "rope_theta": 10000.0,
    "vocab_size": 128256,
}


def _speculators(layer: Mapping[str, Any], verifier: str, architecture: str, **more: Any) -> dict[str, Any]:
    return {
        "architectures": ["Eagle3Speculator"],
        "auto_map": {"": "eagle3.Eagle3SpeculatorConfig"},
        "draft_vocab_size": 32000,
        "speculators_config": {
            "algorithm": "eagle3",
            "default_proposal_method": "greedy",
            "proposal_methods": [{"proposal_type": "greedy", "speculative_tokens": 5}],
            "verifier": {"architectures": [architecture], "name_or_path": verifier},
        },
        "speculators_model_type": "eagle3",
        "target_hidden_size": None,
        "transformer_layer_config": dict(layer),
        **more,
    }


# name -> (target, prefix of the layer, config)
HEADS: dict[str, tuple[str, str, dict[str, Any]]] = {
    # The fields of transformer_layer_config of nm-testing/EAGLE3-LLaMA3.1-Instruct-8B-converted, which converts
    # yuhuili/EAGLE3-LLaMA3.1-Instruct-8B, written flat as the original.
    "reference-llama": (
        "Llama-3.1-8B-Instruct",
        "midlayer",
        {"architectures": ["LlamaForCausalLM"], **_LLAMA_8B, "draft_vocab_size": 32000},
    ),
    # RedHatAI/Llama-3.1-8B-Instruct-speculator.eagle3: norm_before_residual true, speculators_version 0.2.0.dev11.
    "redhat-llama": (
        "Llama-3.1-8B-Instruct",
        "layers.0",
        _speculators(
            _LLAMA_8B,
            "meta-llama/Llama-3.1-8B-Instruct",
            "LlamaForCausalLM",
            norm_before_residual=True,
            speculators_version="0.2.0.dev11",
        ),
    ),
    # RedHatAI/Qwen3-8B-Thinking-speculator.eagle3, by the card of its raw-eagle3 mirror: ids null, norm_before_residual
    # true, rope_theta 10000 beside a target of a million.
    "redhat-qwen3": (
        "Qwen3-8B",
        "layers.0",
        _speculators(
            {**_LLAMA_8B, "vocab_size": 151936, "intermediate_size": 12288, "max_position_embeddings": 40960},
            "Qwen/Qwen3-8B",
            "Qwen3ForCausalLM",
            norm_before_residual=True,
            eagle_aux_hidden_state_layer_ids=None,
            speculators_version="0.2.0.dev11",
        ),
    ),
    # configs/qwen3-235B-A22B-eagle3.json of SpecForge, the shape of lmsys/Qwen3-235B-A22B-EAGLE3.
    "specforge-qwen3-235b": (
        "Qwen3-235B-A22B",
        "midlayer",
        {
            "architectures": ["LlamaForCausalLMEagle3"],
            "eagle_config": {"eagle_aux_hidden_state_layer_ids": [1, 46, 90], "use_aux_hidden_state": True},
            "attention_bias": False,
            "draft_vocab_size": 32000,
            "head_dim": 128,
            "hidden_size": 4096,
            "intermediate_size": 24576,
            "max_position_embeddings": 40960,
            "model_type": "llama",
            "num_attention_heads": 64,
            "num_hidden_layers": 1,
            "num_key_value_heads": 4,
            "rms_norm_eps": 1e-06,
            "rope_theta": 1000000.0,
            "rope_scaling": None,
            "tie_word_embeddings": False,
            "torch_dtype": "bfloat16",
            "vocab_size": 151936,
        },
    ),
    # configs/kimi-k2-eagle3.json of SpecForge, the shape of AQ-MedAI/Kimi-K2-Instruct-eagle3.
    "specforge-kimi-k2": (
        "Kimi-K2-Instruct",
        "midlayer",
        {
            "architectures": ["LlamaForCausalLMEagle3"],
            "eagle_config": {"eagle_aux_hidden_state_layer_ids": [2, 30, 58], "use_aux_hidden_state": True},
            "attention_bias": False,
            "head_dim": 128,
            "hidden_size": 7168,
            "intermediate_size": 18432,
            "max_position_embeddings": 131072,
            "model_type": "kimi_k2",
            "num_attention_heads": 64,
            "num_hidden_layers": 1,
            "num_key_value_heads": 64,
            "rms_norm_eps": 1e-06,
            "rope_scaling": None,
            "rope_theta": 1000000.0,
            "tie_word_embeddings": False,
            "torch_dtype": "bfloat16",
            "vocab_size": 163840,
            "draft_vocab_size": 32000,
        },
    ),
    # configs/qwen3-30B-A3B-eagle3.1.json of SpecForge.
    "specforge-qwen3-30b-3.1": (
        "Qwen3-30B-A3B",
        "midlayer",
        {
            "architectures": ["LlamaForCausalLMEagle3"],
            "attention_bias": False,
            "fc_norm": True,
            "head_dim": 128,
            "hidden_size": 2048,
            "intermediate_size": 12288,
            "max_position_embeddings": 2048,
            "model_type": "llama",
            "norm_output": True,
            "num_attention_heads": 32,
            "num_hidden_layers": 1,
            "num_key_value_heads": 4,
            "rms_norm_eps": 1e-06,
            "rope_scaling": None,
            "rope_theta": 1000000.0,
            "tie_word_embeddings": False,
            "torch_dtype": "bfloat16",
            "vocab_size": 151936,
            "draft_vocab_size": 32000,
        },
    ),
    # lightseekorg/kimi-k2.5-eagle3-mla: MLA with the ranks of Kimi-K2, an unpruned vocabulary, no d2t.
    "mla-kimi-k2.5": (
        "Kimi-K2.5",
        "layers.0",
        {
            "architectures": ["Eagle3DeepseekV2ForCausalLM"],
            "hidden_size": 7168,
            "intermediate_size": 18432,
            "kv_lora_rank": 512,
            "max_position_embeddings": 262144,
            "model_type": "deepseek_v3",
            "num_attention_heads": 64,
            "num_hidden_layers": 1,
            "q_lora_rank": 1536,
            "qk_nope_head_dim": 128,
            "qk_rope_head_dim": 64,
            "v_head_dim": 128,
            "rms_norm_eps": 1e-06,
            "rope_theta": 50000.0,
            "rope_scaling": {"type": "yarn", "factor": 64.0},
            "tie_word_embeddings": False,
            "torch_dtype": "bfloat16",
            "vocab_size": 163840,
            "draft_vocab_size": 163840,
        },
    ),
}


def publish(folder: Path, name: str) -> tuple[Path, Path]:
    """(head, target) of one of HEADS. The target is its config alone; weights are holes, but for t2d."""
    target_name, prefix, config = HEADS[name]
    target = folder / target_name
    target.mkdir(parents=True)
    (target / "config.json").write_text(json.dumps(TARGETS[target_name]))
    head = folder / name
    head.mkdir()
    (head / "config.json").write_text(json.dumps(config))
    layer = config.get("transformer_layer_config", config)
    _write(head / "model.safetensors", _tensors(config, layer, prefix))
    return head, target


def _tensors(
    config: Mapping[str, Any], layer: Mapping[str, Any], prefix: str
) -> dict[str, tuple[str, tuple[int, ...]]]:
    size, inner, vocab = layer["hidden_size"], layer["intermediate_size"], layer["vocab_size"]
    pruned = config["draft_vocab_size"]
    heads = layer["num_attention_heads"]
    if "kv_lora_rank" in layer:
        rank, turned = layer["kv_lora_rank"], layer["qk_rope_head_dim"]
        plain, values, queries = layer["qk_nope_head_dim"], layer["v_head_dim"], layer["q_lora_rank"]
        attention: dict[str, tuple[int, ...]] = {
            "q_a_proj": (queries, 2 * size),
            "q_a_layernorm": (queries,),
            "q_b_proj": (heads * (plain + turned), queries),
            "kv_a_proj_with_mqa": (rank + turned, 2 * size),
            "kv_a_layernorm": (rank,),
            "kv_b_proj": (heads * (plain + values), rank),
            "o_proj": (size, heads * values),
        }
    else:
        width, few = heads * layer["head_dim"], layer["num_key_value_heads"] * layer["head_dim"]
        attention = {
            "q_proj": (width, 2 * size),
            "k_proj": (few, 2 * size),
            "v_proj": (few, 2 * size),
            "o_proj": (size, width),
        }
    shapes: dict[str, tuple[int, ...]] = {
        **{f"{prefix}.self_attn.{n}.weight": s for n, s in attention.items()},
        **{f"{prefix}.mlp.{n}_proj.weight": (inner, size) for n in ("gate", "up")},
        f"{prefix}.mlp.down_proj.weight": (size, inner),
        **{
            f"{prefix}.{n}.weight": (size,)
            for n in ("input_layernorm", "post_attention_layernorm", "hidden_norm")
        },
        "fc.weight": (size, 3 * size),
        "norm.weight": (size,),
        "embed_tokens.weight": (vocab, size),
        "lm_head.weight": (pruned, size),
        **({f"fc_norm.{i}.weight": (size,) for i in range(3)} if config.get("fc_norm") else {}),
    }
    made = {n: ("BF16", s) for n, s in shapes.items()}
    return made | ({"d2t": ("I64", (pruned,)), "t2d": ("BOOL", (vocab,))} if pruned < vocab else {})


def _write(path: Path, tensors: Mapping[str, tuple[str, tuple[int, ...]]]) -> None:
    """A safetensors file of holes: zeros that take no room. t2d marks the first tokens, which is what a d2t of zeros says."""
    header, at, marks = {}, 0, (0, 0)
    for name, (dtype, shape) in tensors.items():
        count = 1
        for n in shape:
            count *= n
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [at, at + count * SIZES[dtype]]}
        if name == "t2d":
            marks = (at, tensors["d2t"][1][0])
        at += count * SIZES[dtype]
    raw = json.dumps(header).encode()
    with path.open("wb") as file:
        file.write(len(raw).to_bytes(8, "little") + raw)
        file.truncate(8 + len(raw) + at)
        file.seek(8 + len(raw) + marks[0])
        file.write(b"\1" * marks[1])
