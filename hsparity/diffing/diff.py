"""Two comparisons in, what changed between them out."""

from __future__ import annotations

import math

from hsparity import __version__
from hsparity.model import Comparison, Cost, Verdict
from hsparity.report import spelling as sp
from hsparity.report import view

from .extremes import LEAST
from .findings import finding_changes
from .judging import judge_sites
from .result import (
    SCHEMA,
    Change,
    CostChange,
    Diff,
    FindingChange,
    Loss,
    SiteChange,
    Snapshot,
)
from .settings import explained, setting_changes
from .steps import steps
from .terms import Terms, floor_words, settle


def diff(
    old: Comparison,
    new: Comparison,
    names: tuple[str, str] = ("old.json", "new.json"),
    command: tuple[str, ...] = (),
) -> Diff:
    """What changed from `old` to `new`, results in files called `names`. Raises E255 when nothing is comparable."""
    terms = settle(old, new, names)
    sites = judge_sites(old, new, terms)
    findings = finding_changes(old, new, terms, sites)
    verdict, why = _verdict(old, new, terms, sites)
    cost = _cost(old.cost, new.cost, terms)
    change = _whole(sites, findings, verdict, cost)
    settings = setting_changes(old, new)
    return Diff(
        schema=SCHEMA,
        hsparity=__version__,
        change=change,
        headline=_headline(change, old, new, sites, findings, cost),
        model=sp.clean(new.ref.model),
        then=_snapshot(old, names[0]),
        now=_snapshot(new, names[1]),
        verdict=verdict,
        verdict_reason=why,
        warnings=terms.warnings,
        start=_start(sites),
        sites=sites,
        findings=findings,
        settings=settings,
        explained=explained(settings, change is Change.WORSE, bool(terms.warnings)),
        cost=cost,
        next=steps(old, new, terms, change, settings, names),
        command=command,
    )


def _snapshot(c: Comparison, name: str) -> Snapshot:
    (ref, dtype, _), (cand, other, _) = view.side_facts(c.ref), view.side_facts(c.cand)
    dtypes = dtype if dtype == other else f"{dtype} against {other}"
    return Snapshot(
        file="standard input" if name == "-" else sp.clean(name),
        hsparity=sp.clean(c.hsparity),
        verdict=c.verdict,
        headline=sp.clean(view.verdict_line(c)),
        sides=f"{ref} against {cand}, {dtypes}",
        compared=f"{view.requested_words(c)}; {view.compared_words(c)}",
        floor=floor_words(c),
    )


def _verdict(
    old: Comparison, new: Comparison, terms: Terms, sites: tuple[SiteChange, ...]
) -> tuple[Change, str]:
    """Whether the verdict fell. INCONCLUSIVE is neither end: nothing fell from it, nothing rose from it."""
    a, b = old.verdict, new.verdict
    if a is b:
        return Change.SAME, ""
    if b is Verdict.INCONCLUSIVE:
        return Change.UNKNOWN, "nothing decides now what was decided then"
    if a is Verdict.INCONCLUSIVE:
        if b is Verdict.PARITY:
            return Change.SAME, "it is decided now, and is parity"
        moved = all(s.change is Change.SAME for s in sites if s.requested)
        if moved:
            return Change.SAME, "it is decided now; the figures stayed as they were"
        return Change.UNKNOWN, "it is decided now, and was not then: whether it was so then is not known"
    if not terms.verdicts:
        return Change.UNKNOWN, "the two verdicts do not answer one question; see the warnings"
    return (Change.WORSE if b is Verdict.DIVERGED else Change.BETTER), ""


def _cost(then: Cost | None, now: Cost | None, terms: Terms) -> CostChange | None:
    """What the difference costs the draft head, then and now."""
    one = now or then
    if one is None:
        return None
    draft = sp.clean(one.draft.rstrip("/").rsplit("/", 1)[-1])
    a, b = _loss(then), _loss(now)
    change, reason = Change.UNKNOWN, f"not known {'then' if a is None else 'now'}"
    if then is not None and now is not None:
        change, reason = _dearer(then, now, terms)
    return CostChange(draft, a, b, change, reason)


def _loss(cost: Cost | None) -> Loss | None:
    return None if cost is None else Loss(cost.ref, cost.cand, cost.low, cost.high)


def _dearer(then: Cost, now: Cost, terms: Terms) -> tuple[Change, str]:
    names = [c.draft.rstrip("/").rsplit("/", 1)[-1] for c in (then, now)]
    if names[0] != names[1]:
        return Change.UNKNOWN, sp.clean(f"another draft: {names[0]} then")
    if not terms.tokens or not terms.model:
        return Change.UNKNOWN, "other tokens"
    losses = [c.ref - c.cand for c in (then, now)]
    bounds = [
        sorted((c.low, c.high)) if c.low is not None and c.high is not None else None for c in (then, now)
    ]
    if bounds[0] is None or bounds[1] is None:
        same = math.isclose(losses[0], losses[1], abs_tol=0.005)
        return (Change.SAME, "") if same else (Change.UNKNOWN, "no interval is known")
    if bounds[1][0] > bounds[0][1]:
        return Change.WORSE, "it loses more draft tokens a step than the intervals allow"
    if bounds[1][1] < bounds[0][0]:
        return Change.BETTER, "it loses fewer draft tokens a step"
    return Change.SAME, "no more than the intervals allow"


def _whole(
    sites: tuple[SiteChange, ...],
    findings: tuple[FindingChange, ...],
    verdict: Change,
    cost: CostChange | None,
) -> Change:
    """Worse if anything is, unknown if anything that may be worse cannot be told, better if anything is.

    What was not known then, a cost or a site that is at parity now, leaves nothing open.
    """
    asked = [s for s in sites if s.requested]
    words = {verdict, *(f.change for f in findings), *([cost.change] if cost and cost.then else [])}
    words |= {s.change for s in asked} - {Change.UNKNOWN}
    if Change.WORSE in words:
        return Change.WORSE
    unknown = any(s.change is Change.UNKNOWN and not _only_new_and_fine(s) for s in asked)
    compared = any(s.change is not Change.UNKNOWN for s in asked)
    if Change.UNKNOWN in words or unknown or not compared:
        return Change.UNKNOWN
    return Change.BETTER if Change.BETTER in words else Change.SAME


def _only_new_and_fine(site: SiteChange) -> bool:
    return site.then is None and site.now is not None and site.now.verdict is Verdict.PARITY


def _headline(
    change: Change,
    old: Comparison,
    new: Comparison,
    sites: tuple[SiteChange, ...],
    findings: tuple[FindingChange, ...],
    cost: CostChange | None,
) -> str:
    """One sentence."""
    a, b = old.verdict.value.upper(), new.verdict.value.upper()
    verdicts = f"{a} then and now" if a == b else f"{a} then, {b} now"
    now_asked = {(d.ref, d.cand) for d in new.deltas if d.requested}
    asked = [s for s in sites if s.requested and (s.ref, s.cand) in now_asked]
    earlier = [s for s in sites if s.requested and s.now is not None and (s.ref, s.cand) not in now_asked]
    held = [s for s in asked if s.change is not Change.UNKNOWN]
    total = sp.count(len(asked), "requested site")
    if change is Change.WORSE:
        worse = [s for s in asked if s.change is Change.WORSE]
        parts = [f"{len(worse)} of {total} got worse"] if worse else []
        before = sum(s.change is Change.WORSE for s in earlier)
        parts += [f"{sp.count(before, 'site')} asked for only then got worse"] if before else []
        named = [f"{sp.clean(f.code)} {sp.clean(f.name)}" for f in findings if f.change is Change.WORSE]
        if named:
            new_ones = all(f.status == "new" for f in findings if f.change is Change.WORSE)
            parts.append(
                f"{', '.join(named)} {'is' if len(named) == 1 else 'are'} {'new' if new_ones else 'on more'}"
            )
        if cost is not None and cost.change is Change.WORSE:
            parts.append(f"the draft {cost.draft} loses more")
        return f"{'; '.join([verdicts, *parts])}."
    if change is Change.UNKNOWN:
        return f"{verdicts}; {len(held)} of {total} could be held against one another."
    if change is Change.BETTER:
        better = [s for s in asked if s.change is Change.BETTER]
        if better:
            return f"{verdicts}; {len(better)} of {total} got better, none worse."
        # The verdict, a cause or the cost alone did.
        moved = [f for f in findings if f.change is Change.BETTER]
        parts = [
            f"{sp.clean(f.code)} {sp.clean(f.name)} is {'gone' if f.status == 'gone' else 'on less'}"
            for f in moved
        ]
        if cost is not None and cost.change is Change.BETTER:
            parts.append(f"the draft {cost.draft} loses less")
        return f"{'; '.join([verdicts, *parts])}; no requested site got worse."
    return f"{verdicts}; {len(held)} of {total} moved by no more than the intervals allow, or by less than {LEAST - 1:.0%}."


def _start(sites: tuple[SiteChange, ...]) -> str:
    """The first boundary that got worse, and what stands before it."""
    known = [
        (b, s) for s in sites if (b := view.boundary_of(s.ref)) is not None and s.cand.startswith("boundary.")
    ]
    known.sort(key=lambda item: item[0])
    worse = [i for i, (_, s) in enumerate(known) if s.change is Change.WORSE]
    if not worse:
        return ""
    boundary, first = known[worse[0]]
    words = f"First at {view.place_words(first.ref)}: {first.reason}."
    if worse[0] == 0:
        return f"{words} No boundary before it was compared." if boundary else words
    before, site = known[worse[0] - 1]
    where = view.place_words(site.ref)
    if site.change is Change.UNKNOWN:
        return f"{words} {where[:1].upper()}{where[1:]} could not be held against what it was."
    gap = "" if boundary - before == 1 else f" Boundaries {before + 1} to {boundary - 1} were not compared."
    return f"{words} {where[:1].upper()}{where[1:]} did not get worse.{gap}"
