"""Transformers runs of the tiny models with a fault planted in the running model, as captures on disk."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
import torch

from hsparity import models
from tests.causes.streams import Capture, Model, States

PAD = 9  # an id that a mask may hide
LENGTHS = (56, 48, 40, 33, 52, 44)
Plant = Callable[[Any], AbstractContextManager[None] | None]  # changes a loaded model; may hold while it runs


@dataclass(frozen=True)
class Setup:
    """How a run is made."""

    model: str = "tiny:llama"
    dtype: torch.dtype = torch.bfloat16
    attention: str = "eager"
    config: tuple[tuple[str, Any], ...] = ()  # overrides of the checkpoint's config
    decode: int = 0  # trailing tokens fed one by one through a cache
    chunk: int = 0  # tokens of a prompt per pass; 0: all at once
    branches: bool = False
    lengths: tuple[int, ...] = LENGTHS


@cache
def prompts(lengths: tuple[int, ...], vocabulary: int, first: int = 1) -> Mapping[str, list[int]]:
    """Random ids behind a BOS; every other prompt holds PAD in its middle."""
    rng = np.random.default_rng(11)
    found = {
        f"p{i}": [first, *rng.integers(PAD + 1, vocabulary, n - 1).tolist()] for i, n in enumerate(lengths)
    }
    for i, tokens in enumerate(found.values()):
        if i % 2 == 0:
            tokens[len(tokens) // 2] = PAD
    return found


def loaded(setup: Setup) -> Any:
    import transformers

    config = transformers.AutoConfig.from_pretrained(models.path(setup.model))
    for key, value in setup.config:
        setattr(config, key, value)
    return transformers.AutoModelForCausalLM.from_pretrained(
        models.path(setup.model), config=config, dtype=setup.dtype, attn_implementation=setup.attention
    ).eval()


def run(setup: Setup, plant: Plant | None = None, engine: str = "hf", **about: Any) -> Capture:
    """The states of every prompt; `about` goes to the capture (settings, weights_sha256 ...)."""
    model = loaded(setup)
    return ran(model, setup, plant, engine, **about)


def ran(model: Any, setup: Setup, plant: Plant | None = None, engine: str = "hf", **about: Any) -> Capture:
    config = model.config
    ids = dict(about.pop("ids", None) or prompts(setup.lengths, config.vocab_size))
    with torch.inference_mode(), (plant(model) if plant else None) or nullcontext():
        made = {name: _one(model, tokens, setup) for name, tokens in ids.items()}
    norm = model.model.norm
    shape = Model(
        layers=config.num_hidden_layers,
        width=config.hidden_size,
        norm=norm.weight.detach().float().numpy(),
        eps=float(norm.variance_epsilon),
        name=setup.model,
        architecture=config.architectures[0],
        config=_plain(config.to_dict()),
    )
    settings = {"attention_backend": setup.attention, "batch": 1, **about.pop("settings", {})}
    return Capture(
        {name: states for name, (states, _) in made.items()},
        ids,
        engine=engine,
        version={"hf": "5.24.0", "vllm": "0.32.0"}.get(engine, "0.5.23"),
        dtype=setup.dtype,
        prefill={name: len(tokens) - setup.decode for name, tokens in ids.items()},
        steps={name: steps for name, (_, steps) in made.items()},
        settings=settings,
        real=shape,
        **{"weights_sha256": "a" * 64, **about},
    )


def _plain(config: Mapping[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in config.items() if isinstance(v, (str, int, float, bool, dict, list, type(None)))}


def _passes(tokens: int, setup: Setup) -> list[tuple[int, int]]:
    prefill = tokens - setup.decode
    step = setup.chunk or prefill
    spans = [(s, min(s + step, prefill)) for s in range(0, prefill, step)]
    return [*spans, *((s, s + 1) for s in range(prefill, tokens))]


def _one(model: Any, tokens: Sequence[int], setup: Setup) -> tuple[States, list[int]]:
    from transformers import DynamicCache

    kept: dict[str, list[torch.Tensor]] = {}
    hooks = _hooks(model, kept, setup.branches)
    spans, cached = _passes(len(tokens), setup), getattr(model, "hs_cache", None)
    cache_ = (cached or DynamicCache)(config=model.config) if len(spans) > 1 or cached else None
    # Releases call it by two names.
    cached_as = "cache" if "cache" in inspect.signature(model.forward).parameters else "past_key_values"
    try:
        for start, stop in spans:
            model(
                input_ids=torch.tensor([tokens[start:stop]]),
                attention_mask=torch.ones(1, stop, dtype=torch.long),
                position_ids=torch.arange(start, stop)[None],
                use_cache=cache_ is not None,
                logits_to_keep=1,
                **({} if cache_ is None else {cached_as: cache_}),
            )
    finally:
        for hook in hooks:
            hook.remove()
    states = {key: torch.cat(rows).double().numpy() for key, rows in kept.items()}
    return states, [i for i, (start, stop) in enumerate(spans) for _ in range(stop - start)]


def _hooks(model: Any, kept: dict[str, list[torch.Tensor]], branches: bool) -> list[Any]:
    def keep(key: str, value: Any) -> None:
        value = value[0] if isinstance(value, tuple) else value
        kept.setdefault(key, []).append(value.reshape(-1, value.shape[-1]).clone())

    inner, found = model.model, []
    first = inner.layers[0]
    found.append(first.register_forward_pre_hook(lambda _, a: keep("boundary.000", a[0])))
    for k, layer in enumerate(inner.layers):
        key = f"boundary.{k + 1:03d}"
        found.append(layer.register_forward_hook(lambda _, __, out, key=key: keep(key, out)))
        if branches:
            for kind, part in (("attn_out", layer.self_attn), ("mlp_out", layer.mlp)):
                name = f"{kind}.{k:03d}"
                found.append(part.register_forward_hook(lambda _, __, out, name=name: keep(name, out)))
            if hasattr(layer.mlp, "gate"):
                found.append(layer.mlp.gate.register_forward_hook(_routed(keep, k)))
    found.append(inner.norm.register_forward_hook(lambda _, __, out: keep("final_norm", out)))
    return found


def _routed(keep: Callable[[str, Any], None], k: int) -> Callable[..., None]:
    def hook(_: Any, __: Any, out: Any) -> None:
        keep(f"router_logits.{k:03d}", out[0])
        keep(f"experts.{k:03d}", out[-1].to(torch.int32))

    return hook


def with_config(made: Capture, values: Mapping[str, Any]) -> Capture:
    """The same states from a model whose config also says this."""
    return replace(made, real=replace(made.model, config={**made.model.config, **values}))


def as_engine(made: Capture, engine: str = "vllm", **settings: Any) -> Capture:
    """The same states as an engine of another name that ran with these settings would have written them."""
    version = {"vllm": "0.32.0", "sglang": "0.5.23"}.get(engine, made.version)
    return replace(made, engine=engine, version=version, settings={**made.settings, **settings})
