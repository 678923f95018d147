"""The finding that a group of slot readings makes: the one way in which every slot cause words its evidence."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from hsparity.causes.base import compare_command, engine_fixes

if TYPE_CHECKING:
    from hsparity.causes.base import Cause
    from hsparity.evidence import Evidence
    from hsparity.model import Finding
    from hsparity.solve.readings import Reading

SHOWN = 4
WHOSE = {"ref": "the reference's", "cand": "the candidate's"}

Group = Mapping[int, "Reading"]


def whose(group: Group) -> str:
    """The side whose slots these are, as a genitive."""
    reading = next(iter(group.values()))
    return WHOSE["ref" if (reading.slot.side == "ref") != reading.reverse else "cand"]


def names(group: Group) -> str:
    """The slots: boundaries as ranges, others one by one, cut after four."""
    from hsparity.query import span_text

    keys = [r.slot.key for r in group.values()]
    numbers = sorted(int(key.partition(".")[2]) for key in keys if key.startswith("boundary."))
    words = []
    if numbers:
        words.append(f"{'boundary' if len(numbers) == 1 else 'boundaries'} {span_text(tuple(numbers))}")
    others = [key for key in keys if not key.startswith("boundary.")]
    words += others[:SHOWN] + ([f"{len(others) - SHOWN} more"] if len(others) > SHOWN else [])
    return ", ".join(words)


def from_readings(
    evidence: Evidence,
    cause: Cause,
    group: Group,
    headline: str,
    fix: Mapping[str, str],
    more: tuple[str, ...] = (),
) -> Finding:
    """The finding of these readings: measured evidence, the rival, and the share that undoing them removes."""
    from hsparity.model import Finding

    proved = all(r.proved for r in group.values())
    share = explained(evidence, cause.code, group)
    lines = [line(r) for r in list(group.values())[:SHOWN]]
    notes = list(dict.fromkeys(r.note for r in group.values() if r.note))[:2]
    closest = min(group.values(), key=lambda r: r.margin)
    return Finding(
        code=cause.code,
        name=cause.name,
        headline=headline if proved else f"{headline} (not proved)",
        explained=share,
        slots=tuple(r.slot.key for r in group.values()),
        # Where no reading is at the floor, what speaks for it is the note.
        evidence=(*lines, *notes, *more) if proved else (*notes, *lines, *more),
        fix=engine_fixes(evidence, fix),
        rival=f"{closest.rival}, {10**closest.margin:.2g}× farther"
        if closest.rival and proved
        else closest.rival,
        confirm=confirm(evidence, group),
        structural=proved,
        tokens=evidence.rows.tokens,
    )


def line(reading: Reading) -> str:
    """One slot's measured evidence."""
    words = (
        f"{reading.slot.key}: {reading.words} at {reading.error:.2g}, the floor allows {reading.close:.2g}"
    )
    if reading.rival:
        words += f"; next best {reading.rival} at {reading.rival_error:.2g}"
        if reading.wins:
            words += f", farther on {100 * reading.wins:.0f} % of tokens"
    return words


def explained(evidence: Evidence, code: str, group: Group) -> float | None:
    """Share of the whole excess that goes away when these slots are compared as what they are."""
    slots = evidence.slots
    replaced = [slots.solution.pairs[k] if k in group else pair for k, pair in enumerate(slots.pairs)]
    share = slots.explain(code, replaced)
    if share is None or slots is evidence:
        evidence.shares[code] = share
        return share
    rows = evidence.rows_share() or 0.0
    evidence.shares[code] = share * (1.0 - rows)
    return evidence.shares[code]


def confirm(evidence: Evidence, group: Group) -> tuple[str, ...]:
    """The command that repeats the test on these slots alone."""
    numbers = sorted({r.slot.claimed for r in group.values() if r.slot.claimed is not None})
    if not numbers:
        return ()
    return (compare_command(evidence, f"--boundaries {','.join(map(str, numbers[:16]))} -v"),)


def plural(group: Group, one: str, many: str) -> str:
    return one if len(group) == 1 else many
