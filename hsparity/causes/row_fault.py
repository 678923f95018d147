"""The finding that a pattern of wrong rows makes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from hsparity.causes.base import compare_command, counted, engine_fixes

if TYPE_CHECKING:
    from hsparity.causes.base import Cause
    from hsparity.evidence import Evidence
    from hsparity.model import Finding
    from hsparity.solve.absent import RowFault

SHOWN = 12


def from_rows(evidence: Evidence, cause: Cause, fix: Mapping[str, str]) -> Finding | None:
    """The finding of the pattern that has this cause's name; None when the rows do not show it."""
    from hsparity.model import Finding

    fault = next((f for f in evidence.row_faults if f.name == cause.name), None)
    owners = evidence.owners
    if fault is None or owners is None:
        return None
    share = evidence.rows_share()
    evidence.shares[cause.code] = share
    verdicts = owners.verdict_m
    right, decided = int((verdicts == 1).sum()), int((verdicts > 0).sum())
    lines = [
        *fault.evidence,
        f"{right} of {counted(decided, 'row')} {'is' if right == 1 else 'are'} in place, by the nearest state "
        f"of the whole batch at {owners.site} ({owners.words})",
        f"the nearest state is {1 / max(owners.clarity, 1e-3):.2g}× nearer than the next",
    ]
    return Finding(
        code=cause.code,
        name=cause.name,
        headline=fault.headline,
        explained=share,
        slots=tuple(p.cand for p in evidence.pairs if p.requested),
        rows=fault.rows[:SHOWN],
        tokens=fault.count,
        evidence=tuple(lines),
        fix=engine_fixes(evidence, fix),
        rival=fault.rival,
        confirm=(compare_command(evidence, f"{evidence.query.spelled} -v"),),
        structural=True,
    )


def from_absent(evidence: Evidence, cause: Cause, fix: Mapping[str, str]) -> Finding | None:
    """As `from_rows`, and from rows whose true positions say that the start of prompts is absent."""
    from hsparity.model import Finding

    laid = from_rows(evidence, cause, fix)
    if laid is not None:
        return laid
    fault = absent(evidence)
    if fault is None or fault.name != cause.name:
        return None
    return Finding(
        code=cause.code,
        name=cause.name,
        headline=f"{fault.headline} in the candidate",
        slots=tuple(p.cand for p in evidence.pairs if p.requested),
        rows=fault.rows[:SHOWN],
        tokens=fault.count,
        evidence=(*fault.evidence, "positions say which rows are there; what both have is compared"),
        fix=engine_fixes(evidence, fix),
        rival=fault.rival,
        structural=True,
    )


def absent(evidence: Evidence) -> RowFault | None:
    """What the candidate's missing rows look like, when all of them are the starts of prompts; else None."""
    from hsparity.solve.absent import skipped
    from hsparity.solve.rows import batch

    lost = [m for m in evidence.rows.mismatches if m.kind == "rows"]
    if not lost or any(m.side != "cand" for m in lost):
        return None
    names = [p.id for p in evidence.ref.prompts]
    starts: dict[int, int] = {}
    for prompt in evidence.rows.prompts:
        name = prompt.prompts[0]
        if any(m.prompt == name for m in lost):
            gaps = {
                p
                for start, stop in evidence.cand.prompt(prompt.prompts[1]).missing
                for p in range(start, stop)
            }
            if gaps != set(range(len(gaps))):
                return None
            starts[names.index(name)] = len(gaps)
    if len(starts) != len({m.prompt for m in lost}):
        return None
    tokens = {
        names.index(p.prompts[0]): evidence.cand.prompt(p.prompts[1]).prefill for p in evidence.rows.prompts
    }
    return skipped(starts, tokens, dict(enumerate(names)), batch(evidence.ref, evidence.cand))
