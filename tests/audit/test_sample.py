"""The draw: seeded, over all lengths, the ends of the dataset among it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from hsparity.audit.sample import stratified
from hsparity.capture.readers.base import Record


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> list[Record]:
    """300 files of 1 to 3000 bytes, in a random order."""
    folder = tmp_path_factory.mktemp("records")
    found = []
    for i, size in enumerate(np.random.default_rng(0).permutation(300) * 10 + 1):
        path = folder / f"data_{i}.pt"
        path.write_bytes(b"x" * int(size))
        found.append(Record(f"data_{i}", i, path))
    return found


@pytest.mark.parametrize("count", [1, 2, 3, 7, 64, 299, 300, 301, 10_000])
@pytest.mark.parametrize("seed", range(20))
def test_never_more_than_asked_and_each_once_in_order(records: list[Record], count: int, seed: int) -> None:
    drawn = [r.index for r in stratified(records, count, seed)]
    assert len(drawn) == min(count, 300)
    assert drawn == sorted(set(drawn))
    if count > 1:
        assert (drawn[0], drawn[-1]) == (0, 299)


def test_one_seed_is_one_draw(records: list[Record]) -> None:
    assert stratified(records, 16, 3) == stratified(records, 16, 3)
    assert len({tuple(r.index for r in stratified(records, 16, s)) for s in range(10)}) == 10


@pytest.mark.parametrize("seed", range(20))
def test_every_length_is_there(records: list[Record], seed: int) -> None:
    """16 of 300: strata of 18 or 19 by length, of which the two ends of the dataset may empty two."""
    sizes = sorted(r.path.stat().st_size for r in records)
    edges = [sizes[round(i * 300 / 16)] for i in range(16)]
    drawn = [r.path.stat().st_size for r in stratified(records, 16, seed)]
    filled = {int(np.searchsorted(edges, size, side="right")) for size in drawn}
    assert len(filled) >= 14


def test_samples_of_one_file_are_spread(tmp_path: Path) -> None:
    path = tmp_path / "all.jsonl"
    path.write_bytes(b"x" * 100)
    records = [Record(str(i), i, path, i) for i in range(1000)]
    drawn = [r.index for r in stratified(records, 32, 0)]
    assert len(drawn) == 32
    assert max(np.diff(drawn)) < 250


@pytest.mark.parametrize("count", [1, 2, 5])
def test_a_file_that_is_gone_is_still_a_sample(tmp_path: Path, count: int) -> None:
    records = [Record(str(i), i, tmp_path / f"{i}") for i in range(5)]
    assert len(stratified(records, count, 0)) == count


def test_none_of_none() -> None:
    assert stratified([], 4, 0) == []
