"""What the reports say of a finding: its place, evidence, beaten rival and fix, as terminal, HTML and Markdown share
them."""

from __future__ import annotations

from collections.abc import Sequence

from ..model import Comparison, Finding
from . import spelling as sp
from . import view

ROWS = "HS11"  # codes of rows that hold the state of another token
TARGET_CLEAN = "HS902"
ENGINES = {"hf": "Transformers", "vllm": "vLLM", "sglang": "SGLang"}
SITES_SHOWN, ROWS_SHOWN = 6, 8


def found(comparison: Comparison) -> tuple[Finding, ...]:
    """The causes that hold, strongest first."""
    return tuple(f for f in view.causes(comparison) if not f.ruled_out)


def ruled_out(comparison: Comparison) -> tuple[Finding, ...]:
    return tuple(f for f in view.causes(comparison) if f.ruled_out)


def title(finding: Finding) -> str:
    """HS101 layer-offset."""
    return f"{sp.clean(finding.code)} {sp.clean(finding.name)}"


def share(comparison: Comparison, finding: Finding) -> str:
    """Of the excess, what goes away with it, and that the rows were given back first; empty when not measured."""
    if finding.explained is None:
        return ""
    return f"{sp.percent(finding.explained)} of the excess{after(comparison, finding)}"


def after(comparison: Comparison, finding: Finding) -> str:
    """Findings peel: where rows hold other tokens' states, slots are judged with the rows put back."""
    peeled = any(f.code.startswith(ROWS) and f.explained is not None for f in found(comparison))
    later = finding.explained is not None and finding.code[:3] in ("HS1", "HS2", "HS3")
    return ", after the rows are given back" if peeled and later and not finding.code.startswith(ROWS) else ""


def summary(comparison: Comparison) -> list[str]:
    """One sentence per cause that holds: code, name, share and headline; a lone one that repeats the verdict's line
    leaves that out."""
    causes = found(comparison)
    out = []
    for finding in causes:
        explained = share(comparison, finding)
        words = f"{title(finding)} explains {explained}" if explained else title(finding)
        repeats = len(causes) == 1 and view.repeats_headline(comparison, finding)
        out.append(f"{words}." if repeats else f"{words}: {sp.clean(finding.headline)}")
    return out


def facts(comparison: Comparison, finding: Finding, lines: int | None = None) -> list[tuple[str, list[str]]]:
    """(label, lines) in reading order: the rows, the slots, the first `lines` of evidence, the rival it beat."""
    evidence = [sp.clean(line) for line in finding.evidence]
    if lines is not None and len(evidence) > lines + 1:
        evidence = [*evidence[:lines], f"{len(evidence) - lines} more lines: -v"]
    parts = [
        ("rows", [rows(finding)] if finding.rows else []),
        ("slots", [slots(comparison, finding)] if finding.slots else []),
        ("evidence", evidence),
        ("next best", [sp.clean(finding.rival)] if finding.rival else []),
    ]
    return [(label, words) for label, words in parts if words]


def rows(finding: Finding) -> str:
    """46 tokens (prompt and positions): p2 0-4, p3 0-5."""
    spans = [sp.clean(r) for r in finding.rows]
    more = f" and {len(spans) - ROWS_SHOWN} more spans" if len(spans) > ROWS_SHOWN else ""
    held = f"{sp.count(finding.tokens, 'token')} (prompt and positions): " if finding.tokens else ""
    return f"{held}{', '.join(spans[:ROWS_SHOWN])}{more}"


def slots(comparison: Comparison, finding: Finding) -> str:
    """boundaries 2-7; slot.000, slot.002; all 10 requested sites."""
    asked = view.requested(comparison)
    keys = set(finding.slots)
    if len(asked) > 3 and (keys >= {d.cand for d in asked} or keys >= {d.ref for d in asked}):
        return f"all {len(asked)} requested"
    return sites(finding.slots)


def sites(keys: Sequence[str]) -> str:
    """Site keys for a sentence: boundaries by number, others as they are."""
    numbers = sorted({b for k in keys if (b := view.boundary_of(k)) is not None})
    others = list(dict.fromkeys(sp.clean(k) for k in keys if view.boundary_of(k) is None))
    more = f" and {len(others) - SITES_SHOWN} more" if len(others) > SITES_SHOWN else ""
    noun = "boundary" if len(numbers) == 1 else "boundaries"
    parts = [f"{noun} {sp.numbers(tuple(numbers))}"] if numbers else []
    return ", ".join([*parts, *others[:SITES_SHOWN]]) + more


def fixes(comparison: Comparison, finding: Finding) -> list[tuple[str, str]]:
    """(engine, what to change): "" first, for any engine, then the engines of the two sides, then the others."""
    sides = {ENGINES.get(s.engine, s.engine).lower() for s in (comparison.ref, comparison.cand)}
    known = [(ENGINES.get(k, sp.clean(k)) if k != "any" else "", sp.clean(v)) for k, v in finding.fix.items()]

    def order(item: tuple[str, str]) -> tuple[bool, bool, str]:
        engine = item[0].lower()
        return (engine != "", not any(engine.startswith(side) for side in sides), engine)

    return sorted(known, key=order)


def left_to_check(comparison: Comparison) -> tuple[str, ...]:
    """What is left to check on the draft's side, when the target is clean."""
    clean = next((f for f in view.notes(comparison) if f.code == TARGET_CLEAN), None)
    return () if clean is None else tuple(sp.clean(line) for line in clean.evidence)


def note(finding: Finding) -> str:
    """What a note says; its evidence behind it, unless that is a list of its own."""
    if finding.code == TARGET_CLEAN:
        return sp.clean(finding.headline)
    return sp.clean(": ".join(part for part in (finding.headline, "; ".join(finding.evidence)) if part))
