"""Where in a dataset the states change their make: a step in the norms of a slot, by the samples' order.

The norm of a residual stream grows with depth, so a slot that moves to another layer moves its norm, in every sample
from there on. What a text does to a norm it does to all slots, so a slot is also measured against every other one. A
step is only a suspicion: other texts, or another model, make one too. An engine settles it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

LEAST = 8  # samples on either side
NEAR = (8, 32)  # samples on either side that a step must show in: what drifts with the texts shows in neither
SUDDEN = 0.75  # of the whole change, that it must make there
RANKS = 4.5  # standard deviations of the rank sum at the best of all splits, where nothing changes
APART = 4.0  # robust standard deviations between both sides' medians
SMALLEST = 0.01  # decades: 2 % in norm, below which nothing is said


@dataclass(frozen=True, slots=True)
class Step:
    """`at`: the first sample of the second part; `slot` shows it most; `before` and `after` are medians of log10 RMS."""

    at: int
    slot: int
    before: float
    after: float
    apart: float  # their distance in robust standard deviations of a sample


def find_step(norms: Sequence[Sequence[float]]) -> Step | None:
    """The plainest step in [n samples][K slots] of log10 RMS, or None. NaN samples are passed over."""
    table = np.array(norms, np.float64)
    if table.ndim != 2 or not table.shape[1]:
        return None
    kept = np.flatnonzero(np.isfinite(table).all(1))
    if len(kept) < 2 * LEAST:
        return None
    found = [(step, series) for series in _series(table[kept]) if (step := _step(series.values)) is not None]
    if not found:
        return None
    (at, apart), series = max(found, key=lambda item: item[0][1])
    slot = series.slot
    if series.other is not None:  # the one of the two that moves
        moved = [abs(_jump(table[kept, k], at)) for k in (series.slot, series.other)]
        slot = series.slot if moved[0] >= moved[1] else series.other
    values = table[kept, slot]
    return Step(int(kept[at]), slot, float(np.median(values[:at])), float(np.median(values[at:])), apart)


@dataclass(frozen=True, slots=True, eq=False)
class _Series:
    values: NDArray[np.float64]
    slot: int
    other: int | None = None


def _series(table: NDArray[np.float64]) -> Iterator[_Series]:
    """Every slot, and every slot against every other."""
    for k in range(table.shape[1]):
        yield _Series(table[:, k], k)
    for a, b in combinations(range(table.shape[1]), 2):
        yield _Series(table[:, a] - table[:, b], a, b)


def _jump(values: NDArray[np.float64], at: int) -> float:
    return float(np.median(values[at:]) - np.median(values[:at]))


def _step(values: NDArray[np.float64]) -> tuple[int, float] | None:
    """(first sample after it, robust standard deviations): where the ranks' sums part most (a rank-sum test at every split),
    judged by medians and MAD over all samples and over the nearest."""
    n = len(values)
    ranks = np.argsort(np.argsort(values, kind="stable"), kind="stable") + 1.0
    sizes = np.arange(1, n)
    expected = sizes * (n + 1) / 2
    spread = np.sqrt(sizes * (n - sizes) * (n + 1) / 12)
    scores = np.abs(np.cumsum(ranks)[:-1] - expected) / spread
    scores[: LEAST - 1] = scores[n - LEAST :] = 0.0
    best = int(np.argmax(scores)) + 1
    if scores[best - 1] < RANKS:
        return None
    at = min(
        range(max(LEAST, best - LEAST), min(n - LEAST, best + LEAST) + 1), key=lambda i: _left(values, i)
    )
    jump = _jump(values, at)
    apart = abs(jump) / _spread(values, at)
    if apart < APART or abs(jump) < SMALLEST:
        return None
    for width in NEAR:
        near, middle = values[max(0, at - width) : at + width], min(at, width)
        close = _jump(near, middle) * np.sign(jump)
        if close < max(SUDDEN * abs(jump), APART * _spread(near, middle)):
            return None
    return at, apart


def _left(values: NDArray[np.float64], at: int) -> float:
    """What a split there leaves: the distances from the median of its side."""
    return float(sum(np.abs(side - np.median(side)).sum() for side in (values[:at], values[at:])))


def _spread(values: NDArray[np.float64], at: int) -> float:
    """Robust standard deviation of a sample about the median of its side."""
    sides = (values[:at], values[at:])
    residual = np.concatenate([side - np.median(side) for side in sides])
    return max(1.4826 * float(np.median(np.abs(residual))), 1e-6)
