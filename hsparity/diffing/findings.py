"""Which findings are new, gone or the same, and whether a new one means that something got worse."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import NormalDist

from hsparity.model import Comparison, Finding
from hsparity.report import spelling as sp

from .judging import ERROR_RATE, counted
from .result import Change, FindingChange, Held, SiteChange
from .terms import Terms

FINE = ("HS901", "HS902")  # within noise, target clean
STATUSES = ("new", "gone", "stayed")


def finding_changes(
    old: Comparison, new: Comparison, terms: Terms, sites: Sequence[SiteChange]
) -> tuple[FindingChange, ...]:
    """Causes and hypotheses that hold, and notes; new ones first, each group in the order of its comparison."""
    then, now = _active(old), _active(new)
    out = []
    for code in dict.fromkeys([*now, *then]):
        a, b = _held(then.get(code)), _held(now.get(code))
        change, reason = _change(a, b, terms, sites)
        name = (now.get(code) or then[code])[0].name
        out.append(
            FindingChange(code, name, "stayed" if a and b else "new" if b else "gone", a, b, change, reason)
        )
    return tuple(sorted(out, key=lambda f: STATUSES.index(f.status)))


def _active(comparison: Comparison) -> dict[str, tuple[Finding, ...]]:
    """What holds, by code, in the comparison's order."""
    found: dict[str, tuple[Finding, ...]] = {}
    for f in comparison.findings:
        if not f.ruled_out and f.code not in FINE:
            found[f.code] = (*found.get(f.code, ()), f)
    return found


def _held(findings: tuple[Finding, ...] | None) -> Held | None:
    if not findings:
        return None
    lead = findings[0]
    return Held(
        lead.severity,
        lead.headline,
        lead.explained,
        sum(f.tokens for f in findings),
        tuple(dict.fromkeys(s for f in findings for s in f.slots)),
        any(f.structural for f in findings),
    )


def _change(
    then: Held | None, now: Held | None, terms: Terms, sites: Sequence[SiteChange]
) -> tuple[Change, str]:
    """The word for a finding, and why."""
    caused = [held is not None and held.severity == "cause" for held in (then, now)]
    held = now if caused[1] else then
    if held is None or not any(caused):
        return Change.SAME, "decides nothing by itself"
    if all(caused) and then is not None:
        return _grown(then, held, terms)
    touched = [s for s in sites if s.ref in held.slots or s.cand in held.slots]
    alike = all(s.change is Change.SAME for s in touched or sites if s.requested)
    if alike and not held.structural:
        named = "newly named" if caused[1] else "named no longer"
        return Change.SAME, f"the figures of its sites stayed as they were: {named}"
    doubt = _doubt(terms, held)
    if doubt:
        return Change.UNKNOWN, doubt
    return (
        (Change.WORSE, "a cause that was not there then") if caused[1] else (Change.BETTER, "no longer there")
    )


def _doubt(terms: Terms, held: Held) -> str:
    """Why a cause that one side alone has may have been on both; empty when nothing speaks for that."""
    reasons = [
        (terms.model, "that it is one model is not known"),
        (terms.prompts, "other tokens"),
        (terms.version, "another hsparity looked for it"),
        (terms.evidence, "the captures hold other sites"),
        (terms.yardstick or held.structural, "another floor"),
        (terms.request, "other layers were asked for"),
    ]
    return next((f"not held against the other result: {why}" for holds, why in reasons if not holds), "")


def _grown(then: Held, now: Held, terms: Terms) -> tuple[Change, str]:
    """A cause that both have, on more or on fewer tokens and slots."""
    if _doubt(terms, now):
        return Change.SAME, ""
    z = NormalDist().inv_cdf(1 - ERROR_RATE)
    change = counted(then.tokens, now.tokens, z) if min(then.tokens, now.tokens) > 0 else Change.SAME
    if change is not Change.SAME:
        return change, f"on {now.tokens:,} tokens now, {then.tokens:,} then"
    more, fewer = set(now.slots) - set(then.slots), set(then.slots) - set(now.slots)
    # Without slots a finding is about all of them.
    if now.structural and then.structural and then.slots and now.slots and bool(more) != bool(fewer):
        named = ", ".join(sorted(sp.clean(s) for s in more or fewer)[:4])
        return (Change.WORSE, f"now on {named} too") if more else (Change.BETTER, f"no longer on {named}")
    return Change.SAME, ""
