"""Faults in a running SGLang, planted by its own `forward_hooks` in the process that holds the model."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from tests.engines.faults.planted_cases import Planted

PLANTED = (
    Planted(
        "sglang-layer-weights", "deepseek", "noisy_linear", (1e-1,), 1e-1,
        "layer-weights", (), (5,), ("attention",), "SGLang: noise of {s} of its norm on o_proj of layer 5",
        layer=5,
    ),
    Planted(
        "sglang-shared-experts", "deepseek", "scaled_output", (0.0,), 0.0,
        "moe-scale", ("layer-weights",), (3,), ("mlp",), "SGLang: shared experts of layer 3 times {s}",
        layer=3, seen=0.0,
    ),
)  # fmt: skip
MODULES = {"noisy_linear": "self_attn.o_proj", "scaled_output": "mlp.shared_experts"}


def arguments(planted: Planted, severity: float) -> dict[str, Any]:
    """sglang.Engine's arguments that plant it."""
    hook = {
        "name": "fault",
        "target_modules": [f"model.layers.{planted.layer}.{MODULES[planted.fault]}"],
        "hook_factory": f"{__name__}:{planted.fault}",
        "config": {"severity": severity},
    }
    return {"forward_hooks": [hook]}


def noisy_linear(config: dict[str, Any]) -> Callable[..., Any]:
    """What the linear layer would give with noise on its weight."""
    noise_oi: list[torch.Tensor] = []

    def hook(module: Any, args: Any, output: Any) -> Any:
        result, *rest = output
        if not noise_oi:
            drawn = torch.randn(module.weight.shape, generator=torch.Generator().manual_seed(11))
            drawn *= config["severity"] * module.weight.float().norm() / drawn.norm()
            noise_oi.append(drawn)
        added = args[0].float() @ noise_oi[0].T
        return ((result.float() + added).to(result.dtype), *rest)

    return hook


def scaled_output(config: dict[str, Any]) -> Callable[..., Any]:
    return lambda module, args, output: output * config["severity"]
