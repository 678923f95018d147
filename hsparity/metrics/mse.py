"""Mean squared error over the channels."""

from __future__ import annotations

from hsparity.metrics.base import Metric, Sums, Vector


def mse(sums: Sums) -> Vector:
    return sums.diff / sums.width


METRIC = Metric("mse", mse)
