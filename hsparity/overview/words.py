"""What the text, the Markdown and the HTML of an overview say alike."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import quote

from hsparity.model import Verdict
from hsparity.report import spelling as sp

from .result import Entry, Overview

OVER = {"floor": "×", "tolerance": "× the tolerance", "half-ulp": "× half an ulp"}
SAID = (
    "asked",
    "tokens",
    "offset",
    "floor",
    "hsparity",
    "ref dtype",
    "cand dtype",
)  # in the head; others fold away


def counted(overview: Overview) -> str:
    """12 results: 3 diverged, 1 inconclusive, 8 at parity; 1 result of a draft head: 1 diverged."""
    total = sp.count(len(overview.entries), "result")
    said = f"{total}{_by_verdict([e.verdict for e in overview.entries])}"
    if not overview.drafts:
        return f"{said}."
    drafts = sp.count(len(overview.drafts), "result of a draft head", "results of draft heads")
    return f"{said}; {drafts}{_by_verdict([d.verdict for d in overview.drafts])}."


def _by_verdict(verdicts: Sequence[Verdict]) -> str:
    """: 3 diverged, 8 at parity; empty for none."""
    words = (
        (Verdict.DIVERGED, "diverged"),
        (Verdict.INCONCLUSIVE, "inconclusive"),
        (Verdict.PARITY, "at parity"),
    )
    counts = [(sum(v is one for v in verdicts), word) for one, word in words]
    said = ", ".join(f"{n} {word}" for n, word in counts if n)
    return f": {said}" if said else ""


def excess(entry: Entry) -> str:
    """93×; 12× half an ulp where there is no floor; - where nothing was measured."""
    if math.isnan(entry.excess):
        return "-"
    return f"{sp.ratio(entry.excess)}{OVER[entry.over]}"


def title(entry: Entry) -> str:
    """HS101 layer-offset; empty without a cause."""
    return f"{entry.code} {entry.cause}".strip()


def skipped_words(overview: Overview) -> tuple[str, str]:
    """How many files are other saved results, and how many hold none; empty where none is."""
    other = [s.kind.removeprefix("hsparity.").partition("/")[0] for s in overview.skipped if s.kind]
    none = len(overview.skipped) - len(other)
    kinds = ", ".join(f"{other.count(kind)} {kind}" for kind in sorted(set(other)))
    n = len(other)
    return (
        f"{sp.count(n, 'other saved result')} ({kinds}) {'is' if n == 1 else 'are'} not shown" if n else "",
        f"{sp.count(none, 'JSON file')} {'holds' if none == 1 else 'hold'} no result and "
        f"{'is' if none == 1 else 'are'} not shown"
        if none
        else "",
    )


def link(folder: Path, name: str, page: str) -> str:
    """A relative address from the page at `page` ('-': from here) to a file of the folder: percent-encoded, so that
    no name of a file is read as a scheme, a query or another host."""
    start = Path() if page == "-" else Path(page).parent
    relative = os.path.relpath(os.path.abspath(folder / name), os.path.abspath(start))
    return quote(os.fsencode(Path(relative).as_posix()), safe="/")
