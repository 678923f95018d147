"""The causes of a comparison, weighed: which fit, which are ruled out, and by what."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from hsparity.causes.beyond_floor import explained
from hsparity.diagnose import attention_causes, expert_causes, numeric_causes, run_causes
from hsparity.diagnose.commands import bisect_command, next_commands, replay_command
from hsparity.diagnose.facts import Facts, facts_of
from hsparity.diagnose.record import fingerprint_of, lines_of
from hsparity.diagnose.replayed import weigh_replay
from hsparity.diagnose.weighing import Hypothesis, ranked
from hsparity.evidence import Evidence
from hsparity.model import Finding, Fingerprint, Verdict

CAUSES: tuple[Callable[[Facts], Hypothesis], ...] = (
    *numeric_causes.ALL,
    *attention_causes.ALL,
    *expert_causes.ALL,
    *run_causes.ALL,
)
EXPLAINED = 0.9  # of the excess: what a structural finding explains needs no second cause
UNKNOWN = "HS599"


@dataclass(frozen=True, slots=True, eq=False)
class Diagnosis:
    """Hypotheses best first, and those that are ruled out; both empty when nothing asks for a cause."""

    found: tuple[Hypothesis, ...] = ()
    out: tuple[Hypothesis, ...] = ()
    fingerprint: Fingerprint | None = None
    facts: Facts | None = None

    @property
    def order(self) -> dict[str, int]:
        """Code -> place."""
        return {h.code: i for i, h in enumerate(self.found)}


def diagnosis(evidence: Evidence) -> Diagnosis:
    """The diagnosis of a comparison, made once and kept on its evidence."""
    if evidence.diagnosis is None:
        evidence.diagnosis = _diagnose(evidence)
    return evidence.diagnosis


def finding(evidence: Evidence, code: str) -> Finding | None:
    """The finding of one cause; None when it neither fits nor was ruled out by what was measured."""
    made = diagnosis(evidence)
    if made.facts is None:
        return None
    for h in made.found:
        if h.code == code:
            return Finding(
                code=h.code,
                name=h.name,
                headline=h.headline,
                explained=h.share,
                evidence=tuple(h.reasons),
                rival=h.rival,
                severity="hypothesis",
                confirm=h.next,
                against=tuple(h.against),
                confidence=h.confidence,
                explained_low=h.share_low,
                explained_high=h.share_high,
                tokens=evidence.rows.tokens,
            )
    for h in made.out:
        if h.code == code:
            return Finding(h.code, h.name, h.veto, severity="hypothesis", ruled_out=True)
    return None


def _diagnose(evidence: Evidence) -> Diagnosis:
    if not _asked(evidence):
        return Diagnosis()
    facts = facts_of(evidence)
    if facts.profile is None and not facts.pattern and not _one_setting(facts):
        return Diagnosis()
    weighed = [cause(facts) for cause in CAUSES]
    weigh_replay(facts, weighed)
    if facts.profile is None:
        _cap(facts, weighed)
    found = ranked(weighed)
    if not found:
        if facts.profile is None:
            return Diagnosis()
        found = [_unknown(facts)]
    tied = tuple(h.code for h in found if h.confidence == "inconclusive")
    for h in found:
        if h.code != UNKNOWN:
            h.next = next_commands(facts, h, tied if h.code in tied else ())
    for h in found[: len(tied)]:
        others = [o.name for o in found if o.code in tied and o is not h]
        if h.code in tied and others:
            h.against.append(f"not to be told from {' and '.join(others)} by what was captured")
    out = tuple(h for h in weighed if h.veto and not h.quiet)
    return Diagnosis(tuple(found), out, fingerprint_of(facts), facts)


def _asked(evidence: Evidence) -> bool:
    """Whether a cause is asked for: numbers differ, and no finding about the tensors explains them."""
    slots = evidence.slots
    moved = any(p is not q for p, q in zip(slots.pairs, slots.solution.pairs, strict=True))
    if slots.judge.terms.tol is not None or moved:
        return False
    if any(cut.found for cut in slots.solution.precision.cut.values()):
        return False
    if any(share is not None and share > EXPLAINED for share in evidence.shares.values()):
        return False
    beyond = [
        k
        for k, d in enumerate(slots.left)
        if d.requested and d.verdict is Verdict.DIVERGED and not any(d.nonfinite)
    ]
    if beyond:
        return not all(explained(slots, k) for k in beyond)
    # Without a floor for both engines only bit-equality and a lone setting can speak.
    return slots.judge.terms.roles.kind != "bf16-reference"


def _one_setting(facts: Facts) -> bool:
    """Whether the sides are one engine and one setting of it is all that differs."""
    differ = [d for d in facts.differing if d != "engine"]
    found = facts.equality
    apart = found is None or found.equal < found.tokens
    return facts.mine.engine == facts.other.engine and len(differ) == 1 and apart


def _cap(facts: Facts, weighed: list[Hypothesis]) -> None:
    """Without a floor a lone setting is a prior: it is named as possible, and no more."""
    for h in weighed:
        if not facts.pattern and not h.active and h.points > 3.5:
            h.points = 3.5
        if not facts.pattern:
            h.against.append("no floor says whether the difference is more than noise")


def _unknown(facts: Facts) -> Hypothesis:
    h = Hypothesis(UNKNOWN, "unknown", "none of the causes known here fits what was measured")
    h.confidence = "inconclusive"
    h.reasons += lines_of(facts)[:3]
    h.next = ((replay_command(facts),) if facts.replay is None else ()) + (bisect_command(facts),)
    return h
