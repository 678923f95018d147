"""Cosine similarity, from the differences: 1 - cos = (|d|² - (|x| - |y|)²) / (2 |x| |y|), which stays exact
near 1."""

from __future__ import annotations

import numpy as np

from hsparity.metrics.base import Metric, Sums, Vector


def cosine(sums: Sums) -> Vector:
    ref, cand = np.sqrt(sums.ref), np.sqrt(sums.cand)
    both = ref * cand
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        # (ref - cand) from the squares would lose digits no later than the sums themselves did.
        gap = (sums.ref - sums.cand) / (ref + cand)
        value = 1.0 - (sums.diff - gap * gap) / (2.0 * both)
    value[both == 0] = 0.0
    value[(ref == 0) & (cand == 0)] = 1.0
    return np.clip(value, -1.0, 1.0)


METRIC = Metric("cosine", cosine, np.negative)
