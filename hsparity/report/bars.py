"""One row of bars over the boundaries, in block characters or ASCII."""

from __future__ import annotations

import math
from collections.abc import Sequence

BLOCKS = "▁▂▃▄▅▆▇█"
ASCII = ".:-=+*%#"
WITHIN, UNKNOWN = {True: "·", False: "_"}, " "


def bars(values: Sequence[float], width: int, unicode: bool) -> tuple[str, int]:
    """(bars, boundaries per bar): log10 heights from 0 to the largest, pooled by maximum to fit `width`."""
    per_bar = max(1, math.ceil(len(values) / width))
    pooled = [_largest(values[i : i + per_bar]) for i in range(0, len(values), per_bar)]
    top = max((v for v in pooled if math.isfinite(v)), default=0.0)
    steps = BLOCKS if unicode else ASCII
    return "".join(_bar(v, max(top, 1.0), steps, unicode) for v in pooled), per_bar


def marks(positions: Sequence[tuple[int, str]], length: int) -> str:
    """Labels under their bars; one that would touch its left neighbour is left out."""
    line = ""
    for position, label in positions:
        if line and position < len(line) + 1:
            continue
        if position + len(label) > length:
            position = max(length - len(label), 0)  # noqa: PLW2901
            if line and position < len(line) + 1:
                continue
        line = line.ljust(position) + label
    return line


def _largest(values: Sequence[float]) -> float:
    known = [v for v in values if not math.isnan(v)]
    return max(known) if known else math.nan


def _bar(value: float, top: float, steps: str, unicode: bool) -> str:
    if math.isnan(value):
        return UNKNOWN
    if value <= 0:
        return WITHIN[unicode]
    if math.isinf(value):
        return steps[-1]
    return steps[min(int(value / top * len(steps)), len(steps) - 1)]
