"""Figures of a draft's cost as its page spells them, and which feedings stand in its main table."""

from __future__ import annotations

import math

from ..drafter.result import Acceptance, DraftCost, Estimate


def main_feeds(cost: DraftCost) -> tuple[Acceptance, ...]:
    """The reference, the candidate, each finding undone, all of them, and the reference with noise."""
    return tuple(f for f in cost.feeds if f.key in ("ref", "cand", "noise") or f.key.startswith("undone:"))


def feeds_of(cost: DraftCost, prefix: str) -> tuple[Acceptance, ...]:
    """The feedings whose key begins so."""
    return tuple(f for f in cost.feeds if f.key.startswith(prefix))


def best_undone(cost: DraftCost) -> Acceptance | None:
    """The counterfactual under which most is accepted; of equal ones the first, which changes least."""
    return max(feeds_of(cost, "undone:"), key=lambda f: f.accepted.value, default=None)


def number(value: float | None, signed: bool = False) -> str:
    """0.36, with `signed` +0.36; a change that rounds to nothing is 0.00, and what was not measured is -."""
    if value is None or not math.isfinite(value):
        return "-"
    text = f"{value:{'+' if signed else ''}.2f}"
    return "0.00" if float(text) == 0 else text


def interval(figure: Estimate, signed: bool = False) -> str:
    """(0.32 to 0.42); empty where one prompt leaves none."""
    if figure.low is None or figure.high is None:
        return ""
    return f"({number(figure.low, signed)} to {number(figure.high, signed)})"


def spread(figure: Estimate | None, signed: bool = False) -> str:
    """The figure and its interval."""
    if figure is None:
        return "-"
    return f"{number(figure.value, signed)} {interval(figure, signed)}".rstrip()


def percent(value: float | None, places: int = 1, signed: bool = False) -> str:
    """45.8 %; - where it is not defined."""
    if value is None or not math.isfinite(value):
        return "-"
    text = f"{100 * value:{'+' if signed else ''}.{places}f}"
    return f"{text.lstrip('+-') if float(text) == 0 else text} %"


def points(figure: Estimate) -> str:
    """A share and its interval: 45.8 % (41.6 to 50.1)."""
    return _with_interval(percent(figure.value), figure, signed=False)


def apart(figure: Estimate) -> str:
    """A difference of two shares and its interval: -2.0 points (-7.0 to +3.0)."""
    shown = percent(figure.value, signed=True).replace(" %", " points")
    return _with_interval(shown, figure, signed=True)


def _with_interval(shown: str, figure: Estimate, signed: bool) -> str:
    if figure.low is None or figure.high is None:
        return shown
    low, high = (percent(v, signed=signed).removesuffix(" %") for v in (figure.low, figure.high))
    return f"{shown} ({low} to {high})"
