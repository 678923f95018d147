"""Largest absolute difference of any channel."""

from __future__ import annotations

from hsparity.metrics.base import Metric, Sums, Vector


def max_abs(sums: Sums) -> Vector:
    return sums.largest


METRIC = Metric("max_abs", max_abs)
