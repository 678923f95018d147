"""How far a result stands from parity, in whose unit, and which of two results stands worse."""

from __future__ import annotations

import math

from hsparity.model import Comparison, Verdict
from hsparity.report import spelling as sp
from hsparity.report import view

from .result import Entry

VERDICTS = (Verdict.DIVERGED, Verdict.MISSING, Verdict.INCONCLUSIVE, Verdict.PARITY)
YARDSTICKS = ("floor", "tolerance", "half-ulp", "")


def badness(entry: Entry) -> tuple[int, int, float, str]:
    """Worst first: by verdict, then by kind of yardstick, whose figures are of one unit, then by excess."""
    excess = math.inf if math.isnan(entry.excess) else -entry.excess
    return VERDICTS.index(entry.verdict), YARDSTICKS.index(entry.over), excess, entry.file


def excess_of(c: Comparison) -> tuple[float, str]:
    """(how many times the yardstick the worst requested site stands at, the yardstick)."""
    worst = view.worst_requested(c)
    if worst is None:
        return math.nan, ""
    ratios = [r.median for r in view.main_ratios(worst) if math.isfinite(r.median)]
    error = view.rel_l2(worst).p50
    if ratios:
        return max(ratios), "floor"
    if c.floor.kind == "tolerance" and c.floor.limit > 0:
        return error / c.floor.limit, "tolerance"
    if worst.floor is not None and worst.floor.p50 > 0:
        return error / worst.floor.p50, "floor"
    return (error / c.floor.resolution, "half-ulp") if c.floor.resolution > 0 else (math.nan, "")


def why_diverged(c: Comparison, excess: float, over: str) -> str:
    """Why a result diverged of which the excess does not say so: it is within its limit, or has none. Else empty."""
    limit = {"floor": c.floor.limit, "tolerance": 1.0}.get(over, math.inf)
    if c.verdict is not Verdict.DIVERGED or excess > limit:
        return ""
    proved = next((f for f in c.findings if f.structural and f.severity == "cause" and not f.ruled_out), None)
    if proved is not None:
        return sp.clean(f"{proved.code} is proved, whatever the size of the error")
    asked = view.requested(c)
    gone = sum(d.verdict is Verdict.MISSING for d in asked)
    if gone:
        return f"{gone} of {sp.count(len(asked), 'requested site')} {'is' if gone == 1 else 'are'} missing"
    beyond = next((d for d in asked if d.verdict is Verdict.DIVERGED), None)
    return sp.clean(f"{view.place_words(beyond.ref)}: {beyond.reason}") if beyond is not None else ""
