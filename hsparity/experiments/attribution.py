"""How much of a difference each knob makes, from per-token squared distances.

v(S) is the squared distance of the two sides with the knobs of S set alike, in units of the distance with none of them
set alike: at each boundary the quantile over tokens of |x - y|^2 / |x|^2 over the same quantile before, averaged over
boundaries. The bulk is the median; the tail is the 95th percentile, because expert flips hit few tokens. The same tokens
stand in numerator and denominator, so a share is paired. Independent errors add in squares, so

    share(k) = (1 - v({k})) / (1 - floor)

is the part of the excess that is gone when k alone is set alike. Where knobs interact the shares are Shapley values (L. S.
Shapley, A value for n-person games, 1953): the mean over all orders of setting them alike of what k removes. Intervals are
95 % percentile bootstraps over prompts (over tokens below eight prompts), drawn once for every set.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import factorial

import numpy as np
from numpy.typing import NDArray

from hsparity.floor import Bootstrap

BULK, TAIL = 0.5, 0.95
MOST = 4  # knobs whose every subset is measured
CELLS = 20_000_000  # weights held at once

Vector = NDArray[np.float64]
Subset = frozenset[str]


@dataclass(frozen=True, slots=True)
class Share:
    """A part of 1 with its 95 % interval. Not clamped: noise may take it below 0 or above 1."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True, eq=False)
class Remaining:
    """v(S), and the same for every resample, [RESAMPLES]; of the bulk and of the tail."""

    bulk: float
    bulk_r: Vector
    tail: float
    tail_r: Vector


class Ledger:
    """The squared distances of one pair under every set of knobs that was tried, [boundaries, N] each.

    NaN marks tokens that a capture lacks. Tokens at distance 0 before anything was set alike tell nothing and are left out.
    """

    def __init__(self, before_bn: Vector, prompt_lengths: Sequence[int]) -> None:
        self.before_bn = np.asarray(before_bn, np.float64)
        self.bootstrap = Bootstrap.over(prompt_lengths)
        self.used = [b for b, row in enumerate(self.before_bn) if (row[np.isfinite(row)] > 0).any()]
        self._base: dict[tuple[int, bytes], tuple[Vector, Vector]] = {}

    @property
    def tokens(self) -> int:
        """Tokens that differ at some boundary."""
        with np.errstate(invalid="ignore"):
            return int((self.before_bn > 0).any(0).sum())

    def remaining(self, after_bn: Vector) -> Remaining:
        """v of a set whose squared distances are `after_bn`."""
        bulk, tail = [], []
        for b in self.used:
            before, after = self.before_bn[b], np.asarray(after_bn, np.float64)[b]
            with np.errstate(invalid="ignore"):
                keep = np.isfinite(before) & np.isfinite(after) & (before > 0)
            if not keep.any():
                continue
            key = (b, np.packbits(keep).tobytes())
            if key not in self._base:
                self._base[key] = self._quantiles(before, keep)
            old, new = self._base[key], self._quantiles(after, keep)
            bulk.append(new[0] / old[0])
            tail.append(new[1] / old[1])
        if not bulk:
            none = np.zeros(1)
            return Remaining(0.0, none, 0.0, none)
        left, end = np.mean(bulk, 0), np.mean(tail, 0)
        return Remaining(float(left[0]), left[1:], float(end[0]), end[1:])

    def _quantiles(self, values: Vector, keep: NDArray[np.bool_]) -> tuple[Vector, Vector]:
        """The median and the 95th percentile, [1 + RESAMPLES]: of the tokens as they are first."""
        known, cluster_n = values[keep], self.bootstrap.cluster_n[keep]
        order = np.argsort(known, kind="stable")
        ordered, weights = known[order], self.bootstrap.weights
        step = max(1, CELLS // max(len(ordered), 1))
        found: tuple[list[Vector], list[Vector]] = ([], [])
        blocks = [np.ones((1, len(ordered)), np.float32)]
        for start in range(0, len(weights), step):
            if start:
                blocks = []
            blocks.append(weights[start : start + step][:, cluster_n[order]])
            for block in blocks:
                summed = block.cumsum(1, dtype=np.float64)
                for place, q in enumerate((BULK, TAIL)):
                    at = (summed < q * summed[:, -1:]).sum(1)
                    found[place].append(ordered[np.minimum(at, len(ordered) - 1)])
        return np.concatenate(found[0]), np.concatenate(found[1])


def share(gain: float, gain_r: Vector, floor: float = 0.0, floor_r: Vector | None = None) -> Share:
    """A gain 1 - v(S), or a Shapley value of gains, over what can be gained, 1 - floor."""
    room_r = np.maximum(1.0 - (floor_r if floor_r is not None else np.full_like(gain_r, floor)), 1e-9)
    low, high = np.quantile(gain_r / room_r, (0.025, 0.975))
    return Share(gain / max(1.0 - floor, 1e-9), float(low), float(high))


def gains(found: Mapping[Subset, Remaining], tail: bool = False) -> dict[Subset, Vector]:
    """1 - v(S) of every set, [1 + RESAMPLES] with the estimate first."""
    made: dict[Subset, Vector] = {frozenset(): np.zeros(1)}
    for subset, left in found.items():
        pair = (left.tail, left.tail_r) if tail else (left.bulk, left.bulk_r)
        made[subset] = 1.0 - np.concatenate([[pair[0]], pair[1]])
    return made


def shapley(players: Sequence[str], gain: Mapping[Subset, Vector]) -> dict[str, Vector]:
    """Each player's Shapley value, [1 + RESAMPLES]. All subsets of `players` are in `gain`, or at least the singles, the
    whole and the whole less each: then the mean of what a player removes first and what it removes last."""
    whole = frozenset(players)
    complete = all(s in gain for s in subsets(players))
    result = {}
    for player in players:
        alone, rest = frozenset((player,)), whole - {player}
        if not complete:
            result[player] = 0.5 * (gain[alone] + gain[whole] - gain[rest])
            continue
        total: Vector = np.zeros(1)
        n = len(players)
        for other in subsets(rest):
            weight = factorial(len(other)) * factorial(n - len(other) - 1) / factorial(n)
            total = total + weight * (gain[other | {player}] - gain[other])
        result[player] = total
    return result


def subsets(players: Iterable[str]) -> list[Subset]:
    """Every set of players, smaller ones first; the empty one included."""
    names = sorted(players)
    return [frozenset(c) for n in range(len(names) + 1) for c in combinations(names, n)]


def wanted(players: Sequence[str]) -> list[Subset]:
    """The sets to measure, in this order: singles, the whole, then what Shapley values need."""
    singles = [frozenset((p,)) for p in players]
    whole = frozenset(players)
    if len(players) < 2:
        return singles
    rest = subsets(players) if len(players) <= MOST else [whole - {p} for p in players]
    return list(dict.fromkeys([*singles, whole, *(s for s in rest if s)]))
