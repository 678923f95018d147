"""Which tokens carry the error: the first one, later ones, decoded ones, those behind an edge."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hsparity.diagnose.profile import Profile

EXACT, OFF, UNCLEAR = "exact", "off", "unclear"
NEAR = 1.3  # times the floor: position 0 of a healthy side stays below
APART = 1.6  # times that, later positions stand above: less is a token's own luck
CHANCE = 0.1  # of tokens that are like all others being spared by luck
FEWEST = 8  # tokens on each side of an edge
CLEAN, FILLED = 0.04, 0.6  # share of tokens in the tail before an edge and behind it
MOST_EDGES = 4096
WINDOW = 4  # positions on each side of an edge

Flags = NDArray[np.bool_]
Vector = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class First:
    """Position 0 against the later ones."""

    word: str  # EXACT, OFF or UNCLEAR
    ratio: float  # at position 0, over the floor at position 0
    later: float
    tokens: int


@dataclass(frozen=True, slots=True)
class Growth:
    """Rank correlation of error over floor with position, with its 95 % interval (Fisher's z)."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Edge:
    """A place before which tokens are at the floor, and behind which they are not."""

    kind: (
        str  # "position": one for all prompts; "pass": the first pass of a prompt; "token": the first such id
    )
    position: int  # of "position"
    before: float  # share of tokens in the tail before it
    behind: float
    explained: float  # share of the excess that lies behind it


def first_token(profile: Profile, k: int) -> First:
    """Whether position 0 is at the floor where the others are not, at boundary number k."""
    first = profile.tokens.first_n & np.isfinite(profile.error_kn[k])
    later = ~profile.tokens.first_n
    count = int(first.sum())
    if not count or not later.any():
        return First(UNCLEAR, math.nan, math.nan, count)
    at, beyond = profile.ratio(k, first), profile.beyond_n(k)
    rest = profile.ratio(k, later)
    if rest <= profile.limit:  # few tokens carry it: were the first ones spared by more than luck?
        share = float(beyond[later].mean())
        spared = not beyond[first].any() and (1.0 - share) ** count < CHANCE
        return First(EXACT if spared else UNCLEAR, at, rest, count)
    if at <= NEAR and rest >= APART * at:
        return First(EXACT, at, rest, count)
    word = OFF if at >= max(profile.limit, 0.5 * rest) else UNCLEAR
    return First(word, at, rest, count)


def growth(profile: Profile, k: int, one_kernel: bool = False, window: int | None = None) -> Growth | None:
    """How the error over the floor goes with position, behind position 0; None with too few tokens.

    Where both sides ran one kernel on one set of weights (`one_kernel`), they share their roundings, and the difference
    of the two shows what is below the floor of either. Behind a sliding window no token sees more keys than the last.
    """
    later = ~profile.tokens.first_n
    if window is not None:
        later &= profile.tokens.position_n < window
    if one_kernel:
        error, yard = profile.pair_kn[k][later], np.ones(int(later.sum()))
    else:
        error, yard = profile.error_kn[k][later], profile.yard_kn[k][later]
    positions = profile.tokens.position_n[later]
    with np.errstate(divide="ignore", invalid="ignore"):
        x = np.log(error / yard)
    known = np.isfinite(x)
    return correlation(x[known], positions[known].astype(np.float64))


def correlation(one: Vector, other: Vector) -> Growth | None:
    """Spearman's rank correlation with a 95 % interval; None with fewer than 16 values or no spread."""
    if len(one) < 16 or np.ptp(one) == 0 or np.ptp(other) == 0:
        return None
    value = float(np.corrcoef(_ranks(one), _ranks(other))[0, 1])
    z, reach = math.atanh(max(-0.999999, min(0.999999, value))), 1.96 * 1.06 / math.sqrt(len(one) - 3)
    return Growth(value, math.tanh(z - reach), math.tanh(z + reach))


def _ranks(values: Vector) -> Vector:
    _, place, counts = np.unique(values, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    middle: Vector = (ends - (counts - 1) / 2.0)[place]
    return middle


def excess(profile: Profile, k: int) -> Vector:
    """Positive log10 of error over limit x the yardstick's 95th percentile, [N]; 0 within."""
    with np.errstate(divide="ignore", invalid="ignore"):
        value = np.log10(profile.error_kn[k] / (profile.limit * np.nanquantile(profile.yard_kn[k], 0.95)))
    return np.maximum(np.nan_to_num(value, nan=0.0, neginf=0.0), 0.0)


def edge(profile: Profile, k: int, behind: Flags, kind: str, position: int = -1) -> Edge | None:
    """The edge that `behind` [N] makes, when tokens before it are at the floor and those behind it are not."""
    known = np.isfinite(profile.error_kn[k])
    inside, outside = known & behind, known & ~behind
    if inside.sum() < FEWEST or outside.sum() < FEWEST:
        return None
    beyond = profile.beyond_n(k)
    shares = float(beyond[outside].mean()), float(beyond[inside].mean())
    # An edge also moves the medians of the two parts apart.
    apart = profile.ratio(k, inside) > profile.limit > profile.ratio(k, outside)
    if shares[0] > CLEAN or shares[1] < FILLED or not apart:
        return None
    carried = excess(profile, k)
    total = float(carried.sum())
    return Edge(kind, position, *shares, float(carried[behind].sum()) / total if total > 0 else 0.0)


def step(profile: Profile, k: int) -> Edge | None:
    """The position, one for all prompts, that parts tokens at the floor from tokens beyond it best."""
    positions = profile.tokens.position_n
    beyond = profile.beyond_n(k).astype(np.float64)
    wanted = np.unique(positions)[1:]
    if not len(wanted) or len(wanted) > MOST_EDGES:
        return None
    order = np.argsort(positions, kind="stable")
    counts = np.searchsorted(positions[order], wanted)
    hit = np.concatenate(([0.0], np.cumsum(beyond[order])))
    # Right on both sides: at the floor before, beyond behind.
    right = (counts - hit[counts]) + (hit[-1] - hit[counts])
    at = int(wanted[int(np.argmax(right))])
    found = edge(profile, k, positions >= at, "position", at)
    # What grows with position crosses any threshold slowly.
    before, behind = ((positions >= start) & (positions < start + WINDOW) for start in (at - WINDOW, at))
    sharp = profile.ratio(k, before) <= NEAR and beyond[behind].mean() >= 0.5
    return found if at >= 2 * WINDOW and sharp else None


def chunks(profile: Profile, k: int, side: str) -> Edge | None:
    """Tokens of a prompt's later prefill passes against those of its first one."""
    passes = profile.tokens.passes(side)
    if not passes.known:
        return None
    later = (passes.start_n > 0) & ~passes.decode_n
    return edge(profile, k, later, "pass", int(passes.start_n[later].min())) if later.any() else None


def since(profile: Profile, k: int, chosen: Flags) -> Edge | None:
    """Tokens from the first chosen one of their prompt on, against those before and prompts without one."""
    first = np.full(int(profile.tokens.prompt_n.max()) + 1, np.iinfo(np.int64).max)
    np.minimum.at(first, profile.tokens.prompt_n[chosen], profile.tokens.position_n[chosen])
    return edge(profile, k, profile.tokens.position_n >= first[profile.tokens.prompt_n], "token")
