"""Texts for codes that are no findings: errors and exit codes. A finding's text is its cause's docstring."""

from __future__ import annotations

from .bisects import TEXTS as BISECTS
from .captures import TEXTS as CAPTURES
from .drafts_check import TEXTS as DRAFTS_CHECK
from .drafts_head import TEXTS as DRAFTS_HEAD
from .drafts_measure import TEXTS as DRAFTS_MEASURE
from .drafts_open import TEXTS as DRAFTS_OPEN
from .engines import TEXTS as ENGINES
from .entry import Entry
from .exits import TEXTS as EXITS
from .floors import TEXTS as FLOORS
from .replays import TEXTS as REPLAYS
from .usage import TEXTS as USAGE

__all__ = ["Entry", "texts"]


def texts() -> dict[str, Entry]:
    """Every entry by code, in code order. Exit codes are called "exit 0" and so on."""
    return {
        entry.code: entry
        for entry in (
            *USAGE,
            *CAPTURES,
            *REPLAYS,
            *BISECTS,
            *FLOORS,
            *DRAFTS_OPEN,
            *DRAFTS_HEAD,
            *DRAFTS_CHECK,
            *DRAFTS_MEASURE,
            *ENGINES,
            *EXITS,
        )
    }
