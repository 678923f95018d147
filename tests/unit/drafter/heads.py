"""Tiny random EAGLE-3 heads in each layout that they are published in, and a target for them."""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

# layout -> (architecture, prefix of the first decoder layer)
LAYOUTS = {
    "speculators": ("Eagle3Speculator", "layers.0"),
    "midlayer": ("LlamaForCausalLMEagle3", "midlayer"),
    "layers.0": ("Eagle3LlamaForCausalLM", "layers.0"),
    "eagle": ("LlamaForCausalLMEagle3", "midlayer"),  # the reference's: pytorch_model.bin, no embedding
}
MLA = "Eagle3DeepseekV2ForCausalLM"
RANKS = {
    "q_lora_rank": 24,
    "kv_lora_rank": 16,
    "qk_nope_head_dim": 8,
    "qk_rope_head_dim": 8,
    "v_head_dim": 12,
}
IDS = {1: (3,), 3: (2, 4, 5)}


def make_head(
    folder: Path,
    layout: str = "midlayer",
    hidden: int = 64,
    vocab: int = 320,
    draft_vocab: int = 96,
    slots: int = 3,
    *,
    target_hidden: int | None = None,
    heads: int = 4,
    kv_heads: int = 2,
    head_dim: int = 16,
    intermediate: int = 96,
    layers: int = 1,
    mla: bool = False,
    ranks: Mapping[str, int] = RANKS,
    ids: Sequence[int] | None = None,
    norm_before_fc: bool = False,
    fc_norm: bool = False,
    norm_before_residual: bool = False,
    norm_output: bool = False,
    use_aux_hidden_state: bool | None = None,
    attention_bias: bool = False,
    qk_norm: bool = False,
    rope: Mapping[str, Any] | None = None,
    rope_theta: float = 10000.0,
    logit_scale: float | None = None,
    embedding: bool | None = None,
    lm_head: bool = True,
    tied: bool = False,
    d2t: str = "offset",
    t2d: bool = True,
    verifier: Path | None = None,
    dtype: torch.dtype = torch.float32,
    seed: int = 0,
    drop: Sequence[str] = (),
    config: Mapping[str, Any] | None = None,
) -> Path:
    """A head with random weights. `embedding`: whether it holds its own (by default all but "eagle" do). `d2t`:
    "offset", "absolute" or "none"; a draft vocabulary of `vocab` is not pruned and has neither map. `drop` leaves out
    tensors by the end of their name; `config` replaces config keys (None removes one)."""
    folder.mkdir(parents=True, exist_ok=True)
    width = target_hidden or hidden
    shape = _Shape(hidden, heads, kv_heads, head_dim, intermediate, attention_bias, qk_norm, ranks)
    random = _Random(seed, dtype)
    tensors: dict[str, torch.Tensor] = {}
    for index in range(layers):
        prefix = LAYOUTS[layout][1] if index == 0 else f"layers.{index}"
        layer = random.mla(shape, index) if mla else random.llama(shape, index)
        tensors |= {f"{prefix}.{name}": value for name, value in layer.items()}
    tensors["fc.weight"] = random.linear("fc", hidden, slots * width)
    tensors["norm.weight"] = random.norm("norm", hidden)
    if norm_before_fc:
        tensors["input_norm.weight"] = random.norm("input_norm", slots * width)
    if fc_norm:
        tensors |= {f"fc_norm.{slot}.weight": random.norm(f"fc_norm.{slot}", width) for slot in range(slots)}
    if embedding if embedding is not None else layout != "eagle":
        tensors["embed_tokens.weight"] = random.embedding("embed_tokens", vocab, hidden)
    if lm_head:
        tensors["lm_head.weight"] = random.linear("lm_head", draft_vocab, hidden)
    if draft_vocab != vocab and d2t != "none":
        targets = draftable(vocab, draft_vocab)
        tensors["d2t"] = targets if d2t == "absolute" else targets - torch.arange(draft_vocab)
        if t2d:
            tensors["t2d"] = torch.zeros(vocab, dtype=torch.bool).index_fill(0, targets, True)
    tensors = {n: t.contiguous() for n, t in tensors.items() if not n.endswith(tuple(drop) or ("\0",))}

    layer_config = {
        "model_type": "deepseek_v3" if mla else "qwen3" if qk_norm else "llama",
        "hidden_size": hidden,
        "intermediate_size": intermediate,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": heads if mla else kv_heads,
        "vocab_size": vocab,
        "max_position_embeddings": 2048,
        "rms_norm_eps": 1e-5,
        "hidden_act": "silu",
        "attention_bias": attention_bias,
        "tie_word_embeddings": tied,
        "rope_theta": rope_theta,
        "rope_scaling": dict(rope) if rope else None,
        **(ranks if mla else {"head_dim": head_dim}),
    }
    wanted = list(IDS.get(slots, range(1, slots + 1)) if ids is None else ids)
    flags = {
        "norm_before_fc": norm_before_fc,
        "fc_norm": fc_norm,
        "norm_before_residual": norm_before_residual,
        "norm_output": norm_output,
    }
    more: dict[str, Any] = {"target_hidden_size": target_hidden, "logit_scale": logit_scale}
    made = _config(
        layout,
        layer_config,
        wanted,
        flags,
        draft_vocab,
        str(verifier) if verifier else None,
        use_aux_hidden_state,
    )
    if mla:
        made["architectures"] = [MLA]
    made |= {name: value for name, value in more.items() if value is not None}
    made |= config or {}
    if layout == "speculators":
        layer_config |= {k: v for k, v in (config or {}).items() if k in layer_config}
    made = {name: value for name, value in made.items() if value is not None or name not in (config or {})}
    (folder / "config.json").write_text(json.dumps(made, indent=2))
    if layout == "eagle":
        torch.save(tensors, folder / "pytorch_model.bin")
    else:
        save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def draftable(vocab: int, draft_vocab: int) -> torch.Tensor:
    """Target ids that a pruned head of make_head drafts, int64 ascending [draft_vocab]: no plain prefix."""
    generator = torch.Generator().manual_seed(vocab * 100003 + draft_vocab)
    return torch.randperm(vocab, generator=generator)[:draft_vocab].sort().values


def make_target(
    folder: Path, hidden: int = 64, vocab: int = 320, layers: int = 6, tied: bool = False, seed: int = 1
) -> Path:
    """A tiny random Llama checkpoint without a tokenizer."""
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        hidden_size=hidden,
        intermediate_size=2 * hidden,
        num_hidden_layers=layers,
        num_attention_heads=4,
        num_key_value_heads=2,
        vocab_size=vocab,
        max_position_embeddings=2048,
        tie_word_embeddings=tied,
        initializer_range=0.15,
        bos_token_id=1,
        eos_token_id=2,
    )
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        LlamaForCausalLM(config).save_pretrained(folder)
    return folder


def _config(
    layout: str,
    layer: dict[str, Any],
    ids: list[int],
    flags: dict[str, bool],
    draft_vocab: int,
    verifier: str | None,
    use_aux: bool | None,
) -> dict[str, Any]:
    architecture = [LAYOUTS[layout][0]]
    if layout == "speculators":
        return {
            "architectures": architecture,
            "speculators_model_type": "eagle3",
            "speculators_version": "0.5.0",
            "speculators_config": {
                "algorithm": "eagle3",
                "default_proposal_method": "greedy",
                "proposal_methods": [{"proposal_type": "greedy", "speculative_tokens": 3}],
                "verifier": {"name_or_path": verifier, "architectures": ["LlamaForCausalLM"]},
            },
            "transformer_layer_config": layer,
            "draft_vocab_size": draft_vocab,
            "eagle_aux_hidden_state_layer_ids": ids,
            "embed_requires_grad": False,
            "tie_word_embeddings": layer["tie_word_embeddings"],
            **flags,
        }
    nested: dict[str, Any] = {"eagle_aux_hidden_state_layer_ids": ids}
    if use_aux is not None:
        nested["use_aux_hidden_state"] = use_aux
    return {
        "architectures": architecture,
        **layer,
        "draft_vocab_size": draft_vocab,
        "eagle_config": nested,
        **{name: value for name, value in flags.items() if value},
    }


@dataclass(frozen=True)
class _Shape:
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    inner: int
    bias: bool
    qk_norm: bool
    ranks: Mapping[str, int]


class _Random:
    """Weights whose outputs are of size one, so that no part of a layer is lost beside another. A tensor's numbers depend
    on its name alone: a flag changes nothing but what it adds."""

    def __init__(self, seed: int, dtype: torch.dtype) -> None:
        self.seed, self.dtype = seed, dtype

    def normal(self, name: str, *shape: int) -> torch.Tensor:
        generator = torch.Generator().manual_seed(zlib.crc32(f"{self.seed} {name}".encode()))
        return torch.randn(*shape, generator=generator)

    def linear(self, name: str, out: int, width: int, gain: float = 1.0) -> torch.Tensor:
        return (gain * self.normal(name, out, width) / width**0.5).to(self.dtype)

    def norm(self, name: str, width: int) -> torch.Tensor:
        return (1 + 0.3 * self.normal(name, width)).to(self.dtype)

    def embedding(self, name: str, rows: int, width: int) -> torch.Tensor:
        return self.normal(name, rows, width).to(self.dtype)

    def llama(self, shape: _Shape, index: int) -> dict[str, torch.Tensor]:
        width = shape.hidden * (2 if index == 0 else 1)
        q, kv = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
        sizes = {"q": (q, width), "k": (kv, width), "v": (kv, width), "o": (shape.hidden, q)}
        at = f"{index}.self_attn"
        made = {
            # Queries twice as long: attention sharp enough for positions to matter.
            f"self_attn.{n}_proj.weight": self.linear(f"{at}.{n}", *size, gain=2.0 if n == "q" else 1.0)
            for n, size in sizes.items()
        }
        if shape.bias:
            made |= {
                f"self_attn.{n}_proj.bias": (0.3 * self.normal(f"{at}.{n}.bias", size[0])).to(self.dtype)
                for n, size in sizes.items()
            }
        if shape.qk_norm:
            made |= {f"self_attn.{n}_norm.weight": self.norm(f"{at}.{n}_norm", shape.head_dim) for n in "qk"}
        return made | self._rest(shape, index)

    def mla(self, shape: _Shape, index: int) -> dict[str, torch.Tensor]:
        width = shape.hidden * (2 if index == 0 else 1)
        rope, nope, v = (shape.ranks[n] for n in ("qk_rope_head_dim", "qk_nope_head_dim", "v_head_dim"))
        query, latent = shape.ranks["q_lora_rank"], shape.ranks["kv_lora_rank"]
        sizes = {
            "q_a_proj": (query, width),
            "q_b_proj": (shape.heads * (nope + rope), query),
            "kv_a_proj_with_mqa": (latent + rope, width),
            "kv_b_proj": (shape.heads * (nope + v), latent),
            "o_proj": (shape.hidden, shape.heads * v),
        }
        at = f"{index}.self_attn"
        made = {
            f"self_attn.{n}.weight": self.linear(f"{at}.{n}", *size, gain=2.0 if n == "q_b_proj" else 1.0)
            for n, size in sizes.items()
        }
        made["self_attn.q_a_layernorm.weight"] = self.norm(f"{at}.q_a_norm", query)
        made["self_attn.kv_a_layernorm.weight"] = self.norm(f"{at}.kv_a_norm", latent)
        return made | self._rest(shape, index)

    def _rest(self, shape: _Shape, index: int) -> dict[str, torch.Tensor]:
        norms = ["input_layernorm", "post_attention_layernorm", *(["hidden_norm"] if index == 0 else [])]
        return {
            "mlp.gate_proj.weight": self.linear(f"{index}.gate", shape.inner, shape.hidden),
            "mlp.up_proj.weight": self.linear(f"{index}.up", shape.inner, shape.hidden),
            "mlp.down_proj.weight": self.linear(f"{index}.down", shape.hidden, shape.inner),
            **{f"{name}.weight": self.norm(f"{index}.{name}", shape.hidden) for name in norms},
        }
