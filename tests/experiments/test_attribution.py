"""Shares from squared distances whose truth is known."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from hsparity.experiments.attribution import Ledger, gains, shapley, share, subsets, wanted

TOKENS, BOUNDARIES, WIDTH = 240, 3, 64
LENGTHS = [60] * 4


def errors(scale: float, seed: int) -> NDArray[np.float64]:
    """An error vector per boundary and token, [BOUNDARIES, TOKENS, WIDTH], of relative size about `scale`."""
    draw = np.random.default_rng(seed).standard_normal((BOUNDARIES, TOKENS, WIDTH))
    return scale * draw / np.sqrt(WIDTH)


def squared(*parts: NDArray[np.float64]) -> NDArray[np.float64]:
    result: NDArray[np.float64] = np.square(np.sum(parts, 0)).sum(-1)
    return result


def test_independent_errors_add_in_squares() -> None:
    """An error twice as large as another makes four fifths of the squared distance, and the shares add up to 1."""
    big, small = errors(2e-2, 1), errors(1e-2, 2)
    ledger = Ledger(squared(big, small), LENGTHS)
    found = {
        frozenset({"big"}): ledger.remaining(squared(small)),
        frozenset({"small"}): ledger.remaining(squared(big)),
        frozenset({"big", "small"}): ledger.remaining(0 * squared(big)),
    }
    values = shapley(["big", "small"], gains(found))
    shares = {name: share(float(v[0]), v[1:]) for name, v in values.items()}
    assert shares["big"].value == pytest.approx(0.8, abs=0.05)
    assert shares["big"].value + shares["small"].value == pytest.approx(1.0, abs=1e-9)
    assert shares["big"].low < 0.8 < shares["big"].high
    assert shares["small"].low < 0.2 < shares["small"].high


def test_intervals_cover_the_true_share() -> None:
    """Of 40 pairs whose knob makes three quarters of the squared distance, at least 34 intervals hold the truth."""
    held = 0
    for seed in range(40):
        cause, noise = errors(np.sqrt(3) * 1e-2, 100 + seed), errors(1e-2, 300 + seed)
        # Turning a knob draws the rounding anew.
        again = errors(1e-2, 500 + seed)
        ledger = Ledger(squared(cause, noise), LENGTHS)
        left = ledger.remaining(squared(again))
        found = share(1 - left.bulk, 1 - left.bulk_r)
        held += found.low <= 0.75 <= found.high
    assert held >= 34


def test_the_floor_is_no_part_of_the_excess() -> None:
    """A knob that brings the pair down to what two healthy engines differ by explains all of the excess."""
    cause, noise, again = errors(3e-2, 1), errors(1e-2, 2), errors(1e-2, 3)
    ledger = Ledger(squared(cause, noise), LENGTHS)
    left, floor = ledger.remaining(squared(again)), ledger.remaining(squared(errors(1e-2, 4)))
    found = share(1 - left.bulk, 1 - left.bulk_r, floor.bulk, floor.bulk_r)
    assert found.low < 1.0 < found.high
    assert found.value == pytest.approx(1.0, abs=0.03)


def test_knobs_that_only_act_together_share_alike() -> None:
    """Where either knob alone removes nothing and both remove everything, each gets half."""
    base = squared(errors(1e-2, 1))
    ledger = Ledger(base, LENGTHS)
    found = {
        frozenset({"a"}): ledger.remaining(base),
        frozenset({"b"}): ledger.remaining(base),
        frozenset({"a", "b"}): ledger.remaining(0 * base),
    }
    values = shapley(["a", "b"], gains(found))
    assert [float(values[n][0]) for n in "ab"] == pytest.approx([0.5, 0.5])


def test_the_tail_has_a_share_of_its_own() -> None:
    """A knob that explains the median token leaves the expert flips of one token in ten to the other."""
    rounding, flips = errors(1e-2, 1), 0 * errors(1e-2, 2)
    flips[:, ::10] = errors(0.3, 3)[:, ::10]
    ledger = Ledger(squared(rounding, flips), LENGTHS)
    left = ledger.remaining(squared(flips))
    assert 1 - left.bulk > 0.99
    assert 1 - left.tail < 0.1


def test_a_boundary_counts_as_much_as_another() -> None:
    """A boundary with a hundred times the distance does not outvote the others."""
    base = np.ones((3, TOKENS))
    base[2] *= 1e4
    after = base.copy()
    after[2] = 0
    assert Ledger(base, LENGTHS).remaining(after).bulk == pytest.approx(2 / 3)


def test_tokens_that_tell_nothing_are_left_out() -> None:
    """Bit-equal tokens and tokens that a capture lacks do not dilute what the others show."""
    base = np.zeros((1, TOKENS))
    base[0, :20] = 1.0
    base[0, 20:30] = np.nan
    ledger = Ledger(base, LENGTHS)
    assert ledger.tokens == 20
    assert ledger.remaining(0.25 * base).bulk == pytest.approx(0.25)


def test_equal_sides_have_nothing_to_share() -> None:
    """With no token apart, no set leaves anything."""
    ledger = Ledger(np.zeros((2, TOKENS)), LENGTHS)
    assert (ledger.tokens, ledger.remaining(np.zeros((2, TOKENS))).bulk) == (0, 0.0)


def test_singles_are_measured_first_and_every_subset_of_four() -> None:
    """Singles, then the whole, then the other subsets; above four knobs the whole less each."""
    four, six = wanted("abcd"), wanted("abcdef")
    assert four[:5] == [frozenset(c) for c in ("a", "b", "c", "d", "abcd")]
    assert len(four) == 15
    assert six[6] == frozenset("abcdef")
    assert {len(s) for s in six} == {1, 5, 6}
    assert wanted("a") == [frozenset("a")]


def test_shapley_values_of_many_knobs_average_first_and_last() -> None:
    """Without every subset, additive gains still come out as they are."""
    names, parts = "abcde", {"a": 0.5, "b": 0.2, "c": 0.15, "d": 0.1, "e": 0.05}
    gain = {s: np.array([sum(parts[n] for n in s)]) for s in wanted(names)}
    found = shapley(names, {frozenset(): np.zeros(1), **gain})
    assert {n: float(v[0]) for n, v in found.items()} == pytest.approx(parts)


def test_shapley_values_of_all_subsets_add_up_to_the_whole() -> None:
    """Efficiency holds for arbitrary gains of four players."""
    draw = np.random.default_rng(3)
    gain = {s: draw.random(1) * bool(s) for s in subsets("abcd")}
    found = shapley("abcd", gain)
    assert sum(float(v[0]) for v in found.values()) == pytest.approx(float(gain[frozenset("abcd")][0]))
