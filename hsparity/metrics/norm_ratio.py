"""|cand| / |ref|: tells a scale from a direction. Its bad end is the value farther from 1, in either
direction."""

from __future__ import annotations

import numpy as np

from hsparity.metrics.base import Metric, Sums, Vector, ratio


def norm_ratio(sums: Sums) -> Vector:
    value = ratio(np.sqrt(sums.cand), np.sqrt(sums.ref))
    value[(sums.ref == 0) & (sums.cand == 0)] = 1.0
    return value


def away_from_one(value: Vector) -> Vector:
    """|log| of the ratio; 0 counts as infinitely far."""
    with np.errstate(divide="ignore"):
        result: Vector = np.abs(np.log(value))
    return result


METRIC = Metric("norm_ratio", norm_ratio, away_from_one)
