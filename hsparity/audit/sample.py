"""Which samples of a dataset are looked at with an engine."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from hsparity.capture.readers.base import Record


def stratified(records: Sequence[Record], count: int, seed: int) -> list[Record]:
    """`count` records by length, in the dataset's order: one drawn from each of `count` strata of equal size.

    Length is the size of a sample's file, which every format has before anything is opened; samples that share a file
    are spread evenly. The first and the last sample are always among them, so that a dataset whose make changed midway
    shows both.
    """
    if len(records) <= count:
        return list(records)
    sizes = _sizes(records)
    rng = np.random.default_rng(seed)
    # Ties in a random order: samples of one length must not be drawn by their place.
    order = np.lexsort((rng.permutation(len(records)), sizes))
    edges = np.linspace(0, len(records), count + 1).astype(int)
    drawn = [int(order[rng.integers(a, b)]) for a, b in pairwise(edges)]
    kept = set(drawn)
    for end in (0, len(records) - 1):
        if end not in kept and count > 1:
            # In place of the drawn one that is nearest in length, so that the strata stay filled.
            away = min(
                kept - {0, len(records) - 1},
                key=lambda i: (abs(int(sizes[i]) - int(sizes[end])), i),
                default=None,
            )
            kept = (kept - {away}) | {end} if away is not None else kept | {end}
    return [records[i] for i in sorted(kept)]


def _sizes(records: Sequence[Record]) -> np.ndarray:
    known: dict[object, int] = {}
    sizes = []
    for record in records:
        if record.path not in known:
            try:
                known[record.path] = record.path.stat().st_size if record.path.is_file() else 0
            except OSError:
                known[record.path] = 0
        sizes.append(known[record.path])
    return np.array(sizes, np.int64)
