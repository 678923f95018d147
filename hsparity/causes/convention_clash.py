"""HS107."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hsparity.causes.base import listed

if TYPE_CHECKING:
    from hsparity.evidence import Evidence
    from hsparity.model import Finding, SlotMatch


class ConventionClash:
    """
    ## What it is
    A note: the layer ids of an engine mean something else than the table of `hsparity conventions` says. The
    data won: every figure of the report is of the boundaries that the states themselves prove.
    ## Why it happens
    The engine changed its rule after the version that was read, a plug-in or a fork changed it, the capture
    names another architecture than the one that ran, or the ids in its manifest are not those that were used.
    ## How it shows
    Every slot fits one boundary at the floor and well apart from the next best, and it is not the one that
    the table names. Slots whose place is not proved are never held against the table.
    ## Fix
    Believe the data, and write draft configs by them (HS103 lists the ids). Check which version and which
    class really ran, then report the clash so that the table can be corrected.
    """

    code, name = "HS107", "convention-clash"

    def find(self, evidence: Evidence) -> Finding | None:
        from hsparity.model import Finding

        clashes = [clash for side in ("ref", "cand") if (clash := _clash(evidence, side))]
        if not clashes:
            return None
        return Finding(
            code=self.code,
            name=self.name,
            headline=clashes[0].headline,
            slots=tuple(slot for clash in clashes for slot in clash.slots),
            evidence=tuple(line for clash in clashes for line in clash.lines),
            fix={"any": "go by the data; make sure the manifest names the version and the class that ran"},
            severity="note",
            confirm=tuple(clash.command for clash in clashes),
        )


@dataclass(frozen=True, slots=True)
class _Clash:
    headline: str
    lines: tuple[str, ...]
    slots: tuple[str, ...]
    command: str


def _clash(evidence: Evidence, side: str) -> _Clash | None:
    """What there is to say where the proved places of a side's slots are not those of the table."""
    from hsparity.conventions import reading

    manifest = evidence.side(side).manifest
    ids: Any = manifest.settings.get("native_ids") or []
    if not isinstance(ids, list) or not ids:
        return None
    answer = reading(
        manifest.engine, manifest.engine_version, manifest.architecture, tuple(ids), evidence.num_layers
    )
    if answer is None:
        return None
    rule, promised = answer[0].rule, answer[1]
    found = _places(evidence, side)
    # Another number of slots is a finding of its own, and leaves open which slot belongs to which id.
    if len(found) != len(promised):
        return None
    apart = [m for m, r in zip(found, promised, strict=True) if m.proved and m.best != r]
    if not apart:
        return None
    who = f"{manifest.engine} {manifest.engine_version}"
    span = rule.read_at or f"{rule.since} to {rule.until}"
    margin = min(m.margin for m in apart)
    return _Clash(
        f"ids {listed(tuple(ids))} are boundaries {listed([m.best for m in found])} in {who} by the data, "
        f"{listed(promised)} by the table; the data count",
        (
            f"table: {rule.engine} {span}, {rule.models}: {rule.rule} ({rule.source})",
            *answer[0].doubts,
            f"data: {', '.join(f'{m.cand} is boundary {m.best}' for m in apart)} (margin {10**margin:.2g}×)",
        ),
        tuple(m.cand for m in apart),
        f"hsparity conventions --engine {rule.engine} --version {manifest.engine_version} "
        f"--arch {manifest.architecture}",
    )


def _places(evidence: Evidence, side: str) -> list[SlotMatch]:
    """Where a side's slots lie, in their order; by its own boundaries where it has them."""
    for name in (f"{side} self", side, f"{side} on floor"):
        found = {m.cand: m for m in evidence.alignment.slots if m.side == name and m.cand.startswith("slot.")}
        if found:
            return [found[key] for key in sorted(found)]
    return []


CAUSE = ConventionClash()
