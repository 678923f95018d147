"""How sure a measured share makes us, and how it is written."""

from __future__ import annotations

from dataclasses import replace

from .alike import SETTLED
from .attribution import Share
from .result import Blame, Span

LIKELY, POSSIBLE = 0.5, 0.05
WORDS = ("settled", "likely", "possible", "inconclusive")


def word(value: Share, joint: Share | None) -> str:
    """How sure: settled where it explains nine tenths with its whole interval, or its share of what the knobs together do
    is plain."""
    if value.low >= SETTLED:
        return "settled"
    if joint is not None and joint.low >= SETTLED and value.low > POSSIBLE:
        return "settled"
    if value.low >= LIKELY:
        return "likely"
    return "possible" if value.low > POSSIBLE else "inconclusive"


def at_most(confidence: str, limit: str) -> str:
    return WORDS[max(WORDS.index(confidence), WORDS.index(limit))]


def changed(blame: Blame, **changed: object) -> Blame:
    return replace(blame, **changed)  # type: ignore[arg-type]


def span(value: Share | None) -> Span | None:
    return None if value is None else Span(value.value, value.low, value.high)


def percent(value: Share) -> str:
    middle, low, high = (min(v, 1.0) for v in (value.value, value.low, value.high))
    return f"{middle:.0%} ({low:.0%} to {high:.0%})"
