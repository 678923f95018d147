"""What a comparison lacked: a floor, or sites of one side."""

from __future__ import annotations

import shlex

from ..model import Comparison, Verdict
from . import spelling as sp
from . import view


def missing_reasons(comparison: Comparison) -> tuple[str, ...]:
    """Why the result is inconclusive or sites are missing, but for the floor: each reason once, in site order."""
    wanted = (Verdict.INCONCLUSIVE, Verdict.MISSING)
    reasons = [d.reason for d in view.requested(comparison) if d.verdict in wanted and d.reason]
    return tuple(dict.fromkeys(sp.clean(r) for r in reasons if not _of_floor(comparison, r)))


def floor_words(comparison: Comparison) -> str:
    """That no floor was given, and how to make one; empty where a floor was given or none was needed."""
    open_ = [d for d in view.requested(comparison) if d.verdict is Verdict.INCONCLUSIVE]
    if not any(_of_floor(comparison, d.reason) for d in open_):
        return ""
    words = "none given: nothing says how much of a difference is noise"
    if comparison.verdict is Verdict.INCONCLUSIVE:
        return f"{words}; the command under next makes one"
    return f"{words}; hsparity floor {shlex.quote(sp.clean(comparison.ref.path))} --only fp32,bf16 makes one"


def _of_floor(comparison: Comparison, reason: str) -> bool:
    return comparison.floor.kind == "none" and "no floor" in reason
