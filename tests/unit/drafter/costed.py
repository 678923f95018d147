"""A toy target, its captures, and a head whose drafts come true when it is fed the states that it was fitted on."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file, save_file

from hsparity.capture.read import open_source
from hsparity.capture.source import Source
from hsparity.drafter.chain import run
from hsparity.drafter.costing import Asked
from hsparity.drafter.costing import cost as measure
from hsparity.drafter.draft import Draft, open_draft
from hsparity.drafter.head import load_head
from hsparity.drafter.result import DraftCost
from tests.causes.streams import EPS, TOY, VOCABULARY, Capture, States, edited, floors, rms_norm

from .heads import make_head

COUNT, LENGTH, PREFILL, STEPS = 10, 36, 6, 3
IDS = (2, 4, 5)  # of the head's config, and what every engine feeds of eight layers by default
HIDDEN = 192  # of the head
ENGINES = {"vllm": "0.32.0", "sglang": "0.5.23", "hf": "5.19.0"}
MODEL = replace(TOY.model(), architecture="LlamaForCausalLM")


def texts(count: int = COUNT, length: int = LENGTH) -> dict[str, list[int]]:
    """Tokens drawn at random: what the head knows of them it knows from the states."""
    rng = np.random.default_rng(11)
    return {f"p{i}": rng.integers(0, VOCABULARY, length).tolist() for i in range(count)}


def captured(rounding: int | None = 1, engine: str = "vllm", count: int = COUNT, **given: Any) -> Capture:
    """A healthy capture of the texts, all but the first PREFILL tokens of each written by the target."""
    ids = texts(count)
    return Capture(
        {name: TOY.run(tuple(tokens), rounding) for name, tokens in ids.items()},
        ids,
        **{
            "engine": engine,
            "version": ENGINES[engine],
            "prefill": dict.fromkeys(ids, PREFILL),
            "generated": {name: tokens[PREFILL:] for name, tokens in ids.items()},
            "real": MODEL,
            **given,
        },
    )


def slots(made: Capture, keys: Sequence[str], and_boundaries: bool = False) -> Capture:
    """The capture with slot i holding the site keys[i], and its own boundaries or none."""

    def change(_: str, states: States) -> States:
        handed = {f"slot.{i:02d}": states[key] for i, key in enumerate(keys)}
        return {**(states if and_boundaries else {}), **handed}

    return edited(made, change)


def write_target(folder: Path) -> Path:
    """The toy's checkpoint: its embedding, its final norm, an lm_head."""
    folder.mkdir(parents=True)
    embedding, _, norm = TOY.weights()
    rng = np.random.default_rng(5)
    tensors = {
        "model.embed_tokens.weight": embedding,
        "model.norm.weight": norm,
        "lm_head.weight": rng.standard_normal((VOCABULARY, TOY.width)) / 4,
    }
    save_file(
        {k: torch.from_numpy(v).float().contiguous() for k, v in tensors.items()},
        folder / "model.safetensors",
    )
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "num_hidden_layers": TOY.layers,
        "hidden_size": TOY.width,
        "vocab_size": VOCABULARY,
        "rms_norm_eps": EPS,
        "tie_word_embeddings": False,
    }
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def write_head(
    folder: Path,
    target: Path,
    keys: Sequence[str] = tuple(f"boundary.{k:03d}" for k in IDS),
    ridge: float = 1e-3,
    **given: Any,
) -> Path:
    """A random head whose lm_head is fitted by least squares: fed the exact states of `keys` it drafts the texts' own next
    tokens at every position of a chain."""
    make_head(
        folder,
        **{
            "hidden": HIDDEN,
            "vocab": VOCABULARY,
            "draft_vocab": VOCABULARY,
            "target_hidden": TOY.width,
            "ids": IDS,
            "slots": len(keys),
            **given,
        },
    )
    head = load_head(open_draft(str(folder)), target)
    rows, wanted = [], []
    for name, tokens in texts().items():
        states = TOY.run(tuple(tokens), None)
        fed = torch.from_numpy(np.concatenate([states[k] for k in keys], axis=1)).float()
        ids = torch.tensor(tokens)
        made = run(head, fed, ids, STEPS)
        for j in range(1, STEPS + 1):
            count = len(tokens) - 1 - j
            rows.append(made[j - 1, :count])
            wanted.append(ids[j + 1 :])
    x, y = torch.cat(rows).double(), torch.eye(VOCABULARY, dtype=torch.float64)[torch.cat(wanted)]
    solved = torch.linalg.solve(x.T @ x + ridge * len(x) * torch.eye(HIDDEN, dtype=torch.float64), x.T @ y)
    tensors = load_file(folder / "model.safetensors")
    tensors["lm_head.weight"] = (20 * solved.T).float().contiguous()
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def write_floors(folder: Path, count: int = COUNT) -> list[Source]:
    """The two Transformers captures of the texts that make the bf16 floor."""
    exact = captured(None, "hf", count, dtype=torch.float32)
    return [
        open_source(exact.write(folder / "hf-fp32")),
        open_source(captured(0, "hf", count).write(folder / "hf-bf16")),
    ]
