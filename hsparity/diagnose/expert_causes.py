"""Causes that only a mixture of experts has."""

from __future__ import annotations

import math

import numpy as np

from hsparity.diagnose.common import needs_first_off, start_words, states, times
from hsparity.diagnose.facts import Facts
from hsparity.diagnose.places import EXACT
from hsparity.diagnose.routing import SHOWN, SMALL, Flip
from hsparity.diagnose.weighing import Hypothesis

ALONG = 0.2  # coherence of a scaled branch
MOST, FEW = 0.7, 0.2  # share of hit tokens whose experts differ
ONE_EXPERT = 0.8


def routing_flip(f: Facts) -> Hypothesis:
    h = Hypothesis("HS508", "moe-routing-flip", "tokens went to other experts")
    if _dense(f, h):
        return h
    if f.few:
        h.plus(1.5, f"few tokens carry the error; the median stands at {times(f.ratio)} the floor")
    elif f.profile is not None:
        h.minus(1.0, f"{start_words(f)}: it is not a few tokens")
    if f.start == "experts":
        h.plus(1.0, f"{start_words(f)}, the first behind a layer with experts")
    routing = f.routing
    if routing is None:
        h.against.append("the experts chosen were not captured on both sides")
        h.rival = "a wrong expert, or few rows of another kind: capturing the routers tells"
        return h
    share = _flipped(f)
    if math.isnan(share):
        return h
    if share >= MOST:
        h.plus(3.0, f"{share:.0%} of the tokens beyond the floor had other experts at an earlier layer")
        if math.isnan(routing.small):
            h.minus(
                2.0,
                "how near the ties were is not known: the scores captured do not order the experts chosen",
            )
            h.headline = "tokens went to other experts: by rounding, or by another router"
        elif routing.small >= 0.5:
            h.plus(1.0, f"{routing.small:.0%} of the choices were near ties (margin below {SMALL:g})")
        elif routing.small < FEW:
            h.headline = "the router chooses other experts: its bias, scoring or groups differ"
            h.minus(
                1.0, f"{routing.small:.0%} of the choices were near ties: it is not rounding that tipped them"
            )
        h.reasons += [flip_words(flip) for flip in routing.flips[:SHOWN]]
        h.share = share
    elif share <= FEW:
        h.out(f"{1 - share:.0%} of the tokens beyond the floor had the same experts on both sides")
    else:
        h.plus(1.0, f"{share:.0%} of the tokens beyond the floor had other experts at an earlier layer")
    h.rival = "an error upstream that moved the router's input"
    return h


def flip_words(flip: Flip) -> str:
    """prompt p3 position 17, layer 4: experts 1,6 -> 1,3, margin 0.02."""
    ref, cand = (",".join(map(str, side)) for side in (flip.ref, flip.cand))
    margin = "" if math.isnan(flip.margin) else f", margin {flip.margin:.2g}"
    return (
        f"prompt {flip.prompt} position {flip.position}, layer {flip.layer}: experts {ref} -> {cand}{margin}"
    )


def moe_scale(f: Facts) -> Hypothesis:
    h = Hypothesis("HS509", "moe-scale", "the experts' output is scaled otherwise")
    if _dense(f, h):
        return h
    needs_first_off(f, h, 0.5)
    states(f, h, "routed scaling", "normed expert", "shared experts", "experts per token")
    if f.first.word == EXACT:
        return h
    if f.start == "experts":
        h.plus(2.0, f"{start_words(f)}: dense layers agree")
    elif f.start == "later":
        h.minus(1.0, f"{start_words(f)}: earlier layers with experts are at the floor")
    if f.entry is not None and not f.few:
        if abs(f.entry.coherence) >= ALONG:
            more = "more" if f.entry.coherence > 0 else "less"
            h.plus(
                2.0,
                f"the update is {more} of the same (coherence {f.entry.coherence:+.2f}, gain {f.entry.gain:.3f})",
            )
        else:
            h.minus(
                1.0, f"the update is no multiple of the other side's (coherence {f.entry.coherence:+.2f})"
            )
    expert, held = _one_expert(f)
    if held >= ONE_EXPERT:
        h.plus(
            2.5, f"the error follows one expert: {held:.2f} correlation with the tokens of expert {expert}"
        )
        h.headline = f"expert {expert}'s output is scaled otherwise"
    flipped = _flipped(f)
    if flipped <= FEW:
        h.plus(1.0, f"{1 - flipped:.0%} of the tokens beyond the floor had the same experts on both sides")
    elif flipped >= MOST:
        h.minus(3.0, f"{flipped:.0%} of the tokens beyond the floor had other experts at an earlier layer")
    h.rival = "quantised experts, whose error has no direction; a router that chooses otherwise"
    return h


def _dense(f: Facts, h: Hypothesis) -> bool:
    """Rules experts out where there are none, or where layers without them are beyond the floor."""
    if not f.mine.routed:
        h.out("the model has no experts", quiet=True)
    elif f.dense_beyond:
        h.out(f"{start_words(f)}: layers without experts are off already")
    elif f.start == "embedding":
        h.out("the embeddings differ already", quiet=True)
    return bool(h.veto)


def _flipped(f: Facts) -> float:
    """Share of the tokens in the tail where the error enters whose experts differed at a layer before; NaN unknown."""
    if f.routing is None or f.profile is None or f.boundary is None:
        return math.nan
    if len(f.routing.first_n) != f.profile.error_kn.shape[1]:
        return math.nan
    hit = f.hit_n
    first = f.routing.first_n[hit]
    return float(((first >= 0) & (first < f.boundary)).mean()) if len(first) else math.nan


def _one_expert(f: Facts) -> tuple[int, float]:
    """The expert whose tokens are those in the tail, and how well (phi coefficient)."""
    routing, profile = f.routing, f.profile
    if routing is None or profile is None or f.layer not in routing.layers:
        return -1, 0.0
    chosen = routing.ref_kn[routing.layers.index(f.layer)]
    hit = f.hit_n
    if len(hit) != len(chosen) or hit.all() or not hit.any():
        return -1, 0.0
    best = (-1, 0.0)
    for expert in np.unique(chosen):
        member = (chosen == expert).any(1)
        if member.all() or member.sum() < 4:
            continue
        value = float(np.corrcoef(member, hit)[0, 1])
        best = max(best, (int(expert), value), key=lambda item: item[1])
    return best


ALL = (routing_flip, moe_scale)
