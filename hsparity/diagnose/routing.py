"""The experts chosen on each side, where both captured them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hsparity.capture.source import Source
from hsparity.evidence import Evidence
from hsprobe.schema import Site

SHOWN = 6
ROUNDED = 0.02  # deviations: two scores this near may stand the other way round in the engine's own dtype
SMALL = 0.1  # margin to the next expert, in standard deviations of the token's router logits


@dataclass(frozen=True, slots=True)
class Flip:
    """One token whose experts differ, at the first layer where they do."""

    prompt: str
    position: int
    layer: int
    ref: tuple[int, ...]
    cand: tuple[int, ...]
    margin: float  # last chosen over first not chosen, by the reference's scores; NaN without router logits


@dataclass(frozen=True, slots=True, eq=False)
class Routing:
    """N aligned tokens over the layers whose experts both sides captured."""

    layers: tuple[int, ...]
    first_n: NDArray[np.int64]  # first layer whose experts differ; -1: none
    flips: tuple[Flip, ...]  # smallest margin first
    small: float  # share of the flips with a small margin; NaN without router logits
    ref_kn: tuple[NDArray[np.int64], ...]  # per layer the reference's experts [N, top_k]


def routing_of(evidence: Evidence) -> Routing | None:
    """None where no layer's experts were captured on both sides."""
    shared = set(evidence.ref.sites()) & set(evidence.cand.sites())
    layers = sorted(s.index for s in map(Site.parse, shared) if s.kind == "experts")
    if not layers:
        return None
    first_n = np.full(evidence.rows.tokens, -1, np.int64)
    flips, chosen = [], []
    for layer in layers:
        key = Site("experts", layer).key
        ref, cand = (_aligned(evidence, i, key) for i in (0, 1))
        if ref is None or cand is None:
            return None
        chosen.append(ref.astype(np.int64))
        differs = (np.sort(ref, 1) != np.sort(cand, 1)).any(1)
        margins = _margins(evidence, layer, ref)
        for n in np.flatnonzero(differs & (first_n < 0)):
            token = evidence.judge.token(int(n), 0.0)
            left, right = (tuple(sorted(int(e) for e in side[n])) for side in (ref, cand))
            margin = float("nan") if margins is None else float(margins[n])
            flips.append(Flip(token.prompt, token.position, layer, left, right, margin))
        first_n[differs & (first_n < 0)] = layer
    known = np.array([f.margin for f in flips])
    known = known[np.isfinite(known)]
    return Routing(
        tuple(layers),
        first_n,
        tuple(sorted(flips, key=lambda f: (np.nan_to_num(f.margin, nan=9.9), f.prompt, f.position))),
        float((known < SMALL).mean()) if len(known) else float("nan"),
        tuple(chosen),
    )


def _margins(evidence: Evidence, layer: int, experts: NDArray[np.float32]) -> NDArray[np.float64] | None:
    """Lowest score of a chosen expert over the highest of one that is not, [N], in deviations of the token's scores.

    Router logits order experts as their sigmoid or softmax does; a correction bias or a choice by groups is not in them.
    None where an expert was chosen over one with a higher score: then the scores do not say how near a tie was.
    """
    key = Site("router_logits", layer).key
    if key not in evidence.ref.sites():
        return None
    scores = _aligned(evidence, 0, key)
    if scores is None or experts.max() >= scores.shape[1]:
        return None
    picked = np.zeros(scores.shape, bool)
    np.put_along_axis(picked, experts.astype(np.int64), True, 1)
    if picked.all():
        return None
    gap = np.where(picked, scores, np.inf).min(1) - np.where(picked, -np.inf, scores).max(1)
    if (gap < -ROUNDED * scores.std(1)).any():
        return None
    found: NDArray[np.float64] = np.maximum(gap, 0.0) / np.maximum(scores.std(1), 1e-9)
    return found.astype(np.float64)


def _aligned(evidence: Evidence, side: int, key: str) -> NDArray[np.float32] | None:
    source: Source = (evidence.ref, evidence.cand)[side]
    parts = []
    for prompt in evidence.rows.prompts:
        if source.span(prompt.prompts[side], key) is None:
            return None
        parts.append(source.rows(prompt.prompts[side], key, prompt.rows[side]).float().numpy())
    return np.concatenate(parts)
