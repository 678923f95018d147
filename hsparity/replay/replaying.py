"""(ref, cand) -> Replay: one layer at a time, one checkpoint at a time."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch

from hsparity.capture.checkpoint import find_checkpoint, model_types
from hsparity.capture.source import Source
from hsparity.compare import check_models
from hsparity.errors import HsparityError
from hsparity.model import Verdict
from hsparity.replay.experts import stock_of
from hsparity.replay.figures import measure, run
from hsparity.replay.inputs import Side, open_side
from hsparity.replay.judging import LIMIT, Measured, judge_all
from hsparity.replay.layer import build
from hsparity.replay.result import SCHEMA, Replay, Replayed
from hsparity.replay.routing import Router
from hsparity.replay.sentences import headline, remarks
from hsparity.weights.checkpoint import Checkpoint

TOKENS = 4096

Progress = Callable[[float, float, str], None]


def replay(
    ref: Source,
    cand: Source | None = None,
    *,
    model: str = "",
    cand_model: str = "",
    layers: Sequence[int] | None = None,
    tokens: int = TOKENS,
    device: str = "",
    progress: Progress | None = None,
) -> Replay:
    """What each decoder layer adds on each side: its captured output against the layer replayed in float32 on its
    captured input, from the checkpoint's dequantised weights.

    `model` and `cand_model` name the checkpoints where the captures' own are not to be read; `layers` are 0-based, all
    that the captures hold unless given; at most `tokens` tokens of whole prompts are replayed; `device` is the first
    GPU, else the CPU. Where the two sides ran different checkpoints, each is replayed with the other's as well.
    Raises E107 (no checkpoint), E208 (another model's), E230 (no neighbouring boundaries), E231 (unknown quantisation),
    E232 (tensor absent), E233 (family), E234 (no whole prompt).
    """
    device = _device(device)
    if cand is not None:
        check_models(ref, cand)
    sides = [open_side("ref", ref, tokens)]
    if cand is not None:
        sides.append(open_side("cand", cand, tokens))
    folders = [find_checkpoint(ref.manifest, model)]
    if cand is not None:
        folders.append(find_checkpoint(cand.manifest, cand_model or model))
    checkpoints = {
        folder: _fitting(Checkpoint(folder), side) for folder, side in zip(folders, sides, strict=True)
    }
    wanted = _layers(sides, layers)
    measured: list[Measured] = []
    steps = len(wanted) * len(checkpoints)
    for done, (index, folder) in enumerate((i, f) for i in wanted for f in checkpoints):
        if progress is not None:
            progress(done, steps, f"layer {index}")
        mine = [
            (s, "own" if f == folder else "other")
            for s, f in zip(sides, folders, strict=True)
            if index in s.layers()
        ]
        if mine:
            measured += _replayed(checkpoints[folder], index, mine, device)
    if progress is not None:
        progress(steps, steps, "")
    added = judge_all(sorted(measured, key=_order))
    own = {a.verdict for a in added if a.weights == "own"}
    verdict = next((v for v in (Verdict.DIVERGED, Verdict.INCONCLUSIVE) if v in own), Verdict.PARITY)
    notes = [note for side in sides for note in side.notes]
    notes += remarks(added, LIMIT)
    notes += [f"{role}: weights {checkpoints[f].scheme.title}" for role, f in _named(sides, folders)]
    result = Replay(
        schema=SCHEMA,
        headline="",
        ref=ref.path,
        cand=cand.path if cand is not None else "",
        ref_model=str(folders[0]),
        cand_model=str(folders[-1]) if cand is not None else "",
        added=added,
        notes=tuple(notes),
        verdict=verdict,
        sides=tuple(_captured(source) for source in (ref, cand) if source is not None),
    )
    return headline(result)


def _captured(source: Source) -> Replayed:
    m = source.manifest
    tokens = sum(p.tokens for p in m.prompts)
    return Replayed(
        source.path, m.engine, m.engine_version, m.model, m.weights_sha256, len(m.prompts), tokens
    )


def _replayed(
    checkpoint: Checkpoint, index: int, sides: Sequence[tuple[Side, str]], device: str
) -> Iterator[Measured]:
    """Layer `index` of one checkpoint over the sides. One copy of its weights is held at a time."""
    stock = stock_of(checkpoint, index, device)
    layer = build(checkpoint, index, torch.float32, device, stock)
    router = None if layer.parts.router is None else Router.of(layer.parts.mlp, layer.parts.router)
    exact = [run(layer, side) for side, _ in sides]
    floors = {n: work for n, work in enumerate(exact) if work.side.dtype is torch.float32}
    del layer
    for dtype in dict.fromkeys(side.dtype for side, _ in sides if side.dtype is not torch.float32):
        gc.collect()
        layer = build(checkpoint, index, dtype, device, stock)
        floors |= {n: run(layer, side) for n, (side, _) in enumerate(sides) if side.dtype is dtype}
        del layer
    for n, (side, weights) in enumerate(sides):
        for figures in measure(exact[n], floors[n], router):
            yield Measured(side, weights, index, exact[n].kind, figures)


def _layers(sides: Sequence[Side], wanted: Sequence[int] | None) -> tuple[int, ...]:
    held = sorted({k for side in sides for k in side.layers()})
    if wanted is None:
        return tuple(held)
    missing = sorted(set(wanted) - set(held))
    if missing:
        raise HsparityError(
            "E230",
            f"no side holds the input and the output of layer {missing[0]}",
            (f"layers that can be replayed: {', '.join(map(str, held))}",),
            "hsparity capture … --sites 'boundary.*'",
        )
    return tuple(sorted(set(wanted)))


def _fitting(checkpoint: Checkpoint, side: Side) -> Checkpoint:
    """Raises E208 when the checkpoint is of another model than the side."""
    manifest, config = side.source.manifest, checkpoint.config
    families = model_types(manifest.model_config), model_types(config)
    told: list[tuple[str, Any, Any]] = [
        ("num_hidden_layers", manifest.num_layers, config.get("num_hidden_layers")),
        ("hidden_size", manifest.hidden_size, config.get("hidden_size")),
    ]
    if not families[0] & families[1]:
        own_type, stated_type = (", ".join(sorted(family)) for family in families)
        told.append(("model_type", own_type, stated_type))
    for key, own, stated in told:
        if own and stated and own != stated:
            notes = (f"capture     {key} {own}", f"checkpoint  {key} {stated}")
            message = f"{checkpoint.folder} is another model than {side.source.path}"
            raise HsparityError(
                "E208", message, notes, "name the checkpoint that the engine ran: --model PATH"
            )
    return checkpoint


def _device(asked: str) -> str:
    """Raises E103 for a device that torch does not know or this machine lacks."""
    if not asked:
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        torch.empty(1, device=asked)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        lines = str(error).splitlines() or [type(error).__name__]
        raise HsparityError(
            "E103", f"--device {asked}: not here", (lines[0],), "leave it out, or cpu"
        ) from None
    return asked


def _named(sides: Sequence[Side], folders: Sequence[Path]) -> list[tuple[str, Path]]:
    return [(side.role, folder) for side, folder in zip(sides, folders, strict=True)]


def _order(m: Measured) -> tuple[bool, bool, int, int]:
    parts = ("layer", "attention", "mlp", "router")
    return m.weights != "own", m.side.role != "ref", m.layer, parts.index(m.figures.part)
