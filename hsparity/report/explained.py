"""What the page says of its codes beyond this one result: the texts of `hsparity explain`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from ..explain import entries
from ..explain.markup import as_html
from ..model import Comparison, Finding
from . import findings, reasons, view
from . import spelling as sp


@dataclass(frozen=True, slots=True)
class Explanation:
    code: str
    anchor: str
    title: str
    body: Markup


@dataclass(frozen=True, slots=True)
class Remedy:
    word: str  # how sure
    said: str
    change: str


def explanations(comparison: Comparison) -> list[Explanation]:
    """Of every finding that the page holds to be there, in its order; codes in them link to one another."""
    shown = dict.fromkeys(f.code for f in _shown(comparison) if f.code in entries())
    return [
        Explanation(
            code, f"why-{code}", f"{code} {entries()[code].name}", Markup(as_html(code, present=tuple(shown)))
        )
        for code in shown
    ]


def remedy(comparison: Comparison) -> Remedy | None:
    """The hypothesis that stands first, and what to do about it; None where none is at least likely."""
    best = reasons.surest(comparison)
    if best is None:
        return None
    known = entries().get(best.code)
    share = reasons.share(best)
    headline = sp.clean(best.headline).rstrip(".")
    return Remedy(
        "Settled" if best.confidence == "settled" else "Most likely",
        f"{findings.title(best)}{f', {share}' if share else ''}: {headline}.",
        _section(known.text, "Fix") if known else "",
    )


def _shown(comparison: Comparison) -> Sequence[Finding]:
    return (*findings.found(comparison), *reasons.hypotheses(comparison), *view.notes(comparison))


def _section(text: str, heading: str) -> str:
    """One section of an explanation as a line of plain text."""
    found = re.search(rf"(?ms)^## {heading}\n(.*?)(?=^## |\Z)", text)
    return " ".join(found[1].replace("`", "").split()) if found else ""
