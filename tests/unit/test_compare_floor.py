"""The judgement of errors against a yardstick: what is accused, what is acquitted, and what stays open."""

from __future__ import annotations

import numpy as np
import pytest

from hsparity.floor import (
    LIMIT,
    SETS,
    Bootstrap,
    Errors,
    ceiling,
    fewest_beyond,
    judge,
    simultaneous,
    student,
    wilson,
)
from hsparity.model import Ratio, Verdict

TOKENS = 512


def yard(seed: int, tokens: int = TOKENS, flips: float = 0.0) -> np.ndarray:
    """Log-normal errors around 4e-3; a share of `flips` jumps to about 0.2."""
    rng = np.random.default_rng(seed)
    values = 4e-3 * np.exp(0.15 * rng.standard_normal(tokens))
    hit = rng.random(tokens) < flips
    values[hit] = 0.2 * np.exp(0.3 * rng.standard_normal(hit.sum()))
    return values


def judged(
    error: np.ndarray, floor: np.ndarray, of: str = "cand", prompts: int = 1, sites: int = 30
) -> Ratio:
    lengths = [len(error) // prompts] * prompts
    return judge(Errors(of, error, floor), Bootstrap.over(lengths), ceiling([floor], routed=True), sites)


@pytest.mark.parametrize("flips", [0.0, 0.03])
@pytest.mark.parametrize("tokens", [64, 512, 2048])
def test_the_same_distribution_is_never_accused(tokens: int, flips: float) -> None:
    """Of 20 pairs from one distribution none is diverged and, with 512 tokens, at most one in ten is open."""
    words = [judged(yard(s, tokens, flips), yard(s + 100, tokens, flips)).verdict for s in range(20)]
    assert Verdict.DIVERGED not in words
    if tokens >= 512:
        assert words.count(Verdict.PARITY) >= 18


@pytest.mark.parametrize("scale", [0.0, 0.2, 1.0, 1.3])
def test_below_the_limit_is_parity(scale: float) -> None:
    assert judged(scale * yard(1), yard(2)).verdict is Verdict.PARITY


@pytest.mark.parametrize("scale", [1.7, 3.0, 25.0])
def test_above_the_limit_is_diverged(scale: float) -> None:
    """W8A8 stands near 3, 4-bit weights near 25."""
    assert judged(scale * yard(1), yard(2)).verdict is Verdict.DIVERGED


def test_an_interval_across_the_limit_is_inconclusive() -> None:
    found = judged(1.5 * yard(1), yard(2))
    assert found.low < 1.5 < found.high
    assert found.verdict is Verdict.INCONCLUSIVE


def test_too_few_tokens_are_inconclusive() -> None:
    """Fifteen tokens are never parity, however small their errors; under thirty-two none are accused."""
    assert judged(0.1 * yard(1, 15), yard(2, 15)).verdict is Verdict.INCONCLUSIVE
    assert judged(0.1 * yard(1, 16), yard(2, 16)).verdict is Verdict.PARITY
    few = judged(4.0 * yard(1, 31), yard(2, 31))
    assert few.verdict is Verdict.INCONCLUSIVE
    assert "too few to accuse" in few.reason
    assert judged(4.0 * yard(1, 32), yard(2, 32)).verdict is Verdict.DIVERGED


@pytest.mark.parametrize("value", [0.05, 0.3, 0.9])
def test_one_token_beyond_is_inconclusive(value: float) -> None:
    error = yard(1)
    error[7] = value
    found = judged(error, yard(2))
    assert (found.beyond, found.verdict) == (1, Verdict.INCONCLUSIVE)


def test_one_token_as_far_off_as_its_state_is_diverged() -> None:
    error = yard(1, flips=0.03)
    error[7] = 1.4
    assert judged(error, yard(2, flips=0.03)).verdict is Verdict.DIVERGED


def test_many_tokens_beyond_are_diverged_before_the_tail_sees_them() -> None:
    """Twelve tokens of 512 are 2 %, far below the tail's share, and cannot be chance over 30 sites."""
    error = yard(1)
    error[: fewest_beyond(30)] = 0.05
    found = judged(error, yard(2))
    assert found.share < 0.05
    assert found.verdict is Verdict.DIVERGED
    error = yard(1)
    error[: fewest_beyond(30) - 1] = 0.05
    assert judged(error, yard(2)).verdict is Verdict.INCONCLUSIVE


def test_a_heavy_tail_is_diverged_though_its_extremes_are_not() -> None:
    """A tenth of the tokens at 40x, below the floor's largest jump: only the tail's share tells."""
    floor = yard(2, 2048, flips=0.01)
    error = yard(1, 2048)
    error[:240] = 0.15
    found = judged(error, floor)
    assert found.beyond == 0
    assert found.verdict is Verdict.DIVERGED


def test_a_jump_the_floor_shows_elsewhere_is_no_extreme() -> None:
    """Where the yardstick jumps at some boundary, a first jump of that size at another one is open to any
    engine."""
    calm, jumping = yard(2), yard(3, flips=0.03)
    error = yard(1)
    error[7] = 0.2
    alone = judge(Errors("cand", error, calm), Bootstrap.over([TOKENS]), ceiling([calm], routed=True), 2)
    beside = judge(
        Errors("cand", error, calm), Bootstrap.over([TOKENS]), ceiling([calm, jumping], routed=True), 2
    )
    assert (alone.verdict, beside.verdict) == (Verdict.INCONCLUSIVE, Verdict.PARITY)


def test_an_ill_conditioned_token_is_no_extreme() -> None:
    """A token that stands out in the floor may stand out three times as far; the same error elsewhere is
    named, as one odd token of the floor excuses no other."""
    floor, error = yard(2), yard(1)
    floor[7] = 0.1
    error[7] = 0.25
    assert judged(error, floor).verdict is Verdict.PARITY
    error[7], error[8] = error[8], error[7]
    assert judged(error, floor).verdict is Verdict.INCONCLUSIVE
    error[7] = 1.1
    assert judged(error, floor).verdict is Verdict.DIVERGED


def test_prompts_are_drawn_whole_when_there_are_eight() -> None:
    """Tokens of one prompt that share an error are one observation: the interval is wider than for loose
    tokens."""
    rng = np.random.default_rng(0)
    shared = np.repeat(np.exp(0.4 * rng.standard_normal(16)), 32)
    error, floor = shared * yard(1), yard(2)
    loose, whole = judged(error, floor, prompts=1), judged(error, floor, prompts=16)
    assert whole.high - whole.low > 2 * (loose.high - loose.low)


def test_the_interval_holds_the_ratio_of_medians_of_plain_resampling() -> None:
    """The interval from binned counts is that of resampled medians within a few per cent."""
    error, floor = 1.1 * yard(1, 400), yard(2, 400)
    found = judged(error, floor)
    rng = np.random.default_rng(1)
    draws = rng.integers(0, 400, (4000, 400))
    spread = np.median(error[draws], axis=1) / np.median(floor[draws], axis=1)
    np.testing.assert_allclose((found.low, found.high), np.quantile(spread, (0.025, 0.975)), rtol=0.01)


def test_tokens_without_a_floor_are_judged_with_the_rest() -> None:
    """A garbage token that the floor's captures lack is not excused."""
    floor, error = yard(2), yard(1)
    floor[:20] = np.nan
    assert judged(error, floor, "pair").verdict is Verdict.PARITY
    error[3] = 1.4
    assert judged(error, floor, "pair").verdict is Verdict.DIVERGED


def test_a_floor_of_other_tokens_decides_nothing() -> None:
    assert judged(yard(1), np.full(TOKENS, np.nan)).verdict is Verdict.INCONCLUSIVE


def test_wilson_interval_of_a_known_case() -> None:
    """10 of 100: 0.0552 to 0.1744 (standard table)."""
    np.testing.assert_allclose(wilson(0.1, 100), (0.0552, 0.1744), atol=1e-4)


def test_students_quantiles_are_those_of_the_tables() -> None:
    """t at 0.025 with 10 degrees, 0.0005 with 7 and with 15, 0.001 with 60 (standard tables)."""
    asked = ((0.025, 10), (0.0005, 7), (0.0005, 15), (0.001, 60))
    np.testing.assert_allclose([student(*each) for each in asked], (2.228, 5.408, 4.073, 3.232), rtol=0.01)


def test_an_accusation_holds_over_all_sites_or_is_open() -> None:
    """A ratio whose own interval is above the limit, and that of 62 sites is not: accused as the only one, open among
    many, with the reason. The printed interval is the site's own either way."""
    error, floor = 1.55 * yard(1), yard(2)
    errors, drawn, top = (
        Errors("cand", error, floor),
        Bootstrap.over([TOKENS]),
        ceiling([floor], routed=False),
    )
    alone, among = judge(errors, drawn, top, 1, sets=1), judge(errors, drawn, top, 62)
    assert (alone.low, alone.high) == (among.low, among.high)
    assert among.low > LIMIT > simultaneous(errors, drawn, 62 * SETS).low_all
    assert (alone.verdict, among.verdict) == (Verdict.DIVERGED, Verdict.INCONCLUSIVE)
    assert "over all 62 sites is not; more prompts settle it" in among.reason


def test_the_interval_of_all_contains_the_sites_own_and_scales() -> None:
    errors, drawn = Errors("cand", yard(1), yard(2)), Bootstrap.over([TOKENS])
    one, many = simultaneous(errors, drawn, 1), simultaneous(errors, drawn, 372)
    assert many.low_all < one.low_all <= one.low < one.median < one.high <= one.high_all < many.high_all
    twice = simultaneous(Errors("cand", 2 * yard(1), yard(2)), drawn, 372)
    np.testing.assert_allclose(
        (twice.low_all, twice.high_all), (2 * many.low_all, 2 * many.high_all), rtol=1e-9
    )


def test_few_tokens_have_no_interval() -> None:
    found = simultaneous(Errors("cand", yard(1, 15), yard(2, 15)), Bootstrap.over([15]), 9)
    assert found.low_all == found.median == found.high_all


def test_comparisons_at_the_limit_are_rarely_accused() -> None:
    """Thirty comparisons of twenty sites whose true ratio is the limit: at their own 95 % most have an accused site, over
    all sites at most two."""
    alone = among = 0
    drawn = Bootstrap.over([64])
    for seed in range(30):
        sets = [
            Errors("cand", LIMIT * yard(1000 * seed + k, 64), yard(1000 * seed + 500 + k, 64))
            for k in range(20)
        ]
        ends = [simultaneous(each, drawn, len(sets)) for each in sets]
        alone += any(end.low > LIMIT for end in ends)
        among += any(end.low_all > LIMIT for end in ends)
    assert alone > 5
    assert among <= 2
