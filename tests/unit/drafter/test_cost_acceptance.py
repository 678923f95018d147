"""From agreement on rows to accepted tokens: the count of an engine that drafts, verifies and goes on."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from hsparity.drafter.acceptance import (
    UNKNOWN,
    Agreement,
    Counts,
    agreement_rates,
    by_position,
    difference,
    differences,
    estimate,
    every_start,
    overlap_rates,
    walked,
)


def agreement(match_ks: np.ndarray, prefill: int = 1, overlap_ks: np.ndarray | None = None) -> Agreement:
    blank = np.full(match_ks.shape, np.nan, np.float32)
    return Agreement("p", prefill, match_ks.astype(np.int8), blank if overlap_ks is None else overlap_ks)


def inside(match_ks: np.ndarray) -> np.ndarray:
    """The matrix of starts 0..T - 2 with UNKNOWN where position j would be a token behind the text: i + j + 1 > T - 1."""
    found = match_ks.copy()
    k, size = found.shape
    for j in range(1, k + 1):
        found[j - 1, max(size - j, 0) :] = UNKNOWN
    return found


def simulate(text: list[int], prompt: int, draft: Callable[[int, int], int], k: int) -> list[int]:
    """Greedy speculative decoding by its definition: how many drafts each step accepts.

    `text` is what the target writes. A step knows the tokens before `known` and the target's states of all but the last of
    them. A step that drafts beyond the text is not made.
    """
    known, accepted = prompt + 1, []  # the pass over the prompt gives the first token
    while known + k <= len(text):
        drafts = [draft(known - 2, j) for j in range(1, k + 1)]
        target = text[known : known + k + 1]
        taken: list[int] = []
        for j in range(k):
            if drafts[j] != target[j]:
                break
            taken.append(drafts[j])
        accepted.append(len(taken))
        known += len(taken) + 1  # the bonus is the target's own
    return accepted


@pytest.mark.parametrize("seed", range(40))
def test_the_walk_is_speculative_decoding(seed: int) -> None:
    """On random matches of any rate, chain length and prompt the walk takes the steps of a simulated engine."""
    rng = np.random.default_rng(seed)
    k, size, prompt = int(rng.integers(1, 6)), int(rng.integers(2, 60)), int(rng.integers(1, 12))
    text = rng.integers(0, 1000, size).tolist()
    match = (rng.random((k, size)) < rng.random()).astype(np.int8)

    def draft(row: int, j: int) -> int:
        return text[row + j + 1] if match[j - 1, row] else -1

    accepted = simulate(text, prompt, draft, k)
    rows = agreement(inside(match[:, : size - 1]), prompt)
    found = walked([rows])
    assert found.steps_p.tolist() == [len(accepted)]
    assert found.accepted_pk[0].tolist() == [sum(a > j for a in accepted) for j in range(k)]
    if accepted:
        assert found.accepted == pytest.approx(np.mean(accepted))


def test_the_simulation_is_not_idle() -> None:
    """The oracle writes the target's text and counts by hand what this chain gets: three, none, one."""
    text = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11]
    wrong = {(5, 1), (6, 2)}  # (row, position)

    def draft(row: int, j: int) -> int:
        return 0 if (row, j) in wrong else text[row + j + 1]

    assert simulate(text, 2, draft, 3) == [3, 0, 1]


def test_an_unknown_row_ends_the_walk() -> None:
    """The walk stops at a row where one position is unknown, though later rows are known; every_start skips that row alone."""
    match = np.zeros((2, 8), np.int8)
    match[1, 3] = UNKNOWN
    assert walked([agreement(match, 1)]).steps_p.tolist() == [3]
    assert walked([agreement(match, 4)]).steps_p.tolist() == [0]
    assert every_start([agreement(match, 1)], False).steps_p.tolist() == [7]
    assert every_start([agreement(match, 4)], True).steps_p.tolist() == [4]  # from the prompt's last row on


def test_counts_by_position() -> None:
    """A position counts only behind accepted ones; conditional is of those that came so far, and NaN where none did."""
    match = np.array([[1, 1, 0, 1], [1, 0, 1, 1], [0, 1, 1, 0]])
    found = every_start([agreement(match)], False)
    assert found.accepted_pk.tolist() == [[3, 2, 0]]
    assert found.by_position == (0.75, 0.5, 0.0)
    assert found.conditional == pytest.approx((0.75, 2 / 3, 0.0))
    assert found.accepted == 1.25
    none = every_start([agreement(np.zeros((3, 4)))], False)
    assert none.conditional[0] == 0.0
    assert np.isnan(none.conditional[1:]).all()


def test_steps_are_weighed_not_prompts() -> None:
    """Two prompts of other lengths give the share of all steps, not the mean of the prompts' shares."""
    counts = Counts(np.array([1, 9]), np.array([[1], [0]]))
    assert counts.accepted == 0.1


def test_rates_of_single_rows() -> None:
    """Agreement of a position is its own, whatever came before, and of known rows only."""
    match = np.array([[0, 1, 1, UNKNOWN], [1, 1, UNKNOWN, UNKNOWN]])
    assert agreement_rates([agreement(match, 2)], False) == pytest.approx((2 / 3, 1.0))
    assert agreement_rates([agreement(match, 2)], True) == (1.0, 1.0)
    unknown = np.full((2, 3), UNKNOWN)
    assert np.isnan(agreement_rates([agreement(unknown)], False)).all()


def test_overlap_of_a_chain() -> None:
    """With drafts sampled a position is reached with the product of the overlaps before it."""
    overlap = np.array([[0.5, 1.0, np.nan], [0.5, 0.0, 0.7]], np.float32)
    share, together = overlap_rates([agreement(np.zeros((2, 3)), 1, overlap)], False)
    assert share == pytest.approx((0.75, 0.25))
    assert together == pytest.approx(((0.5 + 0.25) + (1.0 + 0.0)) / 2)
    blank = agreement(np.zeros((2, 3)))
    assert overlap_rates([blank], False) == ((), None)


def counts(seed: int, prompts: int = 9, k: int = 3) -> Counts:
    rng = np.random.default_rng(seed)
    steps = rng.integers(5, 40, prompts)
    accepted = np.stack([rng.binomial(steps, share) for share in (0.6, 0.4, 0.2)[:k]], axis=1)
    return Counts(steps, accepted)


def test_intervals_are_the_same_every_time() -> None:
    """Two calls give one interval, which holds the figure; positions are intervals of their own."""
    one = estimate(counts(1))
    assert one == estimate(counts(1))
    assert one.low is not None
    assert one.high is not None
    assert one.low < one.value < one.high
    assert one.value == counts(1).accepted
    places = by_position(counts(1))
    assert tuple(p.value for p in places) == pytest.approx(counts(1).by_position)
    assert all(p.low is not None and p.low <= p.value for p in places)


def test_equal_things_differ_by_exactly_nothing() -> None:
    """The difference of two equal counts is 0 with an interval of 0 to 0, in every position as well."""
    for found in (difference(counts(1), counts(1)), *differences(counts(1), counts(1))):
        assert (found.value, found.low, found.high) == (0.0, 0.0, 0.0)


def test_pairing_narrows_a_difference() -> None:
    """One accepted token less on every prompt is known far better than each side's own figure."""
    base = counts(1, 20)
    other = Counts(base.steps_p, base.accepted_pk - np.array([1, 0, 0]))
    found, alone = difference(base, other), estimate(base)
    assert found.value == pytest.approx(-20 / base.steps_p.sum())
    assert found.low is not None
    assert found.high is not None
    assert alone.low is not None
    assert alone.high is not None
    assert found.low < found.value < found.high < 0
    assert found.high - found.low < 0.5 * (alone.high - alone.low)
    assert differences(base, other)[1].value == 0.0


def test_an_interval_covers() -> None:
    """Of 95 % intervals over 40 drawn prompts, between 88 and 99 in a hundred hold the true rate."""
    rng, held = np.random.default_rng(0), 0
    for _ in range(200):
        rates = rng.beta(4, 4, 40)  # prompts differ
        steps = np.full(40, 30)
        found = estimate(Counts(steps, rng.binomial(steps, rates)[:, None]))
        assert found.low is not None
        assert found.high is not None
        held += found.low <= 0.5 <= found.high
    assert 0.88 <= held / 200 <= 0.99


def test_one_prompt_has_no_interval() -> None:
    """A single prompt leaves nothing to draw from; none at all is nothing accepted."""
    one = Counts(np.array([4]), np.array([[2, 1]]))
    assert (estimate(one).value, estimate(one).low, estimate(one).high) == (0.75, None, None)
    assert difference(one, one).low is None
    assert walked([]).accepted == 0.0
