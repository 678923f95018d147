"""Single tokens that went wrong at a site whose median stayed: what counts of tokens are too coarse for.

A token whose error is as large as its state is no rounding: compare calls a site with one of them DIVERGED, so one that
is new is WORSE wherever the site is DIVERGED now. With such tokens then and now, more of them are WORSE where the quantiles
or the verdicts' reasons tell, and more tokens beyond the floor cannot be told. Below that, the largest of N errors of finite
variance exceeds c times the largest of N others with probability 1 / (1 + c^2) at most: beyond FAR the step is no chance,
and what it is, one token does not tell.
"""

from __future__ import annotations

import re

from hsparity.model import LOST, Quantiles, SiteDelta, Verdict
from hsparity.report import spelling as sp
from hsparity.report import view

from .result import Change

LEAST = 1.25
FAR = 4.5  # probability below 5 %; compare's own, 3 x the limit of 1.5
SAID_LOST = re.compile(r"\w+: ([0-9]{1,12}) tokens? off by as much as the state itself")
AS_LARGE = "as large as the state"


def extremes(then: SiteDelta, now: SiteDelta) -> tuple[Change, str]:
    """WORSE or UNKNOWN where single tokens of a site that is not at parity now are farther off; else SAME."""
    if now.verdict is Verdict.PARITY:
        return Change.SAME, ""
    found = [_held(then, now, name) for name in ("metrics", "rest")]
    for word in (Change.WORSE, Change.UNKNOWN):
        one = next((f for f in found if f[0] is word), None)
        if one is not None:
            return one
    return Change.SAME, ""


def _held(then: SiteDelta, now: SiteDelta, name: str) -> tuple[Change, str]:
    """All channels and tokens ("metrics"), or those without the massive ones ("rest")."""
    a, b = getattr(then, name).get("rel_l2"), getattr(now, name).get("rel_l2")
    if a is None or b is None:
        return Change.SAME, ""
    usual = max((r.limit * d.floor.worst for d in (then, now) if d.floor for r in d.ratios), default=0.0)
    whole = max(LOST, usual)
    words = f"largest error {sp.error(b.worst)} now, {sp.error(a.worst)} then"
    if b.worst >= whole:
        if a.worst < whole:
            sure = now.verdict is Verdict.DIVERGED and b.worst >= LEAST * a.worst
            return (Change.WORSE if sure else Change.UNKNOWN), f"{words}: {AS_LARGE}"
        return _more(then, now, (a, b), whole)
    if b.worst > max(usual, FAR * a.worst):
        return Change.UNKNOWN, f"{words}: more than chance; more prompts tell what it is"
    return Change.SAME, ""


def _more(
    then: SiteDelta, now: SiteDelta, errors: tuple[Quantiles, Quantiles], whole: float
) -> tuple[Change, str]:
    """Whether more tokens are off by their state, where some were already."""
    a, b = errors
    for share, m, n in (("5 %", a.p95, b.p95), ("1 %", a.p99, b.p99)):
        if m < whole <= n and n >= LEAST * m:
            return Change.WORSE, f"{share} of the tokens are off by errors {AS_LARGE} now, fewer were then"
    pairs = [(r, s) for r in then.ratios if (s := view.ratio_of(now, r.of)) is not None]
    for r, s in pairs:
        counts = [int(found[1]) if (found := SAID_LOST.match(x.reason)) else None for x in (r, s)]
        if counts[0] is not None and counts[1] is not None and counts[1] > counts[0]:
            return (
                Change.WORSE,
                f"{s.of}: {counts[1]:,} tokens off by errors {AS_LARGE} now, {counts[0]:,} then",
            )
    for r, s in pairs:
        if s.beyond > r.beyond:
            return (
                Change.UNKNOWN,
                f"{s.of}: {s.beyond:,} tokens beyond the floor now, {r.beyond:,} then, and errors {AS_LARGE} among them",
            )
    return Change.SAME, ""
