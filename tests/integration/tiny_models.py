"""Tiny random models, saved as real checkpoints, and specs that capture them."""

from __future__ import annotations

from pathlib import Path

import torch

from hsprobe.schema import CaptureSpec, PromptSpec

VOCABULARY, LAYERS, HIDDEN = 128, 4, 64


def save_llama(folder: Path) -> Path:
    """A 4-layer Llama with weights large enough that neighbouring boundaries differ plainly."""
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=VOCABULARY, hidden_size=HIDDEN, intermediate_size=96, num_hidden_layers=LAYERS,
        num_attention_heads=4, num_key_value_heads=2, initializer_range=0.2, pad_token_id=0,
    )  # fmt: skip
    return _save(LlamaForCausalLM(config), folder)


def save_moe(folder: Path) -> Path:
    """A 4-layer Qwen3-MoE, 8 experts of which 2 are chosen; layer 0 is dense."""
    from transformers import Qwen3MoeConfig, Qwen3MoeForCausalLM

    torch.manual_seed(0)
    config = Qwen3MoeConfig(
        vocab_size=VOCABULARY, hidden_size=HIDDEN, intermediate_size=96, num_hidden_layers=LAYERS,
        num_attention_heads=4, num_key_value_heads=2, head_dim=16, moe_intermediate_size=48, num_experts=8,
        num_experts_per_tok=2, mlp_only_layers=[0], initializer_range=0.2,
    )  # fmt: skip
    return _save(Qwen3MoeForCausalLM(config), folder)


def save_gemma(folder: Path) -> Path:
    """A 4-layer Gemma 2: scaled embedding, (1 + w) norms, norms behind the branches."""
    from transformers import Gemma2Config, Gemma2ForCausalLM

    torch.manual_seed(0)
    config = Gemma2Config(
        vocab_size=VOCABULARY, hidden_size=HIDDEN, intermediate_size=96, num_hidden_layers=LAYERS,
        num_attention_heads=4, num_key_value_heads=2, head_dim=16, initializer_range=0.2,
    )  # fmt: skip
    return _save(Gemma2ForCausalLM(config), folder)


def make_spec(model: Path, prompts: int = 3, tokens: int = 20, **changes: object) -> CaptureSpec:
    """Prompts of growing length whose ids include the pad token, captured in float32 unless said."""
    specs = tuple(
        PromptSpec(f"p{i}", tuple((7 * i + 5 * t) % VOCABULARY for t in range(tokens + i)))
        for i in range(prompts)
    )
    settings: dict[str, object] = {"sites": ("boundary.*", "final_norm"), "dtype": "float32", **changes}
    return CaptureSpec("hf", str(model), specs, **settings)  # type: ignore[arg-type]


def _save(model: torch.nn.Module, folder: Path) -> Path:
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "norm" in name:
                parameter.add_(0.2 * torch.randn_like(parameter))
    model.save_pretrained(folder)  # type: ignore[operator]
    return folder
