"""What the text, the Markdown and the HTML of an overview say alike."""

from __future__ import annotations

import math
import os
from pathlib import Path
from urllib.parse import quote

from hsparity.model import Verdict
from hsparity.report import spelling as sp

from .result import Entry, Overview

OVER = {"floor": "×", "tolerance": "× the tolerance", "half-ulp": "× half an ulp"}
SAID = ("asked", "tokens", "floor", "hsparity", "ref dtype", "cand dtype")  # in the head; others fold away


def counted(overview: Overview) -> str:
    """12 results: 3 diverged, 1 inconclusive, 8 at parity."""
    words = (
        (Verdict.DIVERGED, "diverged"),
        (Verdict.INCONCLUSIVE, "inconclusive"),
        (Verdict.PARITY, "at parity"),
    )
    counts = [(sum(e.verdict is v for e in overview.entries), word) for v, word in words]
    said = ", ".join(f"{n} {word}" for n, word in counts if n)
    total = sp.count(len(overview.entries), "result")
    drafts = sp.count(len(overview.drafts), "result of a draft head alone", "results of draft heads alone")
    return f"{total}{f': {said}' if said else ''}{f'; {drafts}' if overview.drafts else ''}."


def excess(entry: Entry) -> str:
    """93×; 12× half an ulp where there is no floor; - where nothing was measured."""
    if math.isnan(entry.excess):
        return "-"
    return f"{sp.ratio(entry.excess)}{OVER[entry.over]}"


def title(entry: Entry) -> str:
    """HS101 layer-offset; empty without a cause."""
    return f"{entry.code} {entry.cause}".strip()


def skipped_words(overview: Overview) -> str:
    """How many JSON files are not shown; empty when all are."""
    n = len(overview.skipped)
    return (
        f"{sp.count(n, 'JSON file')} {'holds' if n == 1 else 'hold'} no result and {'is' if n == 1 else 'are'} not shown"
        if n
        else ""
    )


def link(folder: Path, name: str, page: str) -> str:
    """A relative address from the page at `page` ('-': from here) to a file of the folder: percent-encoded, so that
    no name of a file is read as a scheme, a query or another host."""
    start = Path() if page == "-" else Path(page).parent
    relative = os.path.relpath(os.path.abspath(folder / name), os.path.abspath(start))
    return quote(os.fsencode(Path(relative).as_posix()), safe="/")
