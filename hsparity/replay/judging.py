"""From figures per token to verdicts: every part of every layer against its own floor, by the tests of `floor`.

A layer is held to the floor's own limit. A part of it is, too, when its layer is beyond: then the question is which
part does it. In a layer that stays within, a part accuses on its own only beyond TRUNCATING times that limit: one
kernel that truncates where Transformers rounds has an error uniform over a whole unit in the last place instead of
half a unit either way, twice the root mean square, and that is a choice, not a fault (the attention of vLLM's CPU
backend stands at 1.55 to 1.63 times its floor, its output 0.3 to 0.7 % short).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hsparity import floor
from hsparity.deltas import quantiles
from hsparity.floor import Bootstrap, Ceiling, Errors
from hsparity.model import Verdict
from hsparity.replay.figures import NOT_FINITE, Figures, odd_expert, without_gain
from hsparity.replay.inputs import Side
from hsparity.replay.result import Added

LIMIT = floor.LIMIT
TRUNCATING = 2.0
# Choices of experts that rounding does not explain: one may be a token that amplifies it, three are not.
WIDE = 3
WORST = (Verdict.DIVERGED, Verdict.INCONCLUSIVE, Verdict.PARITY)


@dataclass(frozen=True, slots=True, eq=False)
class Measured:
    """The figures of one part of one layer of one side."""

    side: Side
    weights: str  # "own" | "other"
    layer: int
    kind: str
    figures: Figures


def judge_all(measured: Sequence[Measured]) -> tuple[Added, ...]:
    """A verdict for each. Sites are what is tested at once: every part of every layer, for the bulk's interval and the
    extremes' count."""
    sites = len(measured)
    bootstraps = {id(m.side): Bootstrap.over(m.side.lengths) for m in measured}
    ceilings = {key: _ceiling(measured, key) for key in {_family(m) for m in measured}}

    def judge(m: Measured, limit: float) -> Added:
        return _judge(m, bootstraps[id(m.side)], ceilings[_family(m)], sites, limit)

    layers = {_layer(m): judge(m, LIMIT) for m in measured if m.figures.part == "layer"}
    made: list[Added] = []
    for m in measured:
        whole = layers.get(_layer(m))
        if m.figures.part == "layer" and whole is not None:
            made.append(whole)
            continue
        # An output that is not finite says nothing of the parts.
        within = whole is not None and (whole.verdict is Verdict.PARITY or whole.lost > 0)
        made.append(judge(m, LIMIT * TRUNCATING if within else LIMIT))
    return tuple(made)


def _layer(m: Measured) -> tuple[int, str, int]:
    return id(m.side), m.weights, m.layer


def _family(m: Measured) -> tuple[int, str, str, str]:
    return id(m.side), m.weights, m.figures.part, m.kind


def _ceiling(measured: Sequence[Measured], key: tuple[int, str, str, str]) -> tuple[Ceiling, Ceiling]:
    """What counts as an extreme: the floor's third largest of the part's layers stands in for each where expert
    choices were not told apart."""
    mine = [m for m in measured if _family(m) == key]
    routed = key[3] == "moe" and any(not m.figures.left_out and m.figures.differ < 0 for m in mine)
    return (
        floor.ceiling([m.figures.yard for m in mine], routed),
        floor.ceiling([m.figures.yard_rest for m in mine], routed),
    )


def _judge(
    m: Measured, bootstrap: Bootstrap, tops: tuple[Ceiling, Ceiling], sites: int, limit: float
) -> Added:
    f, role = m.figures, m.side.role
    pairs = [(Errors(role, f.error, f.yard), tops[0])]
    if f.part != "router":
        pairs.append((Errors(f"{role} rest", f.rest, f.yard_rest), tops[1]))
    sets = len(pairs)
    judged = [(e, floor.judge(e, bootstrap, top, sites, limit, sets)) for e, top in pairs]
    errors, ratio = min(judged, key=lambda found: WORST.index(found[1].verdict))
    verdict, reason = ratio.verdict, ratio.reason.partition(": ")[2]
    low, high = ratio.low, ratio.high
    if math.isfinite(ratio.median):
        interval = floor.simultaneous(errors, bootstrap, sites * sets)
        low, high = interval.low_all, interval.high_all
    if f.part == "router" or (f.part == "layer" and f.wide > 0):
        verdict, reason = _choices(f, verdict, reason)
    expert = odd_expert(f, LIMIT) if verdict is Verdict.DIVERGED and f.part in ("layer", "mlp") else -1
    reason += f"; in tokens that expert {expert} serves" if expert >= 0 else ""
    gain = float(np.nanmedian(f.gain)) if np.isfinite(f.gain).any() else math.nan
    left = math.nan
    if math.isfinite(ratio.median):
        left = float(np.nanmedian(without_gain(f)) / np.nanmedian(f.yard))
    if verdict is Verdict.DIVERGED and left <= LIMIT < ratio.median:
        reason += f"; a constant factor of {gain:.3f} is all of it"
    lost = int((f.error == NOT_FINITE).sum())
    if lost:
        verdict, reason = (
            Verdict.DIVERGED,
            f"{floor.tokens_of(lost)} not finite (NaN or Inf) in the captured output",
        )
    known = np.isfinite(f.error) & (f.error != NOT_FINITE)
    at_first = f.error[f.first & known]
    return Added(
        side=role,
        weights=m.weights,
        layer=m.layer,
        kind=m.kind,
        part=f.part,
        tokens=int(known.sum()),
        error=quantiles(np.where(known, f.error, np.nan)),
        first=float(np.median(at_first)) if len(at_first) else math.nan,
        floor=quantiles(f.yard),
        ratio=ratio.median,
        low=low,
        high=high,
        gain=gain,
        verdict=verdict,
        reason=reason,
        experts_differ=f.differ,
        experts_wide=f.wide,
        margin=None if f.units is None or not len(f.units) else quantiles(f.units),
        left_out=f.left_out,
        ratio_without_gain=left,
        lost=lost,
        expert=expert,
    )


def _choices(f: Figures, verdict: Verdict, reason: str) -> tuple[Verdict, str]:
    """The verdict with the expert choices taken in: those that rounding explains change nothing."""
    if f.differ < 0:
        return verdict, reason
    if f.wide >= WIDE:
        words = f"{floor.tokens_of(f.wide)} chose experts by more than the router's rounding explains"
        return Verdict.DIVERGED, words
    if f.wide > 0 and verdict is not Verdict.DIVERGED:
        words = f"{floor.tokens_of(f.wide)} chose an expert that the router's rounding hardly explains"
        return Verdict.INCONCLUSIVE, words
    if not np.isfinite(f.error).any():  # the choice alone was captured
        if f.wide < 0:
            return (Verdict.PARITY if not f.differ else Verdict.INCONCLUSIVE), f"{f.differ} choices differ"
        return Verdict.PARITY, f"{f.differ} choices differ, all within the router's rounding"
    return verdict, reason
