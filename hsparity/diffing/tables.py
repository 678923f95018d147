"""What the text, the Markdown and the HTML of a diff say alike."""

from __future__ import annotations

from hsparity.report import spelling as sp

from .result import Change, CostChange, Diff, FindingChange, Loss, SiteChange

FEW = 12
WORDS = {
    Change.WORSE: "worse",
    Change.BETTER: "better",
    Change.SAME: "same",
    Change.UNKNOWN: "cannot tell",
}
ORDER = (Change.WORSE, Change.UNKNOWN, Change.BETTER, Change.SAME)
ROLES = {"ref": "reference", "cand": "candidate"}


def asked(diff: Diff) -> tuple[SiteChange, ...]:
    """The sites that decide: the requested ones, all where none was."""
    return tuple(s for s in diff.sites if s.requested) or diff.sites


def few(diff: Diff, everything: bool = False) -> tuple[tuple[SiteChange, ...], int]:
    """The sites to show, worse ones first to be kept, in site order; and how many requested ones are left out."""
    if everything:
        return diff.sites, 0
    sites = asked(diff)
    chosen = sorted(range(len(sites)), key=lambda i: ORDER.index(sites[i].change))[:FEW]
    return tuple(sites[i] for i in sorted(chosen)), len(sites) - len(chosen)


def ratio_head(sites: tuple[SiteChange, ...]) -> str:
    """Whose ratio the columns hold: one name where all rows have it."""
    names = {s.of for s in sites if s.of}
    return f"{names.pop()} × floor" if len(names) == 1 else "× floor of"


def finding_line(finding: FindingChange) -> str:
    """HS101 layer-offset, cause, 99.5% of the excess: headline (why it counts or does not)."""
    held = finding.now or finding.then
    assert held is not None
    shares = [sp.percent(h.explained) if h is not None else "" for h in (finding.then, finding.now)]
    words = {
        "new": f"{shares[1]} of the excess" if shares[1] not in ("", "-") else "",
        "gone": f"{shares[0]} of the excess then" if shares[0] not in ("", "-") else "",
        "stayed": "" if shares == ["-", "-"] else f"{shares[0]} of the excess then, {shares[1]} now",
    }[finding.status]
    parts = [f"{sp.clean(finding.code)} {sp.clean(finding.name)}", held.severity, words]
    if finding.then is not None and finding.now is not None and finding.then.severity != finding.now.severity:
        parts[1] = f"{finding.then.severity} then, {finding.now.severity} now"
    head = f"{', '.join(p for p in parts if p)}: {sp.clean(held.headline)}"
    if finding.change in (Change.WORSE, Change.BETTER) and finding.status != "stayed":
        return head
    return f"{head.rstrip('.')}; {finding.reason}." if finding.reason else head


def setting_lines(diff: Diff) -> list[str]:
    """candidate vllm 0.31.0 → 0.32.0; candidate attention_backend: a → b."""
    return [
        f"{ROLES.get(s.role, s.role)}: {s.then} → {s.now}"
        if s.kind == "engine"
        else f"{ROLES.get(s.role, s.role)} {s.name}: {s.then} → {s.now}"
        for s in diff.settings
    ]


def cost_line(cost: CostChange) -> str:
    """Accepted draft tokens a step, then and now."""
    words = f"{cost.draft}: accepted a step, reference and candidate: {_loss(cost.then)} then, {_loss(cost.now)} now"
    return f"{words}; {cost.change.value}{f' ({cost.reason})' if cost.reason else ''}"


def _loss(loss: Loss | None) -> str:
    return "not known" if loss is None else f"{loss.ref:.2f} and {loss.cand:.2f}"


def grouped(diff: Diff) -> list[tuple[str, list[str]]]:
    """(what it settles, commands): neighbours with one purpose stand together."""
    out: list[tuple[str, list[str]]] = []
    for step in diff.next:
        if out and out[-1][0] == step.why:
            out[-1][1].append(step.command)
        else:
            out.append((step.why, [step.command]))
    return out
