"""The decoder stack inside any engine's model, its sites, and what the model process leaves for the driver.

An engine file does, once the weights are loaded and in the process that holds them:

    stack = find_stack(model, hf_config)            # E307 for families without one residual stream
    keys = expand(spec.sites, len(stack.layers), moe_layers(stack))
    save_norm(out, stack)                           # rank that holds the final norm
    save_embedding(out, stack, spec, write=rank == 0)   # every rank: a sharded table reduces over ranks
    save_facts(out, num_layers=…, hidden_size=…, …)     # rank 0; merged into what is there
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import nn

from . import spool
from .protocol import ProbeError
from .schema import CaptureSpec, Site
from .streams import KEYS, NESTED, odd_output, several_streams
from .writer import write_safetensors, write_text

NORM_FILE = "norm.safetensors"  # tensor `norm`, float32 [H]
EMBEDDING_FILE = "embedding.safetensors"  # in spool/: `token_ids` int32 [n] ascending, `rows` [n, H]
FACTS_FILE = "engine.json"  # in spool/
EMBEDDING_IDS = 4096  # rows kept for the self-check; 4096 x 7168 bf16 are 59 MB

# Where the inner model sits, seen from the engine's outer object; the first that fits wins.
INNER_PATHS = ("model", "language_model.model", "model.language_model", "language_model", "transformer", "")
NORM_NAMES = ("norm", "final_layernorm", "final_norm", "ln_f")
EMBED_NAMES = ("embed_tokens", "word_embeddings", "wte", "tok_embeddings")
ATTENTION_NAMES = ("self_attn", "attn", "attention", "self_attention")
MLP_NAMES = ("mlp", "feed_forward", "block_sparse_moe", "moe", "ffn")
ROUTER_NAMES = ("gate", "router")

BOUNDARY_KINDS = ("boundary", "hidden", "residual")
LAYER_KINDS = ("attn_out", "mlp_out", "router_logits", "experts")
ROUTER_KINDS = ("router_logits", "experts")


@dataclass(frozen=True)
class Stack:
    """A decoder: `layers` in order, its embedding and final norm (None on a pipeline stage that has none)."""

    path: str  # of the inner model inside the outer one: "model", "language_model.model"
    inner: nn.Module
    layers: tuple[nn.Module, ...]
    norm: nn.Module | None
    embed: nn.Module | None


@dataclass(frozen=True)
class LayerParts:
    """The submodules of one decoder layer; None where the layer has none under a known name."""

    attention: nn.Module | None
    mlp: nn.Module | None
    router: nn.Module | None  # inside the MLP of a mixture-of-experts layer


def find_stack(model: nn.Module, config: Any = None) -> Stack:
    """The decoder stack of `model`. `config` is the Hugging Face config, read for families to refuse.

    Raises ProbeError E307 when there is no stack under a known name, or its stream is not hidden + residual.
    """
    refuse_multi_stream(type(model).__name__, config)
    for path in INNER_PATHS:
        inner = _attribute(model, path)
        layers = getattr(inner, "layers", None)
        if (
            not isinstance(inner, nn.Module)
            or not isinstance(layers, (nn.ModuleList, list, tuple))
            or not len(layers)
        ):
            continue
        norm, embed = _first(inner, NORM_NAMES), _first(inner, EMBED_NAMES)
        if norm is None and embed is None:
            continue
        return Stack(path, inner, tuple(layers), _present(norm), _present(embed))
    raise ProbeError(
        "E307",
        f"{type(model).__name__} holds no decoder stack that hsprobe knows (looked for .layers with a norm "
        f"or an embedding under {', '.join(p or 'the model itself' for p in INNER_PATHS)})",
        "add its place to INNER_PATHS in hsprobe/stack.py",
    )


def refuse_multi_stream(architecture: str, config: Any = None) -> None:
    """Raise ProbeError E307 for hyper-connection, AttnRes and AltUp families: no boundary exists there."""
    if why := several_streams(architecture, _described(config)):
        raise _several(architecture, why)


def hidden_and_residual(layer: nn.Module, output: Any) -> tuple[torch.Tensor, torch.Tensor | None]:
    """What a decoder layer handed on, [n, H] each: hidden state and residual, None where it returns their sum.

    Integers beside them (a router's choice) are passed over. Raises ProbeError E307 for more than these two, for
    states with another axis and for two of different shapes.
    """
    listed = output if isinstance(output, (tuple, list)) else (output,)
    tensors = [t for t in listed if isinstance(t, torch.Tensor) and t.is_floating_point()]
    if why := odd_output(tensors) or ("" if tensors else "a layer hands on no state"):
        raise _several(type(layer).__name__, why)
    return tensors[0], tensors[1] if len(tensors) > 1 else None


def layer_parts(layer: nn.Module) -> LayerParts:
    """The attention, MLP and router modules of a decoder layer."""
    mlp = _first(layer, MLP_NAMES)
    router = _first(mlp, ROUTER_NAMES) if mlp is not None else None
    return LayerParts(_first(layer, ATTENTION_NAMES), mlp, router)


def moe_layers(stack: Stack) -> tuple[int, ...]:
    """The 0-based indices of layers with a router."""
    return tuple(i for i, layer in enumerate(stack.layers) if layer_parts(layer).router is not None)


def expand(sites: Iterable[str], num_layers: int, moe: Sequence[int] | None = None) -> tuple[str, ...]:
    """Site keys with "kind.*" written out, each once, in the order asked for.

    boundary.* is 0..L; hidden.* and residual.* are 1..L (boundary 0 is one tensor, not a sum); attn_out.* and
    mlp_out.* are layers 0..L-1; router_logits.* and experts.* the layers in `moe` (all when None).
    Raises ProbeError E306 for keys that name nothing in a model of `num_layers` layers.
    """
    keys: dict[str, None] = {}
    for key in sites:
        kind, _, index = key.partition(".")
        if index == "*":
            keys.update(dict.fromkeys(Site(kind, i).key for i in _indices(key, kind, num_layers, moe)))
            continue
        try:
            site = Site.parse(key)
        except ValueError as error:
            raise ProbeError(
                "E306", str(error), "sites look like boundary.003, boundary.*, final_norm"
            ) from None
        if site.kind in (*BOUNDARY_KINDS, *LAYER_KINDS) and site.index not in _indices(
            key, site.kind, num_layers, moe
        ):
            allowed = _indices(key, site.kind, num_layers, moe)
            span = f"{allowed[0]} to {allowed[-1]}" if allowed else "none"
            raise ProbeError("E306", f"this model has no {site.key}; its {site.kind} sites: {span}")
        if site.kind == "slot":
            raise ProbeError(
                "E306", "slots come from the native path, not from hooks", "pass native ids instead"
            )
        keys[site.key] = None
    return tuple(keys)


def save_norm(out: Path, stack: Stack) -> bool:
    """Write the final norm to out/norm.safetensors, its eps and form to engine.json; False if no RMSNorm.

    Whether the weight acts as w or as 1 + w (Gemma) is found by running the module, not by its class name.
    """
    norm = stack.norm
    weight = getattr(norm, "weight", None)
    eps = next(
        (
            float(v)
            for n in ("variance_epsilon", "eps", "epsilon")
            if (v := getattr(norm, n, None)) is not None
        ),
        None,
    )
    if norm is None or not isinstance(weight, torch.Tensor) or eps is None:
        return False
    with torch.no_grad():
        probe_nh = torch.sin(
            torch.arange(4 * weight.shape[0], device=weight.device, dtype=torch.float32) * 0.37
        )
        probe_nh = probe_nh.reshape(4, -1).to(weight.dtype)
        forward = getattr(norm, "forward_native", norm)  # engines' own kernels may want a running engine
        answer_nh = forward(probe_nh.clone()).float().cpu()
    weight_h, probe_nh = weight.detach().float().cpu(), probe_nh.float().cpu()
    errors = [
        float(
            (answer_nh - rms_norm(probe_nh, weight_h, eps, plus_one)).norm()
            / answer_nh.norm().clamp_min(1e-30)
        )
        for plus_one in (False, True)
    ]
    if min(errors) > 0.05:  # bf16 alone costs 0.004; a LayerNorm or a scaled norm is far off
        return False
    write_safetensors(out / NORM_FILE, {"norm": weight_h}, {})
    save_facts(out, norm_eps=eps, norm_plus_one=errors[1] < errors[0])
    return True


def rms_norm(hidden_nh: torch.Tensor, weight_h: torch.Tensor, eps: float, plus_one: bool) -> torch.Tensor:
    """RMSNorm of [n, H] in float32."""
    hidden_nh = hidden_nh.float()
    scale_n1 = torch.rsqrt(hidden_nh.pow(2).mean(-1, keepdim=True) + eps)
    return hidden_nh * scale_n1 * (weight_h.float() + 1.0 if plus_one else weight_h.float())


def save_embedding(out: Path, stack: Stack, spec: CaptureSpec, write: bool = True) -> None:
    """Write the embedding rows of the spec's token ids to the spool: boundary 0 is checked against them.

    Runs the engine's own embedding module, so sharded and quantised tables answer too; every rank of a
    sharded table has to call it, one writes. At most EMBEDDING_IDS ids, spread over those used.
    Raises ProbeError E105 when an id is outside the vocabulary.
    """
    if stack.embed is None:
        return
    used = sorted({t for p in spec.prompts for t in (*p.token_ids, *p.forced)})
    if used and used[-1] >= (size := getattr(stack.embed, "num_embeddings", used[-1] + 1)):
        raise ProbeError("E105", f"token id {used[-1]} is outside the model's vocabulary of {size}")
    step = -(-len(used) // EMBEDDING_IDS)
    ids = torch.tensor(used[:: max(step, 1)], dtype=torch.int64)
    device = next(
        (t.device for t in (*stack.embed.parameters(), *stack.embed.buffers())), torch.device("cpu")
    )
    with torch.no_grad():
        rows_nh = stack.embed(ids.to(device))
    if not write:
        return
    path = out / spool.FOLDER / EMBEDDING_FILE
    path.parent.mkdir(parents=True, exist_ok=True)
    tensors = {"token_ids": ids.to(torch.int32), "rows": rows_nh}
    write_safetensors(path, tensors, {})


def load_norm(out: Path) -> torch.Tensor | None:
    """The weight that save_norm wrote, float32 [H], or None."""
    path = out / NORM_FILE
    return load_file(path)["norm"] if path.exists() else None


def load_embedding(out: Path) -> dict[str, torch.Tensor] | None:
    """What save_embedding wrote, or None."""
    path = out / spool.FOLDER / EMBEDDING_FILE
    return load_file(path) if path.exists() else None


def save_facts(out: Path, **facts: Any) -> None:
    """Merge `facts` (JSON values) into spool/engine.json, atomically. One process writes; all read."""
    path = out / spool.FOLDER / FACTS_FILE
    path.parent.mkdir(parents=True, exist_ok=True)
    merged = {**load_facts(out), **facts}
    write_text(path, json.dumps(merged, sort_keys=True))


def load_facts(out: Path) -> dict[str, Any]:
    """What the model process left in spool/engine.json; empty when it left nothing."""
    path = out / spool.FOLDER / FACTS_FILE
    facts: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    return facts


def _indices(key: str, kind: str, num_layers: int, moe: Sequence[int] | None) -> tuple[int, ...]:
    if kind == "boundary":
        return tuple(range(num_layers + 1))
    if kind in BOUNDARY_KINDS:
        return tuple(range(1, num_layers + 1))
    if kind in ROUTER_KINDS and moe is not None:
        return tuple(i for i in range(num_layers) if i in set(moe))
    if kind in LAYER_KINDS:
        return tuple(range(num_layers))
    raise ProbeError(
        "E306", f"{key!r} cannot be expanded", f"these can: {', '.join((*BOUNDARY_KINDS, *LAYER_KINDS))}"
    )


def _described(config: Any) -> dict[str, Any]:
    """What a Hugging Face config object says of its streams, as config.json would."""
    if config is None:
        return {}
    found = {key: getattr(config, key, None) for key in (*KEYS, "model_type", "architectures")}
    return found | {key: _described(getattr(config, key, None)) for key in NESTED}


def _several(architecture: str, why: str) -> ProbeError:
    return ProbeError(
        "E307",
        f"{architecture} keeps no single residual stream between layers: {why}",
        "no boundary exists that two engines could be compared at; compare logits, or dump the tensor that "
        "the next layer reads from both engines yourself",
    )


def _attribute(model: Any, path: str) -> Any:
    for name in path.split(".") if path else ():
        model = getattr(model, name, None)
    return model


def _first(module: Any, names: Sequence[str]) -> nn.Module | None:
    for name in names:
        if isinstance(found := getattr(module, name, None), nn.Module):
            return found
    return None


def _present(module: nn.Module | None) -> nn.Module | None:
    # Both engines put a PPMissingLayer where another pipeline stage holds the module.
    return None if type(module).__name__ == "PPMissingLayer" else module
