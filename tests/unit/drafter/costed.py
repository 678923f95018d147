"""A toy target, its captures, and a head whose drafts come true when it is fed the states that it was fitted on."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from hsparity.capture.read import open_source
from hsparity.capture.source import Source
from hsparity.drafter import costing
from hsparity.drafter.chain import run
from hsparity.drafter.costing import Asked
from hsparity.drafter.draft import open_draft
from hsparity.drafter.feedings import Feeding, fed_rows
from hsparity.drafter.head import load_head
from hsparity.drafter.measurement import Step
from hsparity.drafter.result import DraftCost
from hsparity.drafter.undoing import Served
from tests.causes.streams import EPS, Capture, States, Toy, edited

from .heads import make_head

COUNT, LENGTH, PREFILL, STEPS = 5, 28, 5, 3
IDS = (2, 4, 5)  # of the head's config, and what every engine feeds of eight layers by default
HIDDEN = 256  # of the head
ENGINES = {"vllm": "0.32.0", "sglang": "0.5.23", "hf": "5.19.0"}
VOCABULARY = 140


@dataclass(frozen=True)
class Large(Toy):
    """A toy with a token for every row: a state tells whose it is."""

    @cache  # noqa: B019  (a frozen value: equal toys share one entry)
    def weights(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        _, layers, norm = Toy(self.layers, self.width, self.seed).weights()
        embedding = np.random.default_rng(self.seed).standard_normal((VOCABULARY, self.width))
        return embedding, layers, norm


TOY = Large()
MODEL = replace(TOY.model(), architecture="LlamaForCausalLM")


def texts(count: int = COUNT, length: int = LENGTH) -> dict[str, list[int]]:
    """Tokens in no order, each once: what the head knows of them it knows from the states."""
    drawn = np.random.default_rng(11).permutation(VOCABULARY).tolist()
    return {f"p{i}": drawn[i * LENGTH : i * LENGTH + length] for i in range(count)}


def captured(
    rounding: int | None = 1, engine: str = "vllm", count: int = COUNT, length: int = LENGTH, **given: Any
) -> Capture:
    """A healthy capture of the texts, all but the first PREFILL tokens of each written by the target."""
    ids = texts(count, length)
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
    """The toy's checkpoint: its embedding, its final norm, and an lm_head with which it writes the texts."""
    folder.mkdir(parents=True)
    embedding, _, norm = TOY.weights()
    states, following = [], []
    for tokens in texts().values():
        states.append(TOY.run(tuple(tokens), None)["final_norm"][:-1])
        following += tokens[1:]
    tensors = {
        "model.embed_tokens.weight": embedding,
        "model.norm.weight": norm,
        "lm_head.weight": fitted(np.concatenate(states), following, 1e-4),
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


def fitted(states_nh: np.ndarray, tokens: Sequence[int], ridge: float) -> np.ndarray:
    """The lm_head [V, H] that is nearest to choosing these tokens, by least squares."""
    wanted = np.eye(VOCABULARY)[list(tokens)]
    gram = states_nh.T @ states_nh + ridge * len(states_nh) * np.eye(states_nh.shape[1])
    found: np.ndarray = 20 * np.linalg.solve(gram, states_nh.T @ wanted).T
    return found


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
    for tokens in texts().values():
        states = TOY.run(tuple(tokens), None)
        fed = torch.from_numpy(np.concatenate([states[k] for k in keys], axis=1)).float()
        ids = torch.tensor(tokens)
        made = run(head, fed, ids, STEPS)
        for j in range(1, STEPS + 1):
            count = len(tokens) - 1 - j
            rows.append(made[j - 1, :count])
            wanted.append(ids[j + 1 :])
    tensors = load_file(folder / "model.safetensors")
    found = fitted(torch.cat(rows).double().numpy(), torch.cat(wanted).tolist(), ridge)
    tensors["lm_head.weight"] = torch.from_numpy(found).float().contiguous()
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def write_floors(folder: Path, count: int = COUNT) -> list[Source]:
    """The two Transformers captures of the texts that make the bf16 floor."""
    exact = captured(None, "hf", count, dtype=torch.float32)
    return [
        open_source(exact.write(folder / "hf-fp32")),
        open_source(captured(0, "hf", count).write(folder / "hf-bf16")),
    ]


@dataclass(frozen=True, eq=False)
class World:
    """What a cost is measured in; a candidate is all that is lacking."""

    folder: Path
    target: Path
    head: Path
    ref: Source
    floors: list[Source]

    @cached_property
    def healthy(self) -> Source:
        """Another engine's capture without a fault."""
        return open_source(captured(2, "sglang").write(self.folder / "healthy"))

    def price(
        self, cand: Source, ref: Source | None = None, head: Path | None = None, **asked: Any
    ) -> Priced:
        """The cost of a candidate, and the feedings that it was measured with."""
        floors = asked.pop("floors", self.floors)
        seen: list[Any] = []
        with pytest.MonkeyPatch.context() as patch:
            for name in ("feedings", "shifts"):
                patch.setattr(costing, name, _watched(getattr(costing, name), seen))
            draft = open_draft(str(head or self.head))
            found = costing.cost(draft, ref or self.ref, cand, floors, Asked(model=str(self.target), **asked))
        served = seen[0][0]
        return Priced(found, served, {f.key: f for _, feedings in seen for f in feedings})


@dataclass(frozen=True, eq=False)
class Priced:
    cost: DraftCost
    served: Served
    feedings: dict[str, Feeding]

    def fed(self, key: str) -> list[torch.Tensor]:
        """What the head was fed, slot by slot, all prompts' rows one after the other: [N, H] each."""
        feeding, originals = self.feedings[key], self.served.parts[0]
        rows = [fed_rows(feeding, p, originals) for p in self.served.evidence.rows.prompts]
        return list(torch.cat(rows).chunk(len(feeding.parts), dim=1))

    def change(self, key: str) -> float:
        found = self.cost.feed(key).change
        assert found is not None
        return found.value


def _watched(
    function: Callable[[Served], list[Feeding]], seen: list[Any]
) -> Callable[[Served], list[Feeding]]:
    """The same function, which keeps what it was given and what it made."""

    def watched(served: Served) -> list[Feeding]:
        made = function(served)
        seen.append((served, made))
        return made

    return watched


def make_world(folder: Path) -> World:
    target = write_target(folder / "target")
    head = write_head(folder / "head", target)
    ref = open_source(captured(1).write(folder / "ref"))
    return World(folder, target, head, ref, write_floors(folder))


def rows_of(source: Source, key: str) -> torch.Tensor:
    """A site of all prompts, float32 [N, H]."""
    return torch.cat([source.rows(p.id, key, np.arange(p.rows)).float() for p in source.prompts])


def apart(one: torch.Tensor, two: torch.Tensor) -> float:
    """The median over rows of |one - two| / |two|."""
    return float(((one - two).norm(dim=1) / two.norm(dim=1)).median())


def counters(steps: Sequence[Step], k: int) -> dict[str, Any]:
    """What vLLM counts of these steps."""
    return {
        "vllm:spec_decode_num_drafts": len(steps),
        "vllm:spec_decode_num_accepted_tokens_per_pos": [
            sum(s.accepted > j for s in steps) for j in range(k)
        ],
    }
