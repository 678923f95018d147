"""What each layer adds to the error, from the states of neighbouring boundaries of a sample of tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from hsparity.capture.source import Source
from hsparity.diagnose.places import Growth, correlation
from hsparity.evidence import Evidence
from hsprobe.schema import Site

SAMPLE_BYTES = 64 << 20  # of one capture
MOST_TOKENS, FEWEST_TOKENS = 256, 8
TOP_CHANNELS = 0.01

Vector = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Update:
    """One layer's update on the accused side, against the same layer's update in truth, over n tokens.

    Truth is the fp32 capture, or the other side without one. A free-running comparison: behind the first layer beyond
    the floor, new error and propagated error are one.
    """

    layer: int  # 0-based
    error: float  # median |difference| / |true update|
    floor: float  # the same of the bf16 capture; NaN without one
    # Median cosine between difference and true update: 0 for errors of no direction, as roundings are.
    coherence: float
    gain: float  # median <update, true update> / |true update|^2
    shift: float  # median log of the norm of the state behind it over the true one's
    channels: float  # share of the squared difference in its top 1 % of channels
    channels_floor: float  # the same of the bf16 capture
    by_norm: Growth | None  # rank correlation of the error over the floor with the norm of the layer's input

    @property
    def ratio(self) -> float:
        """Error over floor."""
        return self.error / self.floor if self.floor > 0 else float("nan")


def updates_of(evidence: Evidence, side: str) -> tuple[Update, ...]:
    """Every layer whose input and output boundaries all captures hold; empty without such, or with few tokens."""
    roles, sources = evidence.judge.terms.roles, evidence.sources
    accused = 0 if side == "ref" else 1
    true = roles.fp32 if roles.fp32 is not None else 1 - accused
    used = {"it": accused, "true": true, **({} if roles.bf16 is None else {"bf16": roles.bf16})}
    keys = [p.ref if accused == 0 else p.cand for p in evidence.pairs]
    names = {p.boundary: key for p, key in zip(evidence.pairs, keys, strict=True) if p.boundary is not None}
    layers = [r for r in sorted(names) if r + 1 in names]
    rows = _sample(evidence, tuple(used.values()), len(names))
    if not layers or sum(len(next(iter(r.values()))) for _, r in rows) < FEWEST_TOKENS:
        return ()

    def state(role: str, boundary: int) -> torch.Tensor | None:
        place = used[role]
        own = names[boundary] if place == accused else _other(evidence, place, boundary)
        parts = [_read(sources[place], prompts[place], own, taken[place]) for prompts, taken in rows]
        return None if any(part is None for part in parts) else torch.cat([p for p in parts if p is not None])

    found, before = [], {role: state(role, layers[0]) for role in used}
    for layer in layers:
        if layer and layer - 1 not in layers:
            before = {role: state(role, layer) for role in used}
        after = {role: state(role, layer + 1) for role in used}
        made = _update(layer, before, after)
        if made is not None:
            found.append(made)
        before = after
    return tuple(found)


def _other(evidence: Evidence, place: int, boundary: int) -> str:
    pair = next(p for p in evidence.pairs if p.boundary == boundary)
    return (pair.ref, pair.cand)[place] if place < 2 else Site("boundary", boundary).key


def _update(
    layer: int, before: dict[str, torch.Tensor | None], after: dict[str, torch.Tensor | None]
) -> Update | None:
    made = {r: after[r] - before[r] for r in after if after[r] is not None and before[r] is not None}  # type: ignore[operator]
    if "it" not in made or "true" not in made:
        return None
    true, start = made["true"], before["true"]
    assert start is not None
    size = true.norm(dim=1)
    kept = torch.isfinite(made["it"]).all(1) & torch.isfinite(true).all(1) & (size > 0)
    if int(kept.sum()) < FEWEST_TOKENS:
        return None
    diff = (made["it"] - true)[kept]
    true, size = true[kept], size[kept]
    along = (diff * true).sum(1)
    error = diff.norm(dim=1) / size
    ends = [after[r][kept].norm(dim=1) for r in ("it", "true")]  # type: ignore[index]
    floor, channels_floor, yard = float("nan"), float("nan"), torch.ones_like(error)
    if "bf16" in made:
        rounding = made["bf16"][kept] - true
        yard = (rounding.norm(dim=1) / size).clamp(min=1e-6)
        floor, channels_floor = float(yard.median()), _concentration(rounding)
    with np.errstate(divide="ignore", invalid="ignore"):
        x = np.log((error / yard).double().numpy())
        norms = np.log(start[kept].norm(dim=1).double().numpy())
    known = np.isfinite(x) & np.isfinite(norms)
    return Update(
        layer,
        float(error.median()),
        floor,
        float((along / (diff.norm(dim=1) * size).clamp(min=1e-30)).median()),
        float((1.0 + along / size.square()).median()),
        float((ends[0] / ends[1].clamp(min=1e-30)).log().median()),
        _concentration(diff),
        channels_floor,
        correlation(x[known], norms[known]),
    )


def _concentration(diff: torch.Tensor) -> float:
    energy = diff.square().sum(0)
    top = energy.topk(max(1, round(len(energy) * TOP_CHANNELS))).values.sum()
    return float(top / energy.sum().clamp(min=1e-30))


def _sample(
    evidence: Evidence, used: Sequence[int], boundaries: int
) -> list[tuple[tuple[str, ...], dict[int, NDArray[np.int64]]]]:
    """(names of a prompt, rows per capture) of tokens that all captures hold, evenly spread over the aligned ones."""
    width = evidence.ref.manifest.hidden_size
    most = max(FEWEST_TOKENS, min(MOST_TOKENS, SAMPLE_BYTES // max(1, 2 * width * boundaries)))
    step = max(1, -(-evidence.rows.tokens // most))
    found = []
    for prompt in evidence.rows.prompts:
        rows = np.arange(-prompt.start % step, len(prompt.positions), step)
        held = np.ones(len(rows), bool)
        for i in used:
            held &= prompt.rows[i][rows] >= 0
        if held.any():
            found.append((prompt.prompts, {i: prompt.rows[i][rows[held]] for i in used}))
    return found


def _read(source: Source, prompt: str, site: str, rows: NDArray[np.int64]) -> torch.Tensor | None:
    if not prompt or source.span(prompt, site) is None:
        return None
    return source.rows(prompt, site, rows).float()
