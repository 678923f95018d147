"""The verdict of a comparison and its one sentence, from the sites and the findings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from hsparity.evidence import Evidence
from hsparity.model import Finding, SiteDelta, Verdict


def decide(
    evidence: Evidence, deltas: Sequence[SiteDelta], found: Sequence[Finding]
) -> tuple[Verdict, str, tuple[Finding, ...]]:
    """Verdict, headline, and the findings in order: causes by share explained, hypotheses, notes, ruled out.

    Only requested sites decide, and structural findings. No finding ever turns a divergence into parity.
    """
    wanted = [d for d in deltas if d.requested]
    asked = {site for d in wanted for site in (d.ref, d.cand)}
    # What is wrong with sites that nobody asked for is worth a note, and decides nothing.
    found = [replace(f, severity="note") if _unasked(f, asked) else f for f in found]
    structural = [f for f in found if f.structural and f.severity == "cause" and not f.ruled_out]
    words = {d.verdict for d in wanted}
    if structural or words & {Verdict.DIVERGED, Verdict.MISSING}:
        verdict = Verdict.DIVERGED
    elif Verdict.INCONCLUSIVE in words or not wanted:
        verdict = Verdict.INCONCLUSIVE
    else:
        verdict = Verdict.PARITY
    kept = [f for f in found if not (f.ruled_out and verdict is Verdict.PARITY)]
    kept = [f for f in kept if f.code not in ("HS901", "HS902") or verdict is Verdict.PARITY]
    # What is equal enough needs no reason.
    kept = [f for f in kept if f.severity != "hypothesis" or verdict is not Verdict.PARITY]
    places = evidence.diagnosis.order if evidence.diagnosis is not None else {}
    order = sorted(kept, key=lambda f: _rank(f, places))
    return verdict, headline(evidence, verdict, wanted, structural), tuple(order)


def _unasked(finding: Finding, asked: set[str]) -> bool:
    """Whether a finding is about boundaries that were not requested. What an engine hands over in slots is always
    asked for: it is what a draft gets."""
    if finding.severity == "hypothesis":
        return False
    return bool(finding.slots) and not any(s in asked or s.startswith("slot.") for s in finding.slots)


# Findings that say how much differs, not why: a cause with a name comes before them.
UNNAMED = ("HS301", "HS302")
SEVERITIES = ("cause", "hypothesis", "note")


def _rank(finding: Finding, places: Mapping[str, int]) -> tuple[bool, int, int, bool, bool, float, str]:
    return (
        finding.ruled_out,
        SEVERITIES.index(finding.severity),
        places.get(finding.code, 0),  # hypotheses were weighed against each other
        not finding.structural,
        finding.code in UNNAMED,
        -(finding.explained if finding.explained is not None else -1.0),
        finding.code,
    )


def headline(
    evidence: Evidence, verdict: Verdict, wanted: Sequence[SiteDelta], structural: Sequence[Finding]
) -> str:
    """One sentence."""
    total = len(wanted)
    layers = f"{total} requested {'site' if total == 1 else 'sites'}"
    terms = evidence.judge.terms
    floor = "the noise floor" if evidence.has_floor else "bit equality"
    if terms.tol is not None:
        floor = f"the tolerance {terms.tol:g}"
    if verdict is Verdict.PARITY and not evidence.has_floor and terms.tol is None:
        return (
            f"{'The' if total == 1 else 'All'} {layers} {'is' if total == 1 else 'are'} equal in every bit."
        )
    if verdict is Verdict.PARITY:
        return f"{'The' if total == 1 else 'All'} {layers} {'lies' if total == 1 else 'lie'} within {floor}."
    if verdict is Verdict.DIVERGED:
        out = sum(d.verdict in (Verdict.DIVERGED, Verdict.MISSING) for d in wanted)
        if out:
            return f"{out} of {layers} {'lies' if out == 1 else 'lie'} outside {floor}."
        return f"{structural[0].headline[:1].upper()}{structural[0].headline[1:].rstrip('.')}."
    open_ = [d for d in wanted if d.verdict is Verdict.INCONCLUSIVE]
    if not wanted:
        return "Nothing that was requested could be placed."
    differing = [d for d in open_ if d.bit_equal < d.tokens]
    if not evidence.has_floor and terms.tol is None and differing:
        open_ = differing
        return f"{len(open_)} of {layers} {'differs' if len(open_) == 1 else 'differ'}, and no floor says what is noise."
    return f"{len(open_)} of {layers} cannot be decided: {open_[0].reason}."
