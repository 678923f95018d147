"""Captures small enough to export many times, and what an export of one must hold."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from hsparity import registry
from hsparity.capture import exporting, exportplan, foreign
from hsparity.capture.exporting import Exported
from hsprobe.schema import SCHEMA, CaptureManifest, CaptureSpec, Prompt, PromptSpec, token_ids_sha256
from hsprobe.writer import CaptureWriter

FORMATS = ("speculators-v1", "speculators-v2", "specforge")
LAYERS, WIDTH = 4, 8


@dataclass(frozen=True)
class Made:
    """A prompt of a made capture. `rows`: which of its positions have states, all where it is None."""

    tokens: int
    prefill: int | None = None
    rows: tuple[int, ...] | None = None
    nan: bool = False


def ids_of(number: int, tokens: int) -> list[int]:
    return [(7 * number + 3 * k) % 50 for k in range(tokens)]


def states_of(number: int, key: str, made: Made) -> torch.Tensor:
    seed = 1000 * number + sum(map(ord, key))
    state = torch.randn(made.tokens, WIDTH, generator=torch.Generator().manual_seed(seed)).bfloat16()
    if made.nan and key == "boundary.002":
        state[1, 3] = float("nan")
    return state if made.rows is None else state[list(made.rows)]


def capture(out: Path, prompts: Sequence[Made], sites: Sequence[str] = ()) -> Path:
    """A finished capture of random states: boundaries 0 to L unless `sites` says else."""
    keys = tuple(sites) or tuple(f"boundary.{b:03d}" for b in range(LAYERS + 1))
    specs = tuple(PromptSpec(f"p{i}", tuple(ids_of(i, m.tokens))) for i, m in enumerate(prompts))
    writer = CaptureWriter(out, CaptureSpec("hf", "made", specs, keys))
    for i, made in enumerate(prompts):
        rows = list(range(made.tokens)) if made.rows is None else list(made.rows)
        absent = sorted(set(range(made.tokens)) - set(rows))
        ids = ids_of(i, made.tokens)
        prompt = Prompt(
            id=f"p{i}",
            tokens=made.tokens,
            prefill=made.prefill or made.tokens,
            rows=len(rows),
            missing=tuple((a, a + 1) for a in absent),
            token_ids_sha256=token_ids_sha256(ids),
        )
        tensors = {
            "token_ids": torch.tensor(ids, dtype=torch.int32),
            "positions": torch.tensor(rows, dtype=torch.int32),
            "steps": torch.zeros(len(rows), dtype=torch.int32),
        }
        writer.commit(i, prompt, tensors, {key: states_of(i, key, made) for key in keys}, {})
    done = list(writer.done.values())
    manifest = CaptureManifest(
        schema=SCHEMA,
        engine="hf",
        engine_version="1",
        model="made",
        revision="",
        architecture="LlamaForCausalLM",
        weights_sha256="",
        num_layers=LAYERS,
        hidden_size=WIDTH,
        dtype="bfloat16",
        settings={},
        environment={},
        native_labels={},
        prompts=tuple(c.prompt for c in done),
        shards=tuple(s for c in done for s in c.shards),
        spec_sha256=writer.spec.sha256(),
        status="complete",
    )
    writer.finish(manifest)
    return out


def exported(source: Path, out: Path, name: str, boundaries: str | None = "1,2,3") -> Exported:
    """What the command does, without its output."""
    dataset = foreign.open_dataset(source, str(source))
    writer = registry.writers()[name]
    plan = exportplan.plan(dataset, writer, None, boundaries)
    return exporting.export(plan.dataset, out, writer, plan.slots, plan.layout)
