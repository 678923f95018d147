"""Rows that belong to another token, or to none."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from tests.causes.faults.base import each, fault, streams_of, v
from tests.causes.real import SMOL, TINY
from tests.causes.streams import Capture, States, edited

T, S = (TINY,), (SMOL,)


def picked(made: Capture, rows: Mapping[str, Sequence[int]], true: bool = False) -> Capture:
    """Each named prompt holds the given of its own rows, laid from position 0, or with `true` where they belong."""
    if true:
        return replace(made, positions={**made.positions, **rows})

    def change(name: str, states: States) -> States:
        return {k: x[list(rows[name])] for k, x in states.items()} if name in rows else states

    fewer = {n: range(len(r)) for n, r in rows.items() if len(r) < len(made.ids[n])}
    return edited(made, change, positions={**made.positions, **fewer})


def from_batch(made: Capture, rows: Mapping[str, Sequence[int]]) -> Capture:
    """Each named prompt holds rows of the whole batch laid end to end; fewer than its tokens leave a gap at its end."""
    names = list(made.states)
    sites = made.states[names[0]]
    batch = {k: np.concatenate([made.states[n][k] for n in names]) for k in sites}
    cut = {n: list(r)[: len(made.ids[n])] for n, r in rows.items()}

    def change(name: str, states: States) -> States:
        return {k: batch[k][cut[name]] for k in states} if name in cut else states

    fewer = {n: range(len(r)) for n, r in cut.items() if len(r) < len(made.ids[n])}
    return edited(made, change, positions={**made.positions, **fewer})


def lengths(made: Capture) -> dict[str, int]:
    return {name: len(ids) for name, ids in made.ids.items()}


def starts(made: Capture) -> dict[str, int]:
    ends = np.cumsum(list(lengths(made).values()))
    return dict(zip(made.ids, (0, *map(int, ends[:-1])), strict=True))


def orders(made: Capture, order: Callable[[int], Sequence[int]]) -> dict[str, list[int]]:
    """`order(T)` for every prompt that it changes."""
    found = {name: list(map(int, order(n))) for name, n in lengths(made).items()}
    return {name: rows for name, rows in found.items() if rows != list(range(len(rows)))}


@fault(
    "prefix-cache-skip",
    v("16 rows, laid from 0", rows=16, models=T),
    v("32 rows, laid from 0", rows=32, models=T),
    v("16 rows, true positions", rows=16, true=True, models=T, cand="sglang"),
    v("32 rows, true positions, no floor", rows=32, true=True, models=T, floor=False),
    v("32 rows, laid from 0, three slots", rows=32, models=T, shape="three"),
    v("16 rows, laid from 0, native list, SGLang", rows=16, models=T, shape="native", cand="sglang"),
)
def prefix_cache_skip(made: Capture, rows: int, true: bool = False) -> Capture:
    """A prompt that shares its first 16-token blocks with an earlier one comes without their rows."""
    found: dict[str, list[int]] = {}
    before: list[Sequence[int]] = []
    for name, ids in made.ids.items():
        shared = max((_common(ids, other) for other in before), default=0)
        skip = min(shared // 16 * 16, rows)
        if skip:
            found[name] = list(range(skip, len(ids)))
        before.append(ids)
    return picked(made, found, true)


def _common(one: Sequence[int], other: Sequence[int]) -> int:
    same = [a == b for a, b in zip(one, other, strict=False)]
    return same.index(False) if False in same else len(same)


@fault(
    "last-chunk-only",
    v("chunk 8", chunk=8, models=T),
    v("chunk 16", chunk=16, models=T, cand="sglang"),
    v("chunk 24", chunk=24, models=T),
    v("chunk 16, true positions, no floor", chunk=16, true=True, models=T, floor=False),
    v("chunk 24, three slots", chunk=24, models=T, shape="three"),
    v("chunk 4", chunk=4, models=S),
    v("chunk 3", chunk=3, models=S, cand="sglang"),
)
def last_chunk_only(made: Capture, chunk: int, true: bool = False) -> Capture:
    """Of a chunked prefill only the last chunk's rows come back, and the decoded ones."""
    found = {}
    for name, ids in made.ids.items():
        first = (made.prefill[name] - 1) // chunk * chunk
        if first:
            found[name] = list(range(first, len(ids)))
    return picked(made, found, true)


@fault(
    "rows-wrong-request",
    v("one prompt", how="one"),
    v("a window of prompts", how="window", models=T, cand="sglang"),
    v("all but the first take the first's", how="first"),
    v("all but the first take the previous one's place", how="previous", cand="sglang", floor=False),
    v("all but the first, three slots", how="first", shape="three"),
    v("all but the first, last slot", how="first", shape="last", cand="sglang"),
)
def rows_wrong_request(made: Capture, how: str) -> Capture:
    """Prompts hold rows of other requests of the batch: their slice of the shared buffer begins elsewhere."""
    sizes, begins = lengths(made), starts(made)
    names, total = list(sizes), sum(sizes.values())
    if how == "one":
        # The place of a request that is at least as long.
        wrong, taken = ("p5", "p7") if TINY.startswith(made.model.name.replace(":", "-")) else ("p1", "p0")
        offsets = {wrong: begins[taken]}
    elif how == "window":
        offsets = {n: (begins[n] + 9) % total for n in names[3:9]}  # further than any of them is long
    elif how == "first":
        offsets = dict.fromkeys(names[1:], 0)
    else:
        offsets = {n: begins[names[i]] for i, n in enumerate(names[1:])}
    return from_batch(made, {n: [(o + i) % total for i in range(sizes[n])] for n, o in offsets.items()})


@fault(
    "request-order",
    v("numbers sorted as text", order="text", models=T),
    v("numbers sorted as text, no floor", order="text", models=T, floor=False, cand="sglang"),
    v("numbers sorted as text, three slots", order="text", models=T, shape="three"),
    v("last request first", order="backwards"),
    v("rotated by one", order="rotated", cand="sglang"),
    v("two swapped", order="swapped"),
)
def request_order(made: Capture, order: str) -> Capture:
    """Whole requests come back in another order than they were sent in."""
    names = list(made.ids)
    count = len(names)
    given = {
        "text": sorted(range(count), key=str),
        "backwards": list(range(count))[::-1],
        "rotated": [*range(1, count), 0],
        "swapped": [0, 2, 1, *range(3, count)],
    }[order]
    sizes, begins = lengths(made), starts(made)
    taken = {name: names[j] for name, j in zip(names, given, strict=True) if name != names[j]}
    return from_batch(made, {n: range(begins[o], begins[o] + sizes[o]) for n, o in taken.items()})


def _swapped_blocks(size: int) -> Callable[[int], Sequence[int]]:
    def order(count: int) -> Sequence[int]:
        rows = np.arange(count)
        if count >= 2 * size:
            rows[: 2 * size] = np.r_[size : 2 * size, 0:size]
        return rows.tolist()

    return order


def _swapped_pairs(count: int) -> Sequence[int]:
    rows = np.arange(count)
    even = count // 2 * 2
    rows[:even] = rows[:even].reshape(-1, 2)[:, ::-1].ravel()
    return rows.tolist()


@fault(
    "rows-permuted",
    v("two blocks of 16 swapped", block=16, models=T),
    v("two blocks of 8 swapped", block=8, models=T, cand="sglang", floor=False),
    v("two blocks of 3 swapped", block=3, models=S),
    v("neighbours swapped", block=1),
    v("neighbours swapped, three slots", block=1, shape="three", cand="sglang"),
    v("reversed", block=0),
)
def rows_permuted(made: Capture, block: int) -> Capture:
    """Rows of one prompt change places: two blocks, every pair (block 1), or all of them (block 0)."""
    order = {0: lambda n: range(n - 1, -1, -1), 1: _swapped_pairs}.get(block) or _swapped_blocks(block)
    return picked(made, orders(made, order))


@fault(
    "rows-shifted",
    v("each holds its successor's, over the batch", by=1),
    v("each holds its predecessor's, over the batch", by=-1, cand="sglang"),
    v("two further, over the batch", by=2),
    v("each holds its predecessor's, in each prompt", by=-1, batch=False, floor=False),
    v("each holds its successor's, in each prompt, three slots", by=1, batch=False, shape="three"),
    v("each holds its successor's, last slot", by=1, shape="last"),
)
def rows_shifted(made: Capture, by: int, batch: bool = True) -> Capture:
    """Every row is that of the token `by` further: over the batch's buffer, or inside each prompt, whose end repeats."""
    if batch:
        begins, total = starts(made), sum(lengths(made).values())
        return from_batch(
            made, {n: [(begins[n] + i + by) % total for i in range(t)] for n, t in lengths(made).items()}
        )
    return picked(made, orders(made, lambda n: np.clip(np.arange(n) + by, 0, n - 1).tolist()))


@fault(
    "rows-scattered",
    v("2 ranks, interleaved", ranks=2),
    v("4 ranks, interleaved", ranks=4, cand="sglang"),
    v("2 ranks, zigzag slices", ranks=2, slices=True),
    v("4 ranks, zigzag slices", ranks=4, slices=True, models=T, floor=False),
    v("2 ranks, interleaved, three slots", ranks=2, shape="three"),
    v("4 ranks, interleaved, native list", ranks=4, shape="native"),
)
def rows_scattered(made: Capture, ranks: int, slices: bool = False) -> Capture:
    """Rows lie in the order of the ranks that computed them: r::n, or slices r and 2n-1-r of context parallelism."""

    def order(count: int) -> Sequence[int]:
        if not slices:
            return np.concatenate([np.arange(r, count, ranks) for r in range(ranks)]).tolist()
        parts = np.array_split(np.arange(count), 2 * ranks)
        return np.concatenate([parts[i] for r in range(ranks) for i in (r, 2 * ranks - 1 - r)]).tolist()

    return picked(made, orders(made, order))


@fault(
    "rows-stale",
    v("a run of 8 repeated", how="run", rows=8, models=T),
    v("a run of 4 repeated", how="run", rows=4, models=S),
    v("the last rows repeat the one before", how="tail", rows=-3, cand="sglang"),
    v("every row after the third", how="tail", rows=3),
    v("every row after the twentieth, no floor", how="tail", rows=20, models=T, floor=False),
    v("every row after the third, three slots", how="tail", rows=3, shape="three", cand="sglang"),
)
def rows_stale(made: Capture, how: str, rows: int) -> Capture:
    """Rows of a prompt repeat others of it bit for bit: a run again, or all that follow a row."""

    def order(count: int) -> Sequence[int]:
        if how == "run":
            return (
                [*range(rows), *range(rows), *range(2 * rows, count)] if count >= 2 * rows else range(count)
            )
        last = rows - 1 if rows > 0 else max(count + rows - 1, 0)
        return np.minimum(np.arange(count), last).tolist()

    return picked(made, orders(made, order))


@fault(
    "rows-missing",
    v("decoded rows", how="decode", models=T),
    v("decoded rows, SGLang, no floor", how="decode", models=T, cand="sglang", floor=False),
    v("decoded rows, three slots", how="decode", models=T, shape="three"),
    v("the last row of every prompt", how="last"),
    v("a span in the middle", how="middle", cand="sglang"),
    v("a span in the middle, three slots", how="middle", shape="three"),
)
def rows_missing(made: Capture, how: str) -> Capture:
    """Tokens without a row, none of them moved: the decoded ones, each prompt's last, or a span."""

    def kept(name: str, count: int) -> Sequence[int]:
        if how == "decode":
            return range(made.prefill[name])
        if how == "last":
            return range(count - 1)
        return [*range(2), *range(4, count)]

    return picked(made, {n: list(kept(n, t)) for n, t in lengths(made).items()}, true=True)


@fault(
    "rows-gain",
    v("rows 10-25 of the longest at 1/sqrt(H)", first=10, stop=26, models=T),
    v("rows 3-6 at 1/sqrt(H)", first=3, stop=7, models=S, cand="sglang"),
    v("rows 10-25 at 1/sqrt(H), boundary 0", first=10, stop=26, which=(0,), models=T, cand="sglang"),
    v("rows 3-6 at sqrt(H), boundary 0", first=3, stop=7, power=0.5, which=(0,), models=S),
    v("rows 10-25 at 1/sqrt(H), three slots", first=10, stop=26, models=T, shape="three", floor=False),
    v("rows 2-3 of every prompt at 1/sqrt(H)", first=2, stop=4, every=True),
)
def rows_gain(
    made: Capture,
    first: int,
    stop: int,
    power: float = -0.5,
    which: Sequence[int] | str = "every",
    every: bool = False,
) -> Capture:
    """A span of rows (an image's) is H ** power as large as it should be, in the first prompt or in every one."""
    scaled = each(made, which, lambda x: x * made.model.width**power)

    def change(name: str, states: States) -> States:
        if every or name == next(iter(made.states)):
            for k in streams_of(states):
                states[k][first:stop] = scaled.states[name][k][first:stop]
        return states

    return edited(made, change)
