"""Module hooks on a Transformers decoder: each site's tensor into the recorder, copied at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from ..protocol import ProbeError
from ..schema import Site
from ..spool import StepRecorder
from ..stack import BOUNDARY_KINDS, Stack, hidden_and_residual, layer_parts


def attach(stack: Stack, sites: Sequence[Site], recorder: StepRecorder) -> None:
    """Hook every site. Boundary k is what enters layer k, boundary L what enters the final norm.

    Raises ProbeError E306 for a site whose module this model does not have under a known name; a pass raises E307
    where a state of the stream has more axes than [1, n, H].
    """
    for site in sites:
        state = site.kind in (*BOUNDARY_KINDS, "final_norm")
        sink = _state_sink(stack, recorder, site.key) if state else _sink(recorder, site.key)
        _HOOKS[site.kind](stack, site, sink)


Sink = Callable[[torch.Tensor], None]


def _sink(recorder: StepRecorder, key: str) -> Sink:
    def keep(tensor: torch.Tensor) -> None:
        if recorder.recording:
            recorder.put(key, tensor.reshape(-1, tensor.shape[-1]))  # [1, n, H] or [n, H]

    return keep


def _state_sink(stack: Stack, recorder: StepRecorder, key: str) -> Sink:
    """Keeps a state [1, n, H] or [n, H]: flattened, a second stream would pass for more rows."""

    def keep(tensor: torch.Tensor) -> None:
        if recorder.recording:
            one = tensor[0] if tensor.dim() == 3 and len(tensor) == 1 else tensor
            recorder.put(key, hidden_and_residual(stack.layers[0], one)[0])

    return keep


def _boundary(stack: Stack, site: Site, keep: Sink) -> None:
    reader = stack.layers[site.index] if site.index < len(stack.layers) else stack.norm
    _on_input(_present(reader, site), keep)


def _final_norm(stack: Stack, site: Site, keep: Sink) -> None:
    _on_output(_present(stack.norm, site), keep)


def _attn_out(stack: Stack, site: Site, keep: Sink) -> None:
    _on_output(_present(layer_parts(stack.layers[site.index]).attention, site), keep)


def _mlp_out(stack: Stack, site: Site, keep: Sink) -> None:
    _on_output(_present(layer_parts(stack.layers[site.index]).mlp, site), keep)


def _hidden(stack: Stack, site: Site, keep: Sink) -> None:
    """The last branch before boundary k: the MLP's output, or that of a norm behind it."""
    layer = stack.layers[site.index - 1]
    behind = getattr(layer, "post_feedforward_layernorm", None)
    _on_output(_present(behind or layer_parts(layer).mlp, site), keep)


def _residual(stack: Stack, site: Site, keep: Sink) -> None:
    """The stream that branch is added to: what enters the norm before the MLP."""
    layer = stack.layers[site.index - 1]
    before = getattr(layer, "pre_feedforward_layernorm", None)
    _on_input(_present(before or getattr(layer, "post_attention_layernorm", None), site), keep)


def _router_logits(stack: Stack, site: Site, keep: Sink) -> None:
    def hook(module: nn.Module, arguments: Any, keywords: Any, output: Any) -> None:
        logits = _first_float((output,))
        if _is_probability(logits):  # some routers return the softmax under the name of logits
            hidden = _first_float((*arguments, *keywords.values()))
            weight, bias = getattr(module, "weight", None), getattr(module, "bias", None)
            if not isinstance(weight, torch.Tensor):
                raise ProbeError("E306", f"the router of layer {site.index} gives probabilities only")
            logits = functional.linear(hidden.reshape(-1, hidden.shape[-1]).to(weight.dtype), weight, bias)
        keep(logits)

    router = _present(layer_parts(stack.layers[site.index]).router, site)
    router.register_forward_hook(hook, with_kwargs=True)


def _experts(stack: Stack, site: Site, keep: Sink) -> None:
    """What the router's choice hands to the experts: the first integer tensor of their call."""

    def hook(_module: nn.Module, arguments: Any, keywords: Any) -> None:
        chosen = [t for t in (*arguments, *keywords.values()) if _is_integer(t)]
        if not chosen:
            raise ProbeError("E306", f"the experts of layer {site.index} are not handed the chosen ids")
        keep(chosen[0].to(torch.int32))

    mlp = layer_parts(stack.layers[site.index]).mlp
    _present(getattr(mlp, "experts", None), site).register_forward_pre_hook(hook, with_kwargs=True)


def _on_input(module: nn.Module, keep: Sink) -> None:
    def hook(_module: nn.Module, arguments: Any, keywords: Any) -> None:
        keep(arguments[0] if arguments else keywords["hidden_states"])

    module.register_forward_pre_hook(hook, with_kwargs=True)


def _on_output(module: nn.Module, keep: Sink) -> None:
    module.register_forward_hook(lambda _module, _arguments, output: keep(_first_float((output,))))


def _present(module: Any, site: Site) -> nn.Module:
    if not isinstance(module, nn.Module):
        raise ProbeError("E306", f"this model has no module for {site.key} under a name that hsprobe knows")
    return module


def _first_float(values: Sequence[Any]) -> torch.Tensor:
    flat = [t for value in values for t in (value if isinstance(value, (tuple, list)) else (value,))]
    return next(t for t in flat if isinstance(t, torch.Tensor) and t.is_floating_point())


def _is_integer(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.dtype in (torch.int64, torch.int32)


def _is_probability(logits: torch.Tensor) -> bool:
    total = logits.float().sum(-1)
    return bool((logits >= 0).all()) and bool(torch.allclose(total, torch.ones_like(total), atol=1e-2))


_HOOKS: dict[str, Callable[[Stack, Site, Sink], None]] = {
    "boundary": _boundary,
    "final_norm": _final_norm,
    "attn_out": _attn_out,
    "mlp_out": _mlp_out,
    "hidden": _hidden,
    "residual": _residual,
    "router_logits": _router_logits,
    "experts": _experts,
}
