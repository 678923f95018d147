"""Whether a site got worse, by more than the intervals of its figures allow.

Two comparisons of the same tokens. A median counts as moved when all of this holds: its 95 % intervals, then and now, are
apart; the step is beyond them over all sites at once (Bonferroni over K sites and SETS sets of errors, at 0.025, the
half-widths on the log scale taken as 1.96 standard errors); and it is LEAST or more. Healthy engines stand up to 9 %
apart on one model with intervals that do not touch, because an interval is about tokens, not about the order in which a
kernel adds. Counts of tokens beyond the floor are held against each other as paired counts: n now and m then differ when
(n - m) / sqrt(n + m) is beyond the same quantile, as if no token had been beyond both times. Single tokens: `extremes`.

Where the floors are not the same, rel-L2 takes the ratio's place, with the relative width of the pair's interval. Without a
ratio on either side only distributions that are plainly apart are called so: 95 % of the tokens now beyond 95 % then.
"""

from __future__ import annotations

import math
from statistics import NormalDist

from hsparity.model import Comparison, Quantiles, Ratio, SiteDelta, Verdict
from hsparity.report import spelling as sp
from hsparity.report import view

from .extremes import LEAST, extremes
from .matching import matched
from .result import Change, SiteChange, Span, Standing
from .terms import Terms

ERROR_RATE = 0.025
MOST = 10**15  # tokens
SETS = 6  # ref, cand and pair, on all channels and without the massive ones
Z95 = 1.959964
SHOWN = ("cand", "pair", "ref")  # whose ratio a table shows, where nothing says another


def judge_sites(old: Comparison, new: Comparison, terms: Terms) -> tuple[SiteChange, ...]:
    """Every site of either comparison, in the order of the new one; those that only the old one has come last."""
    pairs = matched(old, new)
    shared = sum(bool(then and now and then.tokens and now.tokens) for then, now in pairs)
    z = NormalDist().inv_cdf(1 - ERROR_RATE / (max(shared, 1) * SETS))
    return tuple(_judge(then, now, terms, z) for then, now in pairs)


def _judge(then: SiteDelta | None, now: SiteDelta | None, terms: Terms, z: float) -> SiteChange:
    one = now if now is not None else then
    assert one is not None
    of, (change, reason) = "", _absent(then, now)
    if then is not None and now is not None and not reason:
        of, change, reason = _held(then, now, terms, z)
    if not of:
        of = next((name for name in SHOWN if any(d and view.ratio_of(d, name) for d in (then, now))), "")
    return SiteChange(
        one.ref,
        one.cand,
        any(d is not None and d.requested for d in (then, now)),
        of,
        _standing(then, of),
        _standing(now, of),
        change,
        reason,
    )


def _standing(delta: SiteDelta | None, of: str) -> Standing | None:
    if delta is None:
        return None
    ratio = view.ratio_of(delta, of)
    return Standing(
        delta.tokens, delta.verdict, view.rel_l2(delta).p50, None if ratio is None else _span(ratio)
    )


def _span(ratio: Ratio) -> Span:
    return Span(ratio.median, ratio.low, ratio.high)


def _absent(then: SiteDelta | None, now: SiteDelta | None) -> tuple[Change, str]:
    """Why there are no two figures; empty when there are."""
    if then is not None and now is not None and then.verdict is now.verdict is Verdict.MISSING:
        return Change.SAME, "missing then and now"
    for delta, word in ((then, "then"), (now, "now")):
        if delta is None:
            return Change.UNKNOWN, f"not compared {word}"
        if not delta.tokens:
            return Change.UNKNOWN, sp.clean(f"nothing to hold {word}: {delta.reason}")
    return Change.UNKNOWN, ""


def _held(then: SiteDelta, now: SiteDelta, terms: Terms, z: float) -> tuple[str, Change, str]:
    """(whose ratio, word, reason) of a site with tokens on both sides."""
    if not terms.model:
        return "", Change.UNKNOWN, "that it is one model is not known"
    if not terms.tokens or then.tokens != now.tokens:
        return "", Change.UNKNOWN, "other tokens"
    bad = [sum(d.nonfinite) for d in (then, now)]
    if bad[1] > bad[0]:
        return "", Change.WORSE, f"{bad[1]:,} elements are NaN or Inf now, {bad[0]:,} then"
    of, change, reason = _by_ratios(then, now, z) if terms.yardstick else ("pair", *_by_errors(then, now, z))
    if change is not Change.WORSE:
        # A few tokens move neither a median nor a count.
        far, words = extremes(then, now)
        if far is not Change.SAME:
            return of, far, words
    return of, change, reason


def _by_ratios(then: SiteDelta, now: SiteDelta, z: float) -> tuple[str, Change, str]:
    """Held by the floor that both have."""
    if {then.verdict, now.verdict} == {Verdict.PARITY, Verdict.DIVERGED}:
        fell = now.verdict is Verdict.DIVERGED
        word = Change.WORSE if fell else Change.BETTER
        return (
            _furthest(then, now),
            word,
            sp.clean(f"{then.verdict.value} then, {now.verdict.value} now: {now.reason}"),
        )
    found: list[tuple[Change, str, str]] = []
    pairs = [(r, s) for r in then.ratios if (s := view.ratio_of(now, r.of)) is not None]
    for a, b in pairs:
        moved = moved_by(_span(a), _span(b), z)
        if moved in (Change.WORSE, Change.BETTER):
            found.append((moved, a.of, f"{a.of}: {_words(a)} then, {_words(b)} now"))
        for words, m, n in (
            (f"beyond {sp.ratio(a.limit)}× the largest floor error", a.beyond, b.beyond),
            ("beyond what 5 % of the floor's errors reach", _count(a, then), _count(b, now)),
        ):
            if (change := counted(m, n, z)) is not Change.SAME:
                found.append((change, a.of, f"{a.of}: {n:,} tokens {words} now, {m:,} then"))
    for word in (Change.WORSE, Change.BETTER):
        one = next((f for f in found if f[0] is word), None)
        if one is not None:
            return one[1].removesuffix(" rest"), word, one[2]
    if not pairs:
        return "", *_by_errors(then, now, z)
    if any(moved_by(_span(a), _span(b), z) is Change.UNKNOWN for a, b in pairs):
        return "", *_without_intervals(then, now)
    return "", Change.SAME, "no more than the intervals allow, or less than a quarter"


def _furthest(then: SiteDelta, now: SiteDelta) -> str:
    """The set of errors whose ratio moved most."""

    def step(of: str) -> float:
        a, b = view.ratio_of(then, of), view.ratio_of(now, of)
        if a is None or b is None or not (a.median > 0 and b.median > 0):
            return -1.0
        return abs(math.log(b.median) - math.log(a.median))

    best = max(SHOWN, key=step)
    return best if step(best) >= 0 else ""


def _count(ratio: Ratio, delta: SiteDelta) -> int:
    # A file may say anything of a share.
    return (
        round(min(max(ratio.share, 0.0), 1.0) * min(delta.tokens, MOST)) if math.isfinite(ratio.share) else 0
    )


def _words(ratio: Ratio) -> str:
    return f"{sp.ratio(ratio.median)}× the floor ({sp.ratio(ratio.low)} to {sp.ratio(ratio.high)})"


def _by_errors(then: SiteDelta, now: SiteDelta, z: float) -> tuple[Change, str]:
    """Held by rel-L2: its interval is as wide, relatively, as that of the pair's ratio."""
    spans = [_error_span(d) for d in (then, now)]
    moved = Change.UNKNOWN
    if spans[0] is not None and spans[1] is not None:
        moved = moved_by(spans[0], spans[1], z)
    if moved is Change.UNKNOWN:
        return _without_intervals(then, now)
    if moved is Change.SAME:
        return moved, "rel-L2: no more than the intervals allow, or less than a quarter"
    return moved, _errors(view.rel_l2(then), view.rel_l2(now))


def _error_span(delta: SiteDelta) -> Span | None:
    pair, error = view.ratio_of(delta, "pair"), view.rel_l2(delta).p50
    if pair is None or not pair.median > 0:
        return None
    return Span(error, error * pair.low / pair.median, error * pair.high / pair.median)


def _without_intervals(then: SiteDelta, now: SiteDelta) -> tuple[Change, str]:
    a, b = view.rel_l2(then), view.rel_l2(now)
    if a.p50 == b.p50 or (a.p50 > 0 and b.p50 > 0 and max(a.p50 / b.p50, b.p50 / a.p50) < LEAST):
        return Change.SAME, "rel-L2 moved by less than a quarter; no interval is known"
    if b.p05 > a.p95:
        return Change.WORSE, f"{_errors(a, b)}: 95 % of the tokens are beyond what 95 % were then"
    if b.p95 < a.p05:
        return Change.BETTER, f"{_errors(a, b)}: 95 % of the tokens are under what 95 % were then"
    return Change.UNKNOWN, f"{_errors(a, b)}, and without a ratio on both sides no interval is known"


def _errors(then: Quantiles, now: Quantiles) -> str:
    return f"rel-L2 {sp.error(then.p50)} then, {sp.error(now.p50)} now"


def moved_by(then: Span, now: Span, z: float) -> Change:
    """WORSE and BETTER where a median moved by more than chance over all sites; UNKNOWN without intervals."""
    if not all(map(math.isfinite, (then.value, then.low, then.high, now.value, now.low, now.high))):
        return Change.UNKNOWN
    up, down = now.low > then.high, now.high < then.low
    if not up and not down:
        return Change.SAME
    word, (less, more) = (Change.WORSE, (then, now)) if up else (Change.BETTER, (now, then))
    if not (less.value > 0 and less.high > 0 and more.value > 0 and more.low > 0):
        return word  # from nothing at all, or to it
    step = math.log(more.value) - math.log(less.value)
    upper, lower = math.log(less.high) - math.log(less.value), math.log(more.value) - math.log(more.low)
    error = math.hypot(upper, lower) / Z95
    return word if step > max(z * error, math.log(LEAST)) else Change.SAME


def counted(then: int, now: int, z: float) -> Change:
    """WORSE and BETTER where a count of the same tokens moved by more than chance."""
    then, now = (min(max(n, 0), MOST) for n in (then, now))  # a file may say anything
    if not then + now or abs(now - then) <= z * math.sqrt(then + now):
        return Change.SAME
    return Change.WORSE if now > then else Change.BETTER
