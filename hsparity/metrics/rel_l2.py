"""Relative L2 error: |cand - ref| / |ref|."""

from __future__ import annotations

import numpy as np

from hsparity.metrics.base import Metric, Sums, Vector, ratio


def rel_l2(sums: Sums) -> Vector:
    return ratio(np.sqrt(sums.diff), np.sqrt(sums.ref))


METRIC = Metric("rel_l2", rel_l2)
