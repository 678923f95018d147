"""The experiments of a bisection as bars: the share of the excess that each took away."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup

from ..model import Trial
from . import spelling as sp
from .bar_figure import Bar, bar_figure

MOST = 12


def trials_figure(trials: Sequence[Trial]) -> Markup | None:
    """The measured ones, most first; None where none was measured."""
    measured = sorted((t for t in trials if t.share is not None), key=lambda t: -(t.share or 0.0))[:MOST]
    if not measured:
        return None
    bars = [_bar(t) for t in measured]
    label = "Share of the excess that goes away: " + "; ".join(
        f"{b.label} {b.text} {b.aside}".rstrip() for b in bars
    )
    return bar_figure(bars, label, "share of the excess that goes away, %", scale=100.0)


def _bar(trial: Trial) -> Bar:
    share = trial.share or 0.0
    known = trial.low is not None and trial.high is not None and trial.low < trial.high
    aside = f"({sp.percent(trial.low)} to {sp.percent(trial.high)})" if known else ""
    label = " and ".join(sp.clean(t) for t in trial.turned)
    tone = "accent" if share >= 0.5 else "muted"
    return Bar(
        label,
        tone,
        max(share, 0.0),
        sp.percent(share),
        trial.low if known else None,
        trial.high if known else None,
        aside,
    )
