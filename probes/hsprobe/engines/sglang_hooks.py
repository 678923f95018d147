"""Module hooks that read SGLang's residual stream, one key per site, and the branches that feed it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import torch

from ..protocol import ProbeError
from ..stack import Stack, hidden_and_residual, layer_parts


class Sink(Protocol):
    """Where hooks leave their rows, and whether the present pass is recorded."""

    active: bool
    ranks: int

    def put(self, key: str, tensor: torch.Tensor) -> None: ...


class LayerHooks:
    """Puts every asked-for site of a pass. Needs eager execution: graph replay calls no hook."""

    def __init__(self, sink: Sink, stack: Stack, config: Any, sites: tuple[str, ...]) -> None:
        self.sink, self.stack, self.wanted = sink, stack, set(sites)
        self.top_k = int(
            getattr(config, "num_experts_per_tok", 0) or getattr(config, "experts_per_token", 0) or 0
        )

    def install(self) -> None:
        """Hook the layers and modules behind the wanted sites. Raises ProbeError E306 for one not found."""
        if "boundary.000" in self.wanted:
            self.stack.layers[0].register_forward_pre_hook(self._embedding, with_kwargs=True)
        if "final_norm" in self.wanted:
            self.stack.inner.register_forward_hook(self._final_norm)
        for index, layer in enumerate(self.stack.layers):
            after = {f"{kind}.{index + 1:03d}" for kind in ("boundary", "hidden", "residual")}
            if self.wanted & (after | {f"mlp_out.{index:03d}"}):
                layer.register_forward_hook(self._layer(index), with_kwargs=True)
            parts = layer_parts(layer)
            if (key := f"attn_out.{index:03d}") in self.wanted:
                self._hook_attention(layer, parts.attention, key)
            if (key := f"router_logits.{index:03d}") in self.wanted:
                self._hook_output(parts.router, key, lambda out: out[0] if isinstance(out, tuple) else out)
            if (key := f"experts.{index:03d}") in self.wanted:
                self._hook_output(getattr(parts.mlp, "topk", None), key, self._chosen_experts)

    def _embedding(self, layer: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if self.sink.active:
            hidden = kwargs.get("hidden_states")
            floats = (
                a for a in args if isinstance(a, torch.Tensor) and a.is_floating_point() and a.dim() == 2
            )
            self.sink.put("boundary.000", hidden if hidden is not None else next(floats))

    def _final_norm(self, inner: Any, args: tuple[Any, ...], output: Any) -> None:
        if self.sink.active:
            self.sink.put("final_norm", output[0] if isinstance(output, tuple) else output)

    def _layer(self, index: int) -> Callable[..., None]:
        boundary, hidden, residual = (f"{k}.{index + 1:03d}" for k in ("boundary", "hidden", "residual"))
        mlp_out = f"mlp_out.{index:03d}"

        def hook(layer: Any, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
            if not self.sink.active:
                return
            batch = _forward_batch(args, kwargs)
            stream = getattr(batch, "residual_stream", None)
            hidden_nh: torch.Tensor | None
            residual_nh: torch.Tensor | None
            if stream is None:
                hidden_nh, residual_nh = self._tuple_parts(layer, output)
                sum_nh = hidden_nh + residual_nh
            else:
                handle = output[0] if isinstance(output, tuple) else output
                sum_nh, _ = hidden_and_residual(layer, _snapshot(stream, handle))
                apart = stream.pending is not None and bool(self.wanted & {hidden, mlp_out})
                hidden_nh = contribution(stream, handle) if apart else None
                residual_nh = stream.residual if stream.pending is not None else None
            parts = {boundary: sum_nh, hidden: hidden_nh, residual: residual_nh, mlp_out: hidden_nh}
            for key in self.wanted & parts.keys():
                if (tensor := parts[key]) is None:
                    raise ProbeError(
                        "E306", f"{type(layer).__name__} writes its stream whole: it has no {key}"
                    )
                self.sink.put(key, tensor)

        return hook

    def _tuple_parts(self, layer: Any, output: Any) -> tuple[torch.Tensor, torch.Tensor]:
        """Hidden and residual of a layer that returns both (Gemma3; every layer before SGLang 0.5.21)."""
        whole = self.sink.ranks == 1
        hidden_nh, residual_nh = hidden_and_residual(layer, output) if whole else (None, None)
        if hidden_nh is None or residual_nh is None:
            raise ProbeError(
                "E306",
                f"{type(layer).__name__} keeps no residual stream on the batch and returns "
                f"{type(output).__name__} on {self.sink.ranks} rank(s): its stream cannot be told",
                "layers that return (hidden, residual) work on one rank",
            )
        return hidden_nh, residual_nh

    def _hook_attention(self, layer: Any, attention: Any, key: str) -> None:
        boundary = getattr(layer, "attn_boundary", None)
        if boundary is None:
            self._hook_output(attention, key, lambda out: out[0] if isinstance(out, tuple) else out)
            return
        # What finish() records is summed over ranks on request; the module's own output is a partial sum.
        finish = boundary.finish

        def finished(hidden: Any, batch: Any, *args: Any, **kwargs: Any) -> Any:
            handle = finish(hidden, batch, *args, **kwargs)
            if self.sink.active:
                self.sink.put(key, contribution(batch.residual_stream, handle))
            return handle

        boundary.finish = finished

    def _hook_output(self, module: Any, key: str, pick: Callable[[Any], torch.Tensor]) -> None:
        if module is None:
            raise ProbeError("E306", f"{type(self.stack.inner).__name__} has no module behind {key}")

        def hook(module: Any, args: tuple[Any, ...], output: Any) -> None:
            if self.sink.active:
                self.sink.put(key, pick(output))

        module.register_forward_hook(hook)

    def _chosen_experts(self, output: Any) -> torch.Tensor:
        chosen = getattr(output, "topk_ids", None)
        if chosen is None:
            raise ProbeError(
                "E306", f"SGLang's MoE kernel keeps its choice of experts to itself ({type(output).__name__})"
            )
        # Fused shared experts follow the routed ones.
        return chosen[:, : self.top_k or chosen.shape[1]].to(torch.int32)


def contribution(stream: Any, handle: Any) -> torch.Tensor:
    """The branch output [rows, H] awaiting its residual add, summed over ranks; the stream is left alone."""
    residual, stream.residual = stream.residual, None
    try:
        return _snapshot(stream, handle)
    finally:
        stream.residual = residual


def _snapshot(stream: Any, handle: Any) -> torch.Tensor:
    try:
        value: torch.Tensor = stream.snapshot(handle)
    except NotImplementedError as error:
        raise ProbeError("E306", f"SGLang cannot show this model's residual stream: {error}") from error
    return value


def _forward_batch(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return next((a for a in (*kwargs.values(), *args) if hasattr(a, "forward_mode")), None)
