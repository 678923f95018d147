"""Numbers with two significant figures, and foreign text made harmless."""

from __future__ import annotations

import math

import pytest

from hsparity.report import spelling as sp


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0.0, "0"),
        (0.94, "0.94"),
        (0.996, "1.0"),
        (1.0, "1.0"),
        (1.449, "1.4"),
        (9.96, "10"),
        (93.4, "93"),
        (99.6, "100"),
        (931, "930"),
        (12345, "1.2e+04"),
        (0.00123, "1.2e-03"),
        (0.0412, "0.041"),
        (math.nan, "-"),
        (math.inf, "inf"),
    ],
)
def test_ratios_have_two_figures(value: float, shown: str) -> None:
    """0.94, 93, 930: never 931, never 93.4."""
    assert sp.ratio(value) == shown


@pytest.mark.parametrize(
    ("value", "shown"), [(0.4567, "4.6e-01"), (0.0, "0"), (math.nan, "-"), (math.inf, "inf")]
)
def test_errors_have_two_figures(value: float, shown: str) -> None:
    """4.6e-01."""
    assert sp.error(value) == shown


@pytest.mark.parametrize(
    ("value", "shown"),
    [(0.9074, "0.9074"), (0.999998, "0.999998"), (1.0, "1.0000"), (-0.25, "-0.2500"), (math.nan, "-")],
)
def test_cosines_show_what_is_left_of_one(value: float, shown: str) -> None:
    """Four decimals, six where four would hide the difference."""
    assert sp.cosine(value) == shown


@pytest.mark.parametrize(
    ("share", "shown"),
    [
        (0.995, "99.5%"),
        (0.99999, ">99.9%"),
        (1.0, "100.0%"),
        (0.0, "0.0%"),
        (1e-6, "<0.1%"),
        (None, "-"),
        (math.nan, "-"),
    ],
)
def test_shares_never_claim_all_or_nothing(share: float | None, shown: str) -> None:
    """100.0% is all of it, 0.0% none."""
    assert sp.percent(share) == shown


@pytest.mark.parametrize(
    ("values", "shown"), [((), ""), ((3,), "3"), ((2, 30, 58), "2,30,58"), ((0, 1, 2, 3, 9, 10), "0-3,9,10")]
)
def test_runs_are_ranges(values: tuple[int, ...], shown: str) -> None:
    """Three or more in a row are written as a range."""
    assert sp.numbers(values) == shown


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        ("plain", "plain"),
        ("a\nb\tc\r", "a\\nb\\tc\\r"),
        ("\x1b[31m", "\\x1b[31m"),
        ("\x9b", "\\x9b"),
        ("a\u202eb", "a\\u202eb"),
        ("\u2028", "\\u2028"),
        ("\u05e9\u05dc\u05d5\u05dd", "\u05e9\u05dc\u05d5\u05dd"),
        ("\U0001f469\u200d\U0001f680", "\U0001f469\u200d\U0001f680"),
        ("\U000e0041", "\\U000e0041"),
        ("\ud800", "\\ud800"),
    ],
)
def test_foreign_text_cannot_steer(raw: str, shown: str) -> None:
    """Control and bidirectional characters are spelled out; letters of any script and joined emoji stay."""
    assert sp.clean(raw) == shown
    sp.clean(raw).encode()


def test_token_text_is_quoted() -> None:
    """Spaces at a token's edges can be seen."""
    assert sp.quoted(' a"') == '" a\\""'
