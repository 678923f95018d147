"""Why the numbers differ: hypotheses by rank and the fingerprint, as terminal, HTML and Markdown share them."""

from __future__ import annotations

from ..model import Comparison, Finding
from . import findings
from . import spelling as sp

FOR, AGAINST, FINGERPRINT = 3, 2, 4  # lines shown unless all are asked for
WORDS = {
    "settled": "settled by a replay or an experiment",
    "likely": "likely",
    "possible": "possible",
    "inconclusive": "inconclusive",
}


def hypotheses(comparison: Comparison) -> tuple[Finding, ...]:
    """Those that fit, most likely first."""
    return tuple(f for f in comparison.findings if f.severity == "hypothesis" and not f.ruled_out)


def surest(comparison: Comparison) -> Finding | None:
    """The first hypothesis that is settled or likely."""
    return next((f for f in hypotheses(comparison) if f.confidence in ("settled", "likely")), None)


def ruled_out(comparison: Comparison) -> tuple[Finding, ...]:
    """Causes that what was measured excludes; only where causes were weighed at all."""
    return tuple(f for f in comparison.findings if f.severity == "hypothesis" and f.ruled_out)


def heading(comparison: Comparison) -> str:
    return "why, most likely first" if len(hypotheses(comparison)) > 1 else "why"


def word(finding: Finding) -> str:
    """The confidence word in full."""
    return WORDS.get(finding.confidence, sp.clean(finding.confidence))


def share(finding: Finding) -> str:
    """Part of the excess that the affected rows carry, with its interval; empty when not measured."""
    if finding.explained is None:
        return ""
    low, high = finding.explained_low, finding.explained_high
    span = f" ({sp.percent(low)} to {sp.percent(high)})" if low is not None and high is not None else ""
    return f"{sp.percent(finding.explained)} of the excess{span}"


def facts(finding: Finding, verbose: bool = False) -> list[tuple[str, list[str]]]:
    """(label, lines) in reading order: for, against, the rival, the next commands."""
    parts = [
        ("for", _few(finding.evidence, FOR, verbose)),
        ("against", _few(finding.against, AGAINST, verbose)),
        ("rival", [sp.clean(finding.rival)] if finding.rival else []),
    ]
    return [(label, lines) for label, lines in parts if lines]


def next_commands(finding: Finding) -> list[str]:
    return [sp.clean(command) for command in finding.confirm]


def fingerprint(comparison: Comparison, verbose: bool = False) -> list[str]:
    """What the error looks like, one sentence a line; empty when nothing was measured."""
    found = comparison.fingerprint
    return [] if found is None else _few(found.lines, FINGERPRINT, verbose)


def out_lines(comparison: Comparison, verbose: bool = False) -> list[str]:
    """The causes ruled out: names in a line, or each with its reason."""
    out = ruled_out(comparison)
    if not out or not hypotheses(comparison):
        return []
    if verbose:
        return [f"{findings.title(f)}: {sp.clean(f.headline)}" for f in out]
    return [", ".join(sp.clean(f.name) for f in out)]


def _few(lines: tuple[str, ...], count: int, verbose: bool) -> list[str]:
    cleaned = [sp.clean(line) for line in lines]
    if verbose or len(cleaned) <= count + 1:
        return cleaned
    return [*cleaned[:count], f"{len(cleaned) - count} more lines: -v"]
