"""What a metric is, and the per-token sums that all of them are made of."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]  # [n], one value per token
LARGEST = float(np.finfo(np.float32).max)  # stands for "infinitely large" so that results stay finite


@dataclass(frozen=True, slots=True)
class Sums:
    """Sums over the channels of each token, float64 [n]; `width` channels were summed.

    `diff` is summed from the differences, never as ref + cand - 2 cross, so that it keeps its digits.
    """

    ref: Vector  # sum of ref²
    cand: Vector  # sum of cand²
    diff: Vector  # sum of (cand - ref)²
    largest: Vector  # max |cand - ref|
    width: int


@dataclass(frozen=True, slots=True)
class Metric:
    """A figure per token. `badness` orders its values: the token where it is largest is the worst one."""

    name: str
    of: Callable[[Sums], Vector]
    badness: Callable[[Vector], Vector] = np.positive


def ratio(above: Vector, below: Vector) -> Vector:
    """above / below per token: 0 over 0 is 0, anything else over 0 is `LARGEST`."""
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        value = above / below
    value[(below == 0) & (above == 0)] = 0.0
    return np.minimum(value, LARGEST)
