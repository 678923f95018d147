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

SURE = ("settled", "likely")


@dataclass(frozen=True, slots=True)
class Explanation:
    anchor: str
    title: str
    body: Markup


def explanations(comparison: Comparison) -> list[Explanation]:
    """Of every finding that the page holds to be there, in its order; codes in them link to one another."""
    shown = dict.fromkeys(f.code for f in _shown(comparison) if f.code in entries())
    return [
        Explanation(
            f"why-{code}", f"{code} {entries()[code].name}", Markup(as_html(code, present=tuple(shown)))
        )
        for code in shown
    ]


def anchors(comparison: Comparison) -> dict[str, str]:
    """Code -> the address of its explanation on the page."""
    return {f.code: f"#why-{f.code}" for f in _shown(comparison) if f.code in entries()}


def remedy(comparison: Comparison) -> tuple[str, str] | None:
    """(the most likely hypothesis in a sentence, what to do about it); None where none is at least likely."""
    best = next((f for f in reasons.hypotheses(comparison) if f.confidence in SURE), None)
    if best is None:
        return None
    word = ", ".join(w for w in (reasons.word(best), reasons.share(best)) if w)
    headline = sp.clean(best.headline).rstrip(".")
    known = entries().get(best.code)
    return f"{findings.title(best)}, {word}: {headline}.", _section(known.text, "Fix") if known else ""


def _shown(comparison: Comparison) -> Sequence[Finding]:
    return (*findings.found(comparison), *reasons.hypotheses(comparison), *view.notes(comparison))


def _section(text: str, heading: str) -> str:
    """One section of an explanation as a line of plain text."""
    found = re.search(rf"(?ms)^## {heading}\n(.*?)(?=^## |\Z)", text)
    return " ".join(found[1].replace("`", "").split()) if found else ""
