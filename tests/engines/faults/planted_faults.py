"""Faults for a model that vLLM has loaded on a CPU: each is a context that plants it and takes it out again."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open

EXPERT = 3


@dataclass(frozen=True)
class Live:
    """A loaded model: the runner that holds it, its decoder layers, its checkpoint's folder."""

    runner: Any
    layers: list[Any]
    checkpoint: Path


@contextmanager
def attribute(owner: Any, name: str, value: Any) -> Iterator[None]:
    """`owner.name` is `value` inside."""
    before = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, before)


@contextmanager
def contents(tensor: torch.Tensor, value: torch.Tensor) -> Iterator[None]:
    """`tensor` holds `value` inside, in its own memory."""
    before = tensor.clone()
    tensor.copy_(value)
    try:
        yield
    finally:
        tensor.copy_(before)


@contextmanager
def all_of(contexts: Sequence[AbstractContextManager[None]]) -> Iterator[None]:
    with ExitStack() as stack:
        for context in contexts:
            stack.enter_context(context)
        yield


def _ropes(live: Live) -> list[Any]:
    """The rotary embeddings: layers share them. MLA holds its own inside a wrapper."""
    found = (m for layer in live.layers for m in layer.self_attn.modules() if hasattr(m, "cos_sin_cache"))
    return list({id(m): m for m in found}.values())


def _kernels(live: Live) -> list[tuple[Any, Any]]:
    """(attention layer, its implementation) per decoder layer."""
    found = [m for layer in live.layers for m in layer.self_attn.modules() if hasattr(m, "impl")]
    assert len(found) == len(live.layers)
    return [(m, m.impl) for m in found]


def rope_theta(live: Live, severity: float, layer: int) -> AbstractContextManager[None]:
    contexts = []
    for rope in _ropes(live):
        with attribute(rope, "base", rope.base * severity):
            other = rope._compute_cos_sin_cache()
        contexts.append(contents(rope.cos_sin_cache, other.to(rope.cos_sin_cache.dtype)))
    return all_of(contexts)


def rope_mscale(live: Live, severity: float, layer: int) -> AbstractContextManager[None]:
    return all_of([contents(r.cos_sin_cache, r.cos_sin_cache * severity) for r in _ropes(live)])


def softmax_scale(live: Live, severity: float, layer: int) -> AbstractContextManager[None]:
    kernels = [impl for _, impl in _kernels(live)]
    # MLA's prefill goes through another kernel, of which the plan of each pass holds its own.
    plans = [backend for b in _builders(live) if (backend := getattr(b, "_prefill_backend", None))]
    return all_of([attribute(owner, "scale", owner.scale * severity) for owner in (*kernels, *plans)])


def _builders(live: Live) -> list[Any]:
    """What makes the attention's plan of each pass."""
    groups = [group for groups in live.runner.attn_groups for group in groups]
    return [builder for group in groups for builder in group.metadata_builders]


def expert_scale(live: Live, severity: float, layer: int) -> AbstractContextManager[None]:
    # Packed for the kernel by then; its first axis is still the expert.
    weight = _with(live.layers[layer].mlp, "w2_weight").w2_weight.data[EXPERT]
    return contents(weight, weight * severity)


def _with(root: Any, name: str) -> Any:
    return next(m for m in root.modules() if getattr(m, name, None) is not None)


def _experts(live: Live) -> list[Any]:
    """What runs the experts, one per MoE layer: it holds the router and scales what they give."""
    return [m for layer in live.layers for m in layer.mlp.modules() if hasattr(m, "router")]


def routed_scaling(live: Live, severity: float, layer: int) -> AbstractContextManager[None]:
    return all_of([attribute(runner, "routed_scaling_factor", severity) for runner in _experts(live)])


def router_bias(live: Live, severity: float, layer: int) -> AbstractContextManager[None]:
    biases = [runner.router.e_score_correction_bias.data for runner in _experts(live)]
    return all_of([contents(bias, bias * severity) for bias in biases])


def norm_eps(live: Live, severity: float, layer: int) -> AbstractContextManager[None]:
    norms = [n for one in live.layers for n in (one.input_layernorm, one.post_attention_layernorm)]
    return all_of([attribute(norm, "variance_epsilon", severity) for norm in norms])


def o_proj_noise(live: Live, severity: float, layer: int) -> AbstractContextManager[None]:
    name = f"model.layers.{layer}.self_attn.o_proj.weight"
    return _linear(live, live.layers[layer].self_attn.o_proj, name, severity)


def down_proj_noise(live: Live, severity: float, layer: int) -> AbstractContextManager[None]:
    name = f"model.layers.{layer}.mlp.down_proj.weight"
    return _linear(live, live.layers[layer].mlp.down_proj, name, severity)


@contextmanager
def _linear(live: Live, module: Any, name: str, severity: float) -> Iterator[None]:
    """Noise on the checkpoint's weight, packed by vLLM as it packs every weight."""
    from vllm.model_executor.layers.utils import dispatch_cpu_unquantized_gemm

    with safe_open(live.checkpoint / "model.safetensors", "pt") as weights:
        weight = weights.get_tensor(name)
    noise = torch.randn(weight.shape, generator=torch.Generator().manual_seed(11))
    noise *= severity * weight.float().norm() / noise.norm()
    before = module.weight, module.cpu_linear
    module.weight = torch.nn.Parameter((weight.float() + noise).to(weight.dtype), requires_grad=False)
    dispatch_cpu_unquantized_gemm(module, remove_weight=before[0].numel() == 0)
    try:
        yield
    finally:
        module.weight, module.cpu_linear = before


def window(live: Live, severity: float, layer: int) -> AbstractContextManager[None]:
    """The kernel's window and that of the plan made for it, `severity` tokens longer."""
    plans = [attribute(b, "window_size", b.window_size + int(severity)) for b in _builders(live)]
    kernels = [impl for _, impl in _kernels(live)]
    return all_of(plans + [attribute(k, "sliding_window", k.sliding_window + int(severity)) for k in kernels])


def kv_scale(live: Live, severity: float, layer: int) -> AbstractContextManager[None]:
    """Values written times `severity` and read as they are: a scale that only one of the two knows."""
    return _rewritten(live, lambda key, value, *rest: (key, value * severity, *rest))


def mla_kv_scale(live: Live, severity: float, layer: int) -> AbstractContextManager[None]:
    return _rewritten(live, lambda latent, rope, *rest: (latent * severity, rope, *rest))


def _rewritten(live: Live, change: Callable[..., tuple[Any, ...]]) -> AbstractContextManager[None]:
    def changed(update: Callable[..., None], leading: int) -> Callable[..., None]:
        def do_kv_cache_update(*args: Any, **kwargs: Any) -> None:
            update(*args[:leading], *change(*args[leading:]), **kwargs)

        return do_kv_cache_update

    contexts = []
    for _, impl in _kernels(live):
        mla = hasattr(impl, "kv_lora_rank")  # MLA's is not told its layer
        contexts.append(
            attribute(impl, "do_kv_cache_update", changed(impl.do_kv_cache_update, 0 if mla else 1))
        )
    return all_of(contexts)


FAULTS: dict[str, Callable[[Live, float, int], AbstractContextManager[None]]] = {
    "rope-theta": rope_theta,
    "rope-mscale": rope_mscale,
    "softmax-scale": softmax_scale,
    "expert-scale": expert_scale,
    "routed-scaling": routed_scaling,
    "router-bias": router_bias,
    "norm-eps": norm_eps,
    "o-proj-noise": o_proj_noise,
    "down-proj-noise": down_proj_noise,
    "window": window,
    "kv-scale": kv_scale,
    "mla-kv-scale": mla_kv_scale,
}
