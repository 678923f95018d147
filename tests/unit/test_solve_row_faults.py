"""Owner maps as integers: every pattern of moved rows by its own name, and the look-alikes between them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from hsparity.solve.absent import Batch, RowFault
from hsparity.solve.row_faults import PromptMap, classify

TOKENS = 24


def moved(
    index: int, positions: Sequence[int], owners: Sequence[int] | int | None = None, tokens: int = TOKENS
) -> PromptMap:
    """A prompt whose row i holds the state `positions[i]` of prompt `owners[i]`; its own unless said."""
    position = np.array(positions, np.int64)
    claimed = np.arange(len(position))
    owner = np.broadcast_to(np.array(index if owners is None else owners, np.int64), position.shape).copy()
    wrong = (owner != index) | (position != claimed)
    foreign = owner[wrong & (owner != index)]
    most = np.bincount(foreign).max() if len(foreign) else 0
    holders = tuple(int(q) for q in np.unique(foreign) if (foreign == q).sum() == most)
    return PromptMap(f"p{index}", index, tokens, len(position), claimed, owner, position, wrong, holders)


def whole(index: int, tokens: int = TOKENS) -> PromptMap:
    return moved(index, range(tokens), tokens=tokens)


def unlike(lengths: Sequence[int]) -> Batch:
    """Prompts that share no token."""
    ids = tuple(tuple(1000 * i + t for t in range(n)) for i, n in enumerate(lengths))
    return Batch(ids, tuple(lengths))


def found(*maps: PromptMap, batch: Batch | None = None) -> list[RowFault]:
    return classify(maps, batch or unlike([m.tokens for m in maps]))


def names(*maps: PromptMap, batch: Batch | None = None) -> list[str]:
    return [f.name for f in found(*maps, batch=batch)]


def test_rows_in_place_are_no_fault() -> None:
    """Nothing is wrong, in no prompt or in several; a prompt without rows is no fault either."""
    assert names() == []
    assert names(whole(0)) == []
    assert names(whole(0), whole(1, 1), moved(2, [], tokens=0)) == []


@pytest.mark.parametrize("order", [[1, 0, 2], [2, 0, 1], [1, 2, 0]])
def test_whole_prompts_in_another_order(order: list[int]) -> None:
    """Every prompt appears once, elsewhere: request-order, with every row of the moved prompts."""
    (fault,) = found(*(moved(i, range(TOKENS), owner) for i, owner in enumerate(order)))
    assert fault.name == "request-order"
    assert fault.count == TOKENS * sum(i != o for i, o in enumerate(order))
    assert "in another order" in fault.headline


@pytest.mark.parametrize("count", [11, 13, 20])
def test_text_order_is_told_from_another_order(count: int) -> None:
    """From eleven requests on, numbers sorted as text are named as that, in either direction."""
    text = sorted(range(count), key=str)
    for order in (text, np.argsort(text).tolist()):
        (fault,) = found(*(moved(i, range(5), owner, 5) for i, owner in enumerate(order)))
        assert fault.name == "request-order"
        assert "sorted as text" in fault.headline
    other = [*range(1, count), 0]
    (fault,) = found(*(moved(i, range(5), owner, 5) for i, owner in enumerate(other)))
    assert "in another order" in fault.headline


def test_a_prompt_that_appears_twice_is_no_order() -> None:
    """Two prompts hold the same third one: rows of another request."""
    (fault,) = found(moved(0, range(TOKENS), 2), moved(1, range(TOKENS), 2), whole(2))
    assert fault.name == "rows-wrong-request"
    assert fault.count == 2 * TOKENS
    assert fault.rival == "prompts in another order: not every prompt appears once"


def test_rows_at_other_positions_of_another_prompt_are_no_order() -> None:
    """The tail of one prompt in the place of the other's head."""
    (fault,) = found(moved(0, range(10, TOKENS), 1), whole(1), whole(2))
    assert fault.name == "rows-wrong-request"
    assert "prompt p0: row 0 holds the state of prompt p1 position 10" in fault.evidence


def test_a_shared_prefix_does_not_hide_an_order() -> None:
    """Where two prompts begin alike, their first rows are both theirs: the rest still says whose they are."""
    head = [0] * 8

    def swapped(index: int, other: int) -> PromptMap:
        return moved(index, range(TOKENS), [index] * 8 + [other] * (TOKENS - 8))

    same = tuple([*head, *(1000 * i + t for t in range(TOKENS - 8))] for i in range(2))
    (fault,) = found(swapped(0, 1), swapped(1, 0), batch=Batch(tuple(map(tuple, same)), (TOKENS, TOKENS)))
    assert fault.name == "request-order"
    assert fault.count == 2 * (TOKENS - 8)
    assert fault.rows == ("p0 8-23", "p1 8-23")


@pytest.mark.parametrize("by", [1, -1, 2, -3])
def test_rows_shifted_within_a_prompt(by: int) -> None:
    """Every row is its neighbour's; the ends hold what is there, and the headline says which way."""
    positions = np.clip(np.arange(TOKENS) + by, 0, TOKENS - 1)
    (fault,) = found(moved(0, positions.tolist()), whole(1))
    assert fault.name == "rows-shifted"
    assert f"{abs(by)} {'later' if by > 0 else 'earlier'}" in fault.headline


@pytest.mark.parametrize("by", [1, -1])
def test_rows_shifted_over_the_batch(by: int) -> None:
    """One shift of all rows end to end takes rows across prompts, and is still one shift."""
    count, lengths = 3, [TOKENS, 9, TOKENS]
    owners = np.repeat(np.arange(count), lengths)
    places = np.concatenate([np.arange(n) for n in lengths])
    owners, places = np.roll(owners, -by), np.roll(places, -by)
    cuts = np.cumsum(lengths)[:-1]
    parts = zip(np.split(places, cuts), np.split(owners, cuts), lengths, strict=True)
    maps = [moved(i, p.tolist(), o.tolist(), n) for i, (p, o, n) in enumerate(parts)]
    (fault,) = found(*maps)
    assert fault.name == "rows-shifted"
    assert fault.count == sum(lengths)


@pytest.mark.parametrize("tokens", [24, 32, 96])
@pytest.mark.parametrize("ranks", [2, 3, 4, 8])
@pytest.mark.parametrize("reverse", [False, True])
def test_rows_dealt_to_ranks(tokens: int, ranks: int, reverse: bool) -> None:
    """0::n, 1::n … one after the other, or the reverse of that: scattered, with the number of ranks. Dealing n x m
    rows to n ranks is the reverse of dealing them to m, so the two numbers are one."""
    order = np.concatenate([np.arange(tokens)[r::ranks] for r in range(ranks)])
    order = np.argsort(order) if reverse else order
    (fault,) = found(moved(0, order.tolist(), tokens=tokens))
    assert fault.name == "rows-scattered"
    assert any(f"as {n} ranks" in fault.headline for n in (ranks, tokens // ranks))


def test_rows_in_zigzag_slices_of_ranks() -> None:
    """Rank r holds slices r and 2n - 1 - r, gathered rank after rank."""
    slices = np.array_split(np.arange(TOKENS), 8)
    order = np.concatenate([np.concatenate((slices[r], slices[7 - r])) for r in range(4)])
    (fault,) = found(moved(0, order.tolist()))
    assert (fault.name, "4 ranks" in fault.headline) == ("rows-scattered", True)


def test_blocks_and_pairs_are_a_permutation() -> None:
    """Exchanged blocks, exchanged pairs and a reversal follow no ranks."""
    blocks = [*range(8, 16), *range(8), *range(16, 24)]
    pairs = [i ^ 1 for i in range(TOKENS)]
    for order in (blocks, pairs, list(range(TOKENS))[::-1]):
        (fault,) = found(moved(0, order))
        assert fault.name == "rows-permuted", order
        assert fault.count == sum(i != p for i, p in enumerate(order))


def test_two_rows_swapped_is_no_stride() -> None:
    """A swap of two rows is what two ranks make of three tokens: too few rows to say so."""
    assert names(moved(0, [0, 2, 1], tokens=3)) == ["rows-permuted"]
    assert names(moved(0, [0, 2, 1, 3], tokens=4)) == ["rows-permuted"]


@pytest.mark.parametrize("repeated", [0, 3, 23])
def test_rows_that_repeat_one_row_are_stale(repeated: int) -> None:
    """The last rows hold a state that is also in its own place."""
    positions = [*range(16), *[repeated if repeated < 16 else 15] * 8]
    (fault,) = found(moved(0, positions))
    assert (fault.name, fault.count) == ("rows-stale", 8)
    assert fault.rows == ("p0 16-23",)


def test_a_block_that_repeats_an_earlier_one_is_stale() -> None:
    """Every row is 16 earlier, and those rows are still in place: nothing was moved."""
    (fault,) = found(moved(0, [*range(16), *range(8)]))
    assert fault.name == "rows-stale"


@pytest.mark.parametrize("lost", [16, 32])
def test_a_cached_prefix_whose_rest_was_laid_from_zero(lost: int) -> None:
    """The rows are `lost` later up to the end, and an earlier prompt shares what is absent."""
    tokens = 48
    shared = tuple(range(lost))
    ids = ((*shared, *range(100, 148 - lost)), (*shared, *range(200, 248 - lost)))
    suffix = moved(1, range(lost, tokens), tokens=tokens)
    (fault,) = found(whole(0, tokens), suffix, batch=Batch(ids, (tokens, tokens)))
    assert fault.name == "prefix-cache-skip"
    assert "laid from position 0" in fault.evidence[-1]


def test_the_last_chunk_laid_from_zero() -> None:
    """No prompt shares the absent rows, and a chunk of 16 leaves out exactly those of the longer prompts."""
    maps = [moved(0, range(32, 40), tokens=40), moved(1, range(16, 20), tokens=20), whole(2, 12)]
    (fault,) = found(*maps)
    assert fault.name == "last-chunk-only"
    assert "16 tokens" in fault.evidence[0]


def test_a_suffix_that_does_not_reach_the_end_is_a_ranks_share() -> None:
    """The middle of a prompt alone is what one of several ranks held."""
    (fault,) = found(moved(0, range(8, 16), tokens=24))
    assert fault.name == "rows-scattered"


def test_a_shift_by_one_is_not_a_missing_prefix() -> None:
    """One row absent at the start: a shift, since no cache block and no chunk is that small."""
    assert names(moved(0, range(1, TOKENS))) == ["rows-shifted"]


def test_two_patterns_are_two_faults() -> None:
    """Prompts of different patterns are told one by one, that with most rows first."""
    maps = [
        moved(0, [i ^ 1 for i in range(TOKENS)]),
        moved(1, [*range(20), 0, 0, 0, 0]),
        whole(2),
        moved(3, range(TOKENS), 2),
    ]
    result = found(*maps)
    assert [f.name for f in result[:2]] in (
        ["rows-permuted", "rows-wrong-request"],
        ["rows-wrong-request", "rows-permuted"],
    )
    assert [f.name for f in result][2:] == ["rows-stale"]
    assert [f.count for f in result] == [24, 24, 4]


@pytest.mark.parametrize("tokens", [1, 2, 3])
def test_prompts_of_a_few_tokens(tokens: int) -> None:
    """Short prompts that hold each other's rows are an order, however few their rows."""
    (fault,) = found(moved(0, range(tokens), 1, tokens), moved(1, range(tokens), 0, tokens))
    assert (fault.name, fault.count) == ("request-order", 2 * tokens)
