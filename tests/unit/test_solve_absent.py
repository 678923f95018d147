"""Absent first rows: a prefix cache, all chunks but the last, both, or neither."""

from __future__ import annotations

import pytest

from hsparity.solve.absent import Batch, RowFault, skipped


def batch(*prompts: tuple[int, int], chunk: int | None = None) -> Batch:
    """Prompts of (tokens, tokens shared with the first prompt)."""
    head = tuple(range(prompts[0][0]))
    ids = [
        (*head[:shared], *range(1000 * (i + 1), 1000 * (i + 1) + n - shared))
        for i, (n, shared) in enumerate(prompts)
    ]
    ids[0] = head
    return Batch(tuple(ids), tuple(n for n, _ in prompts), chunk)


def fault(lost: dict[int, int], made: Batch) -> RowFault:
    tokens = dict(enumerate(made.prefill))
    return skipped(lost, tokens, {i: f"p{i}" for i in tokens}, made)


def test_a_shared_prefix_is_a_cache() -> None:
    """An earlier prompt shares the absent rows, in whole blocks; no chunk size fits."""
    found = fault({1: 16, 2: 32}, batch((50, 0), (40, 20), (60, 33)))
    assert found.name == "prefix-cache-skip"
    assert found.rows == ("p1 0-15", "p2 0-31")
    assert found.count == 48
    assert "multiple of 16" in found.evidence[0]
    assert found.rival == "last-chunk-only: no chunk size fits"


def test_a_prefix_shared_but_for_one_token_is_no_cache_hit() -> None:
    """A cache cannot hold 17 rows of which 16 are shared; nothing else fits either."""
    assert fault({1: 17}, batch((50, 0), (40, 16), (60, 0))).name == "rows-missing"


def test_only_earlier_prompts_fill_a_cache() -> None:
    """What the first prompt shares with a later one was not there yet: the cache must be of an earlier run."""
    found = fault({0: 16}, batch((50, 0), (50, 20)))
    assert found.name == "prefix-cache-skip"
    assert "an earlier run may have" in found.evidence[0]


@pytest.mark.parametrize("size", [16, 24, 32])
def test_a_chunk_size_that_explains_all_prompts(size: int) -> None:
    """Every prompt lacks all but its last chunk, short prompts are whole, nothing is shared."""
    lengths = (100, 70, size, 5)
    made = batch(*((n, 0) for n in lengths))
    found = fault({i: size * ((n - 1) // size) for i, n in enumerate(lengths) if n > size}, made)
    assert found.name == "last-chunk-only"
    assert "no earlier prompt shares" in found.rival


def test_the_setting_picks_among_chunk_sizes() -> None:
    """Several sizes leave the same rows out; the one that the settings name is said."""
    lost, lengths = {0: 60}, ((70, 0), (12, 0))
    assert "20 tokens" in fault(lost, batch(*lengths, chunk=20)).evidence[0]
    assert "30 tokens" in fault(lost, batch(*lengths, chunk=30)).evidence[0]
    # A setting that leaves other rows out says nothing.
    assert "17 tokens" not in fault(lost, batch(*lengths, chunk=17)).evidence[0]


def test_a_power_of_two_is_the_likelier_chunk() -> None:
    """Of 16 to 31, all of which leave the first 32, 48 … rows out, 16 is said."""
    assert "16 tokens" in fault({0: 48}, batch((60, 0), (9, 0))).evidence[0]


def test_both_fit_and_the_setting_decides() -> None:
    """A prefix of 32 that is shared and also all chunks but the last of 32: the cache, unless the engine says that
    it prefills in chunks of 32."""
    ids = (tuple(range(20)), tuple(range(100, 150)), (*range(100, 132), *range(200, 218)))
    lost = {2: 32}
    made = Batch(ids, (20, 32, 50))
    by_cache = fault(lost, made)
    assert by_cache.name == "prefix-cache-skip"
    assert "32 tokens would leave the same rows" in by_cache.rival
    by_chunk = fault(lost, Batch(ids, (20, 32, 50), 32))
    assert (by_chunk.name, by_chunk.rival) == ("last-chunk-only", "prefix-cache-skip")


def test_whole_blocks_that_nobody_shares() -> None:
    """A multiple of the block size without a chunk that fits: a cache that an earlier run filled."""
    found = fault({0: 16, 1: 32}, batch((50, 0), (50, 0), (90, 0)))
    assert found.name == "prefix-cache-skip"
    assert "as after a hit" in found.headline
    assert "no chunk size fits" in found.rival


def test_neither_fits() -> None:
    """Odd numbers of rows, no chunk, nothing shared: rows are missing, and no cause is made up."""
    found = fault({0: 7, 1: 13}, batch((50, 0), (50, 0), (90, 0)))
    assert found.name == "rows-missing"
    assert "neither" in found.evidence[0]


def test_decode_rows_are_in_no_chunk() -> None:
    """Chunks cut the prompt: of 40 tokens of which 33 are prefilled, a chunk of 32 leaves 32 out."""
    ids = (tuple(range(40)),)
    assert skipped({0: 32}, {0: 40}, {0: "p0"}, Batch(ids, (33,))).name == "last-chunk-only"
