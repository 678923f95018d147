"""A head's chain the slow way: one start at a time, each step over the whole sequence again, Transformers' own attention."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch.nn import functional as F


class Oracle:
    """Reads a head's files itself. `flags` stand for what its config says."""

    def __init__(self, folder: Path, target: Path) -> None:
        self.config: dict[str, Any] = json.loads((folder / "config.json").read_text())
        self.layer: dict[str, Any] = self.config.get("transformer_layer_config", self.config)
        weights = folder / "model.safetensors"
        held = load_file(weights) if weights.is_file() else torch.load(folder / "pytorch_model.bin")
        self.tensors = {n.replace("midlayer.", "layers.0."): t.float() for n, t in held.items()}
        lent = load_file(target / "model.safetensors")
        self.embedding = self.tensors.get("embed_tokens.weight", lent["model.embed_tokens.weight"].float())
        self.eps = self.layer["rms_norm_eps"]
        self.attention = [self._attention(i) for i in range(self.layer["num_hidden_layers"])]

    def run(self, fed_tk: torch.Tensor, token_ids: torch.Tensor, start: int, steps: int) -> torch.Tensor:
        """Normed states [steps, H] of the chain that starts at a row."""
        inputs = list(self._combine(fed_tk[: start + 1]))
        made = []
        for step in range(1, steps + 1):
            embedded = self.embedding[token_ids[1 : start + step + 1]]
            state = self._layers(torch.stack(inputs), embedded)[-1]
            normed = self._norm(state, "norm")
            made.append(normed)
            inputs.append(normed if self.config.get("norm_output") else state)
        return torch.stack(made)

    def _combine(self, fed: torch.Tensor) -> torch.Tensor:
        if self.config.get("norm_before_fc"):
            fed = self._norm(fed, "input_norm")
        if self.config.get("fc_norm"):
            slots = len([n for n in self.tensors if n.startswith("fc_norm.")])
            fed = torch.cat([self._norm(p, f"fc_norm.{i}") for i, p in enumerate(fed.chunk(slots, -1))], -1)
        return fed @ self.tensors["fc.weight"].T

    def _layers(self, state: torch.Tensor, embedded: torch.Tensor) -> torch.Tensor:
        count = len(state)
        mask = torch.full((count, count), -torch.inf).triu(1)
        for index, (attention, rotary) in enumerate(self.attention):
            name = f"layers.{index}"
            if index == 0:
                normed = self._norm(state, f"{name}.hidden_norm")
                entering = torch.cat([self._norm(embedded, f"{name}.input_layernorm"), normed], -1)
                state = normed if self.config.get("norm_before_residual") else state
            else:
                entering = self._norm(state, f"{name}.input_layernorm")
            where = rotary(entering[None], torch.arange(count)[None])
            seen = mask
            if window := self._window(index):
                seen = mask + torch.full((count, count), -torch.inf).tril(-window)
            state = (
                state
                + attention(
                    hidden_states=entering[None], position_embeddings=where, attention_mask=seen[None, None]
                )[0][0]
            )
            after = self._norm(state, f"{name}.post_attention_layernorm")
            gate, up, down = (self.tensors[f"{name}.mlp.{n}_proj.weight"] for n in ("gate", "up", "down"))
            state = state + (F.silu(after @ gate.T) * (after @ up.T)) @ down.T
        return state

    def _window(self, index: int) -> int:
        kinds = self.layer.get("layer_types")
        return self.layer["sliding_window"] if kinds and kinds[index] == "sliding_attention" else 0

    def _norm(self, states: torch.Tensor, name: str) -> torch.Tensor:
        return F.rms_norm(states, states.shape[-1:], self.tensors[f"{name}.weight"], self.eps)

    def _attention(self, index: int) -> tuple[Any, Any]:
        from transformers import AutoConfig
        from transformers.models.deepseek_v3 import modeling_deepseek_v3 as deepseek
        from transformers.models.llama import modeling_llama as llama
        from transformers.models.qwen3 import modeling_qwen3 as qwen3

        kind = self.layer["model_type"]
        config = AutoConfig.for_model(kind, **{k: v for k, v in self.layer.items() if k != "model_type"})
        config._attn_implementation = "eager"
        classes = {
            "llama": (llama.LlamaAttention, llama.LlamaRotaryEmbedding),
            "qwen3": (qwen3.Qwen3Attention, qwen3.Qwen3RotaryEmbedding),
            "deepseek_v3": (deepseek.DeepseekV3Attention, deepseek.DeepseekV3RotaryEmbedding),
        }[kind]
        module = classes[0](config, index)
        prefix = f"layers.{index}.self_attn."
        for name, value in self.tensors.items():
            if name.startswith(prefix):
                owner, _, last = name.removeprefix(prefix).rpartition(".")
                setattr(module.get_submodule(owner), last, torch.nn.Parameter(value))
        return module.eval(), classes[1](config)
