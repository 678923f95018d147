"""Where in a dataset the states change their make: a step in the norms of a slot, by the samples' order.

The norm of a residual stream grows with depth, so a slot that moves to another layer moves its norm, in every sample
from there on. A step is only a suspicion: other texts, or another model, make one too. An engine settles it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

LEAST = 4  # samples on either side
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
    steps = [step for k in range(table.shape[1]) if (step := _step(table[kept, k], k)) is not None]
    if not steps:
        return None
    best = max(steps, key=lambda s: s.apart)
    return Step(int(kept[best.at]), best.slot, best.before, best.after, best.apart)


def _step(values: NDArray[np.float64], slot: int) -> Step | None:
    """Where the ranks' sums part most (a rank-sum test at every split), judged by medians and MAD."""
    n = len(values)
    ranks = np.argsort(np.argsort(values, kind="stable"), kind="stable") + 1.0
    sizes = np.arange(1, n)
    expected = sizes * (n + 1) / 2
    spread = np.sqrt(sizes * (n - sizes) * (n + 1) / 12)
    scores = np.abs(np.cumsum(ranks)[:-1] - expected) / spread
    scores[: LEAST - 1] = scores[n - LEAST :] = 0.0
    at = int(np.argmax(scores)) + 1
    left, right = values[:at], values[at:]
    before, after = float(np.median(left)), float(np.median(right))
    residual = np.concatenate((left - before, right - after))
    spread_one = max(1.4826 * float(np.median(np.abs(residual))), 1e-6)
    apart = abs(after - before) / spread_one
    if apart < APART or abs(after - before) < SMALLEST:
        return None
    return Step(at, slot, before, after, apart)
