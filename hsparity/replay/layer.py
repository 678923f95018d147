"""One decoder layer of a checkpoint as a Transformers module, with the model's own rope and masks around it."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import nn

from hsparity.capture.checkpoint import ALIASES
from hsparity.errors import HsparityError
from hsparity.replay.experts import Stock, put_in
from hsparity.weights.checkpoint import Checkpoint, lacking
from hsprobe.engines.hf_hooks import attach
from hsprobe.schema import Site
from hsprobe.spool import StepRecorder
from hsprobe.stack import find_stack, layer_parts

# What a pruned model draws at random: neither is between two boundaries.
OUTSIDE = ("embed_tokens.weight", "norm.weight", "final_layernorm.weight")
MODEL_KEYS = (
    "quantization_config",
    "compression_config",
    "auto_map",
    "text_config",
    "llm_config",
    "vision_config",
)


class Kept:
    """What the hooks saw last, by site key. Stands where a capture has its recorder."""

    recording = True

    def __init__(self) -> None:
        self.tensors: dict[str, torch.Tensor] = {}

    def put(self, key: str, tensor: torch.Tensor) -> None:
        """Keep a copy on the CPU."""
        self.tensors[key] = tensor.detach().to("cpu", copy=True)


@dataclass(frozen=True, slots=True, eq=False)
class Outputs:
    """What one layer makes of [n, H], in float32; None where it has no such part."""

    output_nh: torch.Tensor  # the residual stream after the layer
    attention_nh: torch.Tensor | None
    mlp_nh: torch.Tensor | None
    logits_ne: torch.Tensor | None  # of the router
    experts_nk: torch.Tensor | None  # chosen, int64


class Layer:
    """Layer `index` of a checkpoint, ready to run whole prompts."""

    def __init__(self, model: nn.Module, index: int) -> None:
        self.index = index
        self.model = model
        self.stack = find_stack(model, getattr(model, "config", None))
        self.module = self.stack.layers[0]
        self.parts = layer_parts(self.module)
        self._kept = Kept()
        self._input: torch.Tensor | None = None
        self._attention: torch.Tensor | None = None
        parameter = next(model.parameters())
        self.device, self.dtype = parameter.device, parameter.dtype
        self.module.register_forward_pre_hook(self._substitute_input, with_kwargs=True)
        attach(self.stack, [Site.parse(key) for key in self._sites()], cast(StepRecorder, self._kept))
        if self.parts.attention is not None:
            self.parts.attention.register_forward_hook(self._substitute_attention)

    def _sites(self) -> list[str]:
        sites = ["boundary.001"]
        sites += ["attn_out.000"] if self.parts.attention is not None else []
        sites += ["mlp_out.000"] if self.parts.mlp is not None else []
        if self.parts.router is not None:
            sites += ["router_logits.000"]
            sites += ["experts.000"] if hasattr(self.parts.mlp, "experts") else []
        return sites

    @property
    def kind(self) -> str:
        return "dense" if self.parts.router is None else "moe"

    def run(self, input_nh: torch.Tensor, attention_nh: torch.Tensor | None = None) -> Outputs:
        """The layer on one whole prompt [n, H], positions 0 to n - 1; with `attention_nh` in place of its attention's
        output. Every tensor comes back on the CPU."""
        self._input = input_nh.to(self.device, self.dtype)[None]
        self._attention = None if attention_nh is None else attention_nh.to(self.device, self.dtype)[None]
        self._kept.tensors.clear()
        try:
            with torch.inference_mode():
                self.model(inputs_embeds=self._input, use_cache=False)
        finally:
            self._input = self._attention = None
        kept = {key.partition(".")[0]: value for key, value in self._kept.tensors.items()}
        floats = {key: value.float() for key, value in kept.items() if key != "experts"}
        experts = kept.get("experts")
        return Outputs(
            floats["boundary"],
            floats.get("attn_out"),
            floats.get("mlp_out"),
            floats.get("router_logits"),
            None if experts is None else experts.long(),
        )

    def _substitute_input(self, _module: nn.Module, arguments: Any, keywords: Any) -> Any:
        # The model may have scaled what it was given as embeddings.
        if arguments:
            return (self._input, *arguments[1:]), keywords
        return arguments, {**keywords, "hidden_states": self._input}

    def _substitute_attention(self, _module: nn.Module, _arguments: Any, output: Any) -> Any:
        if self._attention is None:
            return output
        return (self._attention, *output[1:]) if isinstance(output, tuple) else self._attention


def build(
    checkpoint: Checkpoint, index: int, dtype: torch.dtype, device: str = "cpu", stock: Stock | None = None
) -> Layer:
    """Layer `index` in `dtype`, from the checkpoint's dequantised weights; no other layer's weights are read. `stock`
    holds its experts where they are too large to be dequantised at once.

    Raises E232 where a tensor of the layer is absent, E233 for a family that Transformers does not have or builds
    otherwise than the checkpoint is made, and what `Checkpoint.read` raises.
    """
    names = checkpoint.layer(index)
    config, family = family_of(checkpoint)
    pruned = _pruned(family, index, stock)
    apart = stock.inner if stock is not None else set()
    state = {
        f"layers.0.{inner}": checkpoint.read(name) for inner, name in names.items() if inner not in apart
    }
    with _quiet():
        try:
            model, loaded = pruned.from_pretrained(
                None, config=config, state_dict=state, dtype=dtype, output_loading_info=True
            )
        except (RuntimeError, ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
            raise _no_family(checkpoint, f"{type(error).__name__}: {error}") from error
    missing = sorted(n for n in loaded["missing_keys"] if n not in OUTSIDE)
    if missing:
        told = f"layer {index} wants {missing[0].replace('layers.0.', '')} (and {len(missing) - 1} more)"
        raise lacking(checkpoint.folder, told, checkpoint.files)
    if loaded["mismatched_keys"] or loaded["unexpected_keys"]:
        odd = sorted(map(str, [*loaded["mismatched_keys"], *loaded["unexpected_keys"]]))
        raise _no_family(checkpoint, f"{family.__name__} has no place for {odd[0]} (and {len(odd) - 1} more)")
    return Layer(model.eval().to(device), index)


def family_of(checkpoint: Checkpoint) -> tuple[Any, Any]:
    """The Transformers config of the text model, with a vocabulary of one, and the class of its base model.

    Raises E233.
    """
    try:
        import transformers
    except ImportError as error:
        raise _no_family(checkpoint, f"transformers cannot be imported: {error}") from error
    raw = {k: v for k, v in checkpoint.config.items() if k not in MODEL_KEYS}
    kind = str(raw.get("model_type", ""))
    kind = ALIASES.get(kind, kind)
    try:
        config = transformers.CONFIG_MAPPING[kind].from_dict({**raw, "model_type": kind})
        config = config.get_text_config()
        family = transformers.AutoModel._model_mapping[type(config)]
    except Exception as error:  # a config's own validation has exceptions of its own
        raise _no_family(checkpoint, f"model_type {kind}: {error}") from error
    family = family[0] if isinstance(family, tuple) else family
    config = copy.deepcopy(config)
    config.vocab_size, config.pad_token_id = 1, None
    return config, family


def _pruned(family: Any, index: int, stock: Stock | None) -> Any:
    """The family's base model with one layer of all it has, built as layer `index` is: its own attention kind, its own
    MLP kind."""

    def build_one(self: Any, config: Any, *rest: Any, **more: Any) -> None:
        family.__init__(self, config, *rest, **more)
        # Config lists that say something per layer were read by the layer; what is left of them is for one layer.
        layers = len(self.layers)
        self.layers = nn.ModuleList([self.layers[index]])
        for key in ("layer_types", "mlp_layer_types"):
            kinds = getattr(config, key, None)
            if isinstance(kinds, (list, tuple)) and len(kinds) == layers:
                object.__setattr__(config, key, [kinds[index]])
        config.num_hidden_layers = 1
        _renumber(self.layers[0])
        if stock is not None and not put_in(self.layers[0], stock):
            raise ValueError(
                "the experts of this family are too large to load, and compute in a way of their own"
            )

    # Transformers picks its weight conversions by the class's name and module.
    body = {"__init__": build_one, "__module__": family.__module__, "__qualname__": family.__qualname__}
    return type(family.__name__, (family,), body)


def _renumber(layer: nn.Module) -> None:
    """Layer numbers index caches and per-layer lists, which hold one entry now."""
    for module in layer.modules():
        if isinstance(getattr(module, "layer_idx", None), int):
            module.layer_idx = 0  # type: ignore[assignment]


@contextmanager
def _quiet() -> Iterator[None]:
    """Loading reports name the embedding and the final norm, which are left out on purpose."""
    from transformers.utils import logging

    before = logging.get_verbosity()
    logging.set_verbosity_error()
    bars = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(before)
        if bars:
            logging.enable_progress_bar()


def _no_family(checkpoint: Checkpoint, why: str) -> HsparityError:
    return HsparityError(
        "E233",
        f"{checkpoint.folder}: Transformers builds no decoder layer of this model",
        (why,),
        "replay needs a family that Transformers itself has (no remote code); compare and bisect work without it",
    )
