"""Which lines about a draft model's config a report prints, and when it prints none."""

from __future__ import annotations

from ..conventions import draft_ids
from ..model import Comparison
from . import view

WITH_A_FIX = ("HS101", "HS103")  # their fix says what to write; two tables of one engine would disagree


def lines(comparison: Comparison) -> tuple[tuple[str, str], ...]:
    """(engine, what to write) for the boundaries asked for; none where a fix says it, or nobody asked."""
    lead, asked = view.leading(comparison), comparison.request
    fixed = lead is not None and lead.code in WITH_A_FIX and bool(lead.fix)
    unasked = asked.spelled.rsplit(" ", 1)[-1].lower() == "all"
    if fixed or unasked or not asked.boundaries:
        return ()
    architecture = comparison.cand.architecture or comparison.ref.architecture
    return draft_ids(asked.boundaries, comparison.ref.num_layers, architecture)


def purpose(comparison: Comparison) -> str:
    """What the lines are for."""
    return f"to feed a draft model {view.requested_words(comparison)}, write in its config"
