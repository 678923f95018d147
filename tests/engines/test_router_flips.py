"""The sparse jumps of the tiny DeepSeek between runs are tokens that near-ties in the router send to other experts."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open

from tests.accuracy.flips import JUMP, Layer, layers, tally

from .conftest import Capture, manifest, site, tensors
from .test_sglang import PROMPTS as SGLANG_PROMPTS
from .test_sglang import deepseek as sglang_deepseek  # noqa: F401
from .test_vllm import PROMPTS as VLLM_PROMPTS
from .test_vllm import deepseek as vllm_deepseek  # noqa: F401

pytestmark = pytest.mark.engine

SITES = ("boundary.*", "final_norm", "router_logits.*", "experts.*")
ROUTED = range(1, 8)


@pytest.fixture(scope="session")
def bias_le(tiny_deepseek: Path) -> dict[int, torch.Tensor]:
    with safe_open(tiny_deepseek / "model.safetensors", "pt") as weights:
        name = "model.layers.{}.mlp.gate.e_score_correction_bias"
        return {k: weights.get_tensor(name.format(k)).double() for k in ROUTED}


@pytest.fixture(scope="session", params=["hf", "vllm", "sglang"])
def routed(
    request: pytest.FixtureRequest, capture: Capture, tiny_deepseek: Path, bias_le: dict[int, torch.Tensor]
) -> list[Layer]:
    """Each routed layer of an engine in bfloat16 against Transformers float32 on the same tokens."""
    asked: dict[str, Any] = {"model": tiny_deepseek, "sites": SITES, "generate": 4}
    asked["prompts"] = SGLANG_PROMPTS if request.param == "sglang" else VLLM_PROMPTS
    exact = capture("hf", dtype="float32", **asked)
    if request.param == "hf":
        return layers(capture("hf", **asked), exact, bias_le)
    # The capture that the engine's own tests make.
    return layers(request.getfixturevalue(f"{request.param}_deepseek"), exact, bias_le)


def test_every_jump_is_a_token_with_other_experts(routed: list[Layer]) -> None:
    """A step that is five times further off than the median follows a flip: of the token at that layer or before, or
    of a token that it attends to. Where no flip reaches, nothing comes near; where one is, the step jumps."""
    counted = tally(routed)
    assert 0 < counted.flipped == counted.jumped_flipped
    assert counted.jumped_reached < 0.2 * counted.jumped
    assert counted.jumped_clean == 0
    assert counted.worst_clean < JUMP


def test_flips_are_near_ties_under_ordinary_noise(routed: list[Layer]) -> None:
    """Tokens that flip first have margins a fraction of the usual and router noise like any other token's."""
    counted = tally(routed)
    assert counted.fresh > 0
    assert counted.fresh_margin < 0.1
    assert counted.fresh_noise < 2.0


def steps(model: Any, exact: Path, forced: bool) -> list[torch.Tensor]:
    """Each routed layer's step [N, H] in bfloat16, on the tokens of `exact`; `forced`: with its experts."""
    chosen: dict[int, torch.Tensor] = {}
    states: list[torch.Tensor] = []

    def reroute(layer: int, gate: Any, _: Any, output: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
        logits_ne, _, ids_nk = output
        ids_nk = chosen[layer].to(ids_nk.dtype)
        weight_nk = logits_ne.sigmoid().gather(1, ids_nk)
        weight_nk = weight_nk / (weight_nk.sum(1, keepdim=True) + 1e-20) * gate.routed_scaling_factor
        return logits_ne, weight_nk, ids_nk

    hooks = [model.model.norm.register_forward_pre_hook(lambda _, arguments: states.append(arguments[0][0]))]
    for k in ROUTED:
        decoder = model.model.layers[k]
        hooks.append(decoder.register_forward_pre_hook(lambda _, arguments: states.append(arguments[0][0])))
        if forced:
            hooks.append(decoder.mlp.gate.register_forward_hook(partial(reroute, k)))
    found: list[list[torch.Tensor]] = [[] for _ in ROUTED]
    with torch.inference_mode():
        for prompt in manifest(exact).prompts:
            rows = tensors(exact, prompt.id)
            chosen.update({k: rows[f"experts.{k:03d}"].long() for k in ROUTED})
            states.clear()
            model(rows["token_ids"].long()[None], use_cache=False)
            for into, before_nh, after_nh in zip(found, states, states[1:], strict=False):
                into.append(after_nh.double() - before_nh.double())
    for hook in hooks:
        hook.remove()
    return [torch.cat(parts) for parts in found]


def jumps(found: list[torch.Tensor], exact: Path) -> int:
    """Token-layers whose step is JUMP times further from float32's than the median token's."""
    count = 0
    for k, step_nh in zip(ROUTED, found, strict=True):
        true_nh = site(exact, f"boundary.{k + 1:03d}") - site(exact, f"boundary.{k:03d}")
        error_n = (step_nh - true_nh).norm(dim=1) / true_nh.norm(dim=1)
        count += int((error_n > JUMP * error_n.median()).sum())
    return count


def test_with_the_experts_of_float32_nothing_jumps(capture: Capture, tiny_deepseek: Path) -> None:
    """Transformers in bfloat16 that is handed float32's experts has no jump; left to choose, it has many."""
    from transformers import AutoModelForCausalLM

    exact = capture("hf", model=tiny_deepseek, prompts=VLLM_PROMPTS, sites=SITES, generate=4, dtype="float32")
    model = AutoModelForCausalLM.from_pretrained(tiny_deepseek, dtype=torch.bfloat16).eval()
    assert jumps(steps(model, exact, forced=False), exact) > 5
    assert jumps(steps(model, exact, forced=True), exact) == 0
