"""Synthetic residual streams that behave like real ones, and captures of them on disk.

A toy decoder: each layer adds a nonlinear function of the stream, so an early error changes later updates. A
massive channel carries much of the norm, and the first token of a prompt is a sink. An engine rounds states
to bf16 after every layer and perturbs each update by its own rounding noise; its fp32 twin does neither.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file

from hsparity.capture.read import open_source
from hsparity.capture.source import Source
from hsprobe.schema import SCHEMA, CaptureManifest, NormInfo, Prompt, ShardEntry, Site, token_ids_sha256

LAYERS, WIDTH, VOCABULARY = 8, 128, 50
MASSIVE = 5
EPS = 1e-6

States = dict[str, np.ndarray]  # site key -> float64 [T, H]


@dataclass(frozen=True, eq=False)
class Model:
    """What a capture says of its model."""

    layers: int
    width: int
    norm: np.ndarray  # float32 [H]
    eps: float = EPS
    plus_one: bool = False
    name: str = "toy"
    architecture: str = "ToyForCausalLM"
    config: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Toy:
    """The model: fixed random weights."""

    layers: int = LAYERS
    width: int = WIDTH
    seed: int = 1

    @cache  # noqa: B019  (a frozen value: equal toys share one entry)
    def weights(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        rng = np.random.default_rng(self.seed)
        embedding = rng.standard_normal((VOCABULARY, self.width))
        layers = rng.standard_normal((self.layers, self.width, self.width)) / np.sqrt(self.width)
        return embedding, layers, 1.0 + 0.3 * rng.standard_normal(self.width)

    def model(self) -> Model:
        return Model(self.layers, self.width, self.weights()[2].astype(np.float32))

    @cache  # noqa: B019
    def run(self, ids: tuple[int, ...], engine: int | None = None, flips: float = 0.0) -> States:
        """All boundaries and final_norm. `engine`: seed of its rounding; None computes exactly.

        `flips`: share of tokens per layer whose update is replaced by an equally large other one (expert
        routing).
        """
        embedding, layers, norm = self.weights()
        rng = np.random.default_rng(None if engine is None else (engine, *ids))
        state = embedding[np.asarray(ids)]
        states = {"boundary.000": state}
        for k in range(self.layers):
            update = 1.2 * np.tanh(state @ layers[k])
            if k == 1:
                update[:, MASSIVE] += 25.0
                update[0, MASSIVE] += 2000.0
            if engine is not None:
                update = update * (1 + 2.0**-9 * rng.standard_normal(update.shape))
                hit = rng.random(len(update)) < flips
                update[hit] = 1.2 * np.tanh(state[hit] @ layers[k].T)
            state = state + update
            if engine is not None:
                state = torch.from_numpy(state).bfloat16().double().numpy()
            states[f"boundary.{k + 1:03d}"] = state
        states["final_norm"] = rms_norm(state, norm)
        return states


TOY = Toy()


def rms_norm(state: np.ndarray, norm: np.ndarray) -> np.ndarray:
    return state / np.sqrt((state**2).mean(1, keepdims=True) + EPS) * norm


def prompts(count: int = 8, length: int = 24, seed: int = 3) -> dict[str, list[int]]:
    rng = np.random.default_rng(seed)
    return {f"p{i}": rng.integers(0, VOCABULARY, length).tolist() for i in range(count)}


@dataclass(frozen=True)
class Capture:
    """What to write: states per prompt, and rows in the order given by `positions` where some are left out or
    moved."""

    states: Mapping[str, States]
    ids: Mapping[str, Sequence[int]]
    engine: str = "vllm"
    version: str = "0.32.0"
    dtype: torch.dtype = torch.bfloat16
    positions: Mapping[str, Sequence[int]] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    norm: bool = True
    weights_sha256: str = ""
    prefill: Mapping[str, int] = field(default_factory=dict)
    toy: Toy = TOY
    split: bool = False  # one shard per half of the sites
    real: Model | None = None  # another model than the toy
    generated: Mapping[str, Sequence[int]] = field(default_factory=dict)
    steps: Mapping[str, Sequence[int]] = field(
        default_factory=dict
    )  # pass of each token; all in one otherwise

    @property
    def model(self) -> Model:
        return self.real or self.toy.model()

    def write(self, folder: Path) -> Path:
        (folder / "shards").mkdir(parents=True)
        listed, shards = [], []
        for name, states in self.states.items():
            ids = list(self.ids[name])
            held = list(self.positions.get(name, range(len(ids))))
            tensors = {k: self._stored(k, v[held]) for k, v in states.items()}
            keys = list(tensors)
            groups = [keys[: len(keys) // 2], keys[len(keys) // 2 :]] if self.split else [keys]
            for g, group in enumerate(groups):
                shards.append(
                    self._shard(
                        folder,
                        f"{len(listed):05d}.g{g}",
                        name=name,
                        ids=ids,
                        held=held,
                        tensors=tensors,
                        group=group,
                    )
                )
            missing = tuple((p, p + 1) for p in range(len(ids)) if p not in set(held))
            prefill = self.prefill.get(name, len(ids))
            digest, generated = token_ids_sha256(ids), tuple(self.generated.get(name, ()))
            listed.append(Prompt(name, len(ids), prefill, len(held), missing, digest, generated))
        model = self.model
        manifest = CaptureManifest(
            schema=SCHEMA,
            engine=self.engine,
            engine_version=self.version,
            model=model.name,
            revision="",
            architecture=model.architecture,
            weights_sha256=self.weights_sha256,
            num_layers=model.layers,
            hidden_size=model.width,
            dtype=str(self.dtype).removeprefix("torch."),
            settings={"mode": "eager", "tp": 1, **self.settings},
            environment={},
            native_labels=dict(self.labels),
            prompts=tuple(listed),
            shards=tuple(shards),
            spec_sha256="",
            status="complete",
            norm=self._norm(folder) if self.norm else None,
            model_config=dict(model.config),
        )
        (folder / "manifest.json").write_text(manifest.to_json())
        return folder

    def _shard(
        self,
        folder: Path,
        stem: str,
        *,
        name: str,
        ids: list[int],
        held: list[int],
        tensors: Mapping[str, torch.Tensor],
        group: Sequence[str],
    ) -> ShardEntry:
        rows = {
            "token_ids": torch.tensor(ids, dtype=torch.int32),
            "positions": torch.tensor(held, dtype=torch.int32),
            "steps": torch.tensor([self._steps(name, len(ids))[i] for i in held], dtype=torch.int32),
        }
        path = folder / "shards" / f"{stem}.safetensors"
        save_file({**rows, **{k: tensors[k] for k in group}}, path)
        data = path.read_bytes()
        digest = hashlib.sha256(data).hexdigest()
        return ShardEntry(f"shards/{path.name}", name, tuple(group), len(ids), len(data), digest)

    def _stored(self, key: str, rows: np.ndarray) -> torch.Tensor:
        dtype = torch.int32 if key.startswith("experts.") else self.dtype
        return torch.from_numpy(rows).to(dtype).contiguous()

    def _steps(self, name: str, tokens: int) -> Sequence[int]:
        return self.steps.get(name) or [0] * tokens

    def _norm(self, folder: Path) -> NormInfo:
        path = folder / "norm.safetensors"
        model = self.model
        save_file({"norm": torch.from_numpy(model.norm.copy())}, path)
        return NormInfo(path.name, model.eps, model.plus_one, hashlib.sha256(path.read_bytes()).hexdigest())


def capture(
    rounding: int | None = 1, flips: float = 0.0, toy: Toy = TOY, count: int = 8, length: int = 24, **kw: Any
) -> Capture:
    """An unharmed capture of the standard prompts; `rounding` is the engine's seed, None computes exactly."""
    ids = prompts(count, length)
    states = {name: toy.run(tuple(tokens), rounding, flips) for name, tokens in ids.items()}
    return Capture(states, ids, toy=toy, **kw)


def keep(states: States, sites: Sequence[str]) -> States:
    return {k: v for k, v in states.items() if k in sites}


def edited(made: Capture, change: Any, **kw: Any) -> Capture:
    """The capture with `change(prompt, states) -> states` applied to a deep copy of each prompt's states."""
    states = {name: change(name, {k: v.copy() for k, v in s.items()}) for name, s in made.states.items()}
    return replace(made, states=states, **kw)


def shifted(states: States, by: int, layers: int = LAYERS) -> States:
    """Every boundary relabelled: the new boundary k holds what was boundary k + by; those past the end are
    dropped."""
    found = {f"boundary.{k:03d}": states.get(f"boundary.{k + by:03d}") for k in range(layers + 1)}
    return {k: v for k, v in found.items() if v is not None}


def as_slots(states: States, boundaries: Sequence[int]) -> States:
    return {Site("slot", i).key: states[f"boundary.{b:03d}"] for i, b in enumerate(boundaries)}


def floors(
    folder: Path, toy: Toy = TOY, flips: float = 0.0, count: int = 8, length: int = 24
) -> list[Source]:
    """The two Transformers captures that make the bf16 floor."""
    exact = replace(
        capture(None, 0.0, toy, count, length), engine="hf", version="5.19.0", dtype=torch.float32
    )
    rounded = replace(capture(0, flips, toy, count, length), engine="hf", version="5.19.0")
    return [open_source(exact.write(folder / "hf-fp32")), open_source(rounded.write(folder / "hf-bf16"))]


def plain(
    folder: Path, made: Capture, slots: Sequence[dict[str, Any]], keys: Sequence[str], **model: Any
) -> Path:
    """The same states in the plain form; slot i holds site `keys[i]`."""
    folder.mkdir(parents=True)
    described = {"name": "toy", "num_layers": made.toy.layers, "hidden_size": made.toy.width, **model}
    (folder / "plain.json").write_text(
        json.dumps({"format": "hsparity.plain/1", "model": described, "slots": list(slots)})
    )
    for name, states in made.states.items():
        held = list(made.positions.get(name, range(len(made.ids[name]))))
        stacked = np.stack([states[k][held] for k in keys], axis=1)
        tensors = {
            "token_ids": torch.tensor(list(made.ids[name]), dtype=torch.int64),
            "hidden_states": torch.from_numpy(stacked).to(made.dtype).contiguous(),
        }
        if name in made.positions:
            tensors["positions"] = torch.tensor(held, dtype=torch.int64)
        save_file(tensors, folder / f"{name}.safetensors")
    return folder
