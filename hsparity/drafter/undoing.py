"""The ways of feeding the head that are tried: as served, with each finding undone, with all, slot by slot, with noise."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hsparity.audit.claims import key_of
from hsparity.audit.readings import places_of
from hsparity.capture.source import Source
from hsparity.capture.view import View
from hsparity.compare import study
from hsparity.drafter.fed import Fed
from hsparity.drafter.feedings import Feeding, Moved, Noise, Part
from hsparity.drafter.mending import Mender
from hsparity.evidence import Evidence
from hsparity.metrics.kernel import Norm
from hsparity.model import Comparison, Finding
from hsparity.pairing import boundaries_of
from hsparity.query import Query
from hsparity.solve.forms import normed, site
from hsparity.solve.readings import Reading
from hsparity.solve.solution import named
from hsprobe.schema import Site

ROWS = "rows"  # findings about rows, which are undone together
SHIFTS = (-2, -1, 1, 2)


@dataclass(frozen=True, slots=True, eq=False)
class Served:
    """The slots of both sides compared as the head is fed them: slot i of the candidate is said to be slot i of the
    reference."""

    ref: Source
    cand: Source
    feeds: tuple[Fed, Fed]
    norm: Norm | None
    comparison: Comparison
    evidence: Evidence
    claims: tuple[str, ...]  # the site that slot i is compared under
    ruler: int  # whose boundaries the other side's slots are read on; -1 where neither has any

    @property
    def parts(self) -> tuple[tuple[Part, ...], tuple[Part, ...]]:
        """What each side feeds."""
        return (
            tuple(Part(self.ref, 0, site(k)) for k in self.feeds[0].keys),
            tuple(Part(self.cand, 1, site(k)) for k in self.feeds[1].keys),
        )

    def numbers(self, side: int) -> tuple[int | None, ...]:
        """The boundary of every slot of a side, L + 1 the normed last one; None where nothing tells it."""
        if self.feeds[side].numbers:
            return self.feeds[side].numbers
        if self.ruler < 0:
            return (None,) * len(self.claims)
        readings = _readings(self)
        layers = self.ref.manifest.num_layers
        claimed = [layers + 1 if c == "final_norm" else Site.parse(c).index for c in self.claims]
        return tuple(_place(readings[i], layers) if i in readings else n for i, n in enumerate(claimed))


def _place(reading: Reading, layers: int) -> int | None:
    """The boundary that a reading names; None where it is no boundary as it stands or after the final norm."""
    if reading.kind == "final-norm-applied" and reading.number == layers:
        return layers + 1
    return reading.number if not reading.kind and reading.gain == 1.0 else None


def compare_slots(
    ref: Source, cand: Source, floors: Sequence[Source], feeds: tuple[Fed, Fed], norm: Norm | None
) -> Served:
    """Compare what the sides feed, by the whole machinery of `compare`; raises as it does."""
    ruler = _ruler((ref, cand), feeds)
    layers = ref.manifest.num_layers
    if ruler < 0:
        claims = tuple(Site("slot", i).key for i in range(len(feeds[0].keys)))
        views = [
            View(s, dict(zip(claims, f.keys, strict=True))) for s, f in zip((ref, cand), feeds, strict=True)
        ]
    else:
        claims = tuple(key_of(n, layers) for n in feeds[ruler].numbers)
        sources = (ref, cand)
        own = {k: k for k in sources[ruler].sites() if not k.startswith("slot.")}
        views = [View(ref, own), View(cand, own)]
        views[1 - ruler] = View(sources[1 - ruler], dict(zip(claims, feeds[1 - ruler].keys, strict=True)))
    comparison, evidence = study(views[0], views[1], floors, Query())
    return Served(ref, cand, feeds, norm, comparison, evidence, claims, ruler)


def _ruler(sources: tuple[Source, Source], feeds: tuple[Fed, Fed]) -> int:
    """The side whose boundaries name the slots: it holds them, and the slots it feeds are told apart."""
    for i in (0, 1):
        numbers = feeds[i].numbers
        if numbers and len(set(numbers)) == len(numbers) and len(boundaries_of(sources[i])) > 1:
            return i
    return -1


def feedings(served: Served) -> list[Feeding]:
    """All of them; "ref" and "cand" come first."""
    ref, cand = served.parts
    made = [
        Feeding("ref", "ref", ref),
        Feeding("cand", "cand, as it is", cand),
    ]
    undone = _undone(served, cand)
    made += undone
    if len(undone) > 1:
        made.append(_all(undone, _mender(served), cand))
    made += _noisy(served, ref)
    if any(p.side == 1 for p in cand) and len(cand) > 1:
        made += [_only(served, i, ref, cand) for i in range(len(cand))]
    return made


def shifts(served: Served) -> list[Feeding]:
    """The reference's own states of other layers: what the head takes best is what it was trained on. Empty where the reference
    does not hold them, or its slots are not told apart."""
    numbers, layers = served.feeds[0].numbers, served.ref.manifest.num_layers
    held = {number: key for number, key in places_of(served.ref, served.norm) if number <= layers}
    made = []
    for by in SHIFTS:
        moved = [n + by for n in numbers]
        if numbers and all(n in held for n in moved):
            words = f"boundaries {', '.join(map(str, moved))}"
            made.append(
                Feeding(f"shift:{by:+d}", words, tuple(Part(served.ref, 0, site(held[n])) for n in moved))
            )
    last = len(numbers) - 1
    if numbers and numbers[last] in (layers, layers + 1) and served.norm is not None and layers in held:
        other = layers + 1 if numbers[last] == layers else layers
        form = normed(held[layers], served.norm) if other > layers else site(held[layers])
        parts = [Part(served.ref, 0, site(k)) for k in served.feeds[0].keys]
        parts[last] = Part(served.ref, 0, form)
        words = f"the last slot {'after' if other > layers else 'before'} the final norm"
        made.append(Feeding("shift:norm", words, tuple(parts)))
    return made


def _undone(served: Served, cand: tuple[Part, ...]) -> list[Feeding]:
    """One feeding for each structural finding, and one for the rows."""
    found = [
        f for f in served.comparison.findings if f.severity == "cause" and f.structural and not f.ruled_out
    ]
    made = []
    rows = [f for f in found if f.code.startswith("HS11")]
    if served.evidence.peeled is not None and rows:
        words = f"{', '.join(f'{f.code} {f.name}' for f in rows)} undone"
        codes = tuple(f.code for f in rows)
        note = "every row given back to its token"
        made.append(
            Feeding(f"undone:{rows[0].code}", words, cand, moved=_moved(served), note=note, codes=codes)
        )
    mender = _mender(served)
    for finding in found:
        if finding in rows:
            continue
        slots = [i for i in mender.readings if _names(finding, served, i)]
        if slots:
            made.append(_one(finding, slots, mender, cand))
    return made


def _names(finding: Finding, served: Served, slot: int) -> bool:
    fed = served.feeds[1].keys[slot], served.feeds[0].keys[slot], served.claims[slot]
    return any(key in finding.slots for key in fed)


def _readings(served: Served) -> dict[int, Reading]:
    """The reading of each slot that is not what it is said to be."""
    evidence = served.evidence.slots
    order = {claim: i for i, claim in enumerate(served.claims)}
    own = 1 - served.ruler if served.ruler >= 0 else 1
    found = {}
    for k, reading in evidence.solution.places.items():
        key = (evidence.pairs[k].ref, evidence.pairs[k].cand)[own]
        if key in order and named(reading) and not reading.as_claimed:
            found[order[key]] = reading
    return found


def _mender(served: Served) -> Mender:
    readings = _readings(served)
    return Mender(
        ref=served.parts[0],
        cand=served.cand,
        keys=served.feeds[1].keys,
        claims=served.claims,
        wanted=tuple(_wanted(served, i) for i in range(len(served.claims))),
        readings=readings,
        evidence=served.evidence,
        norm=served.norm,
        own_ruler=served.ruler == 1,
    )


def _wanted(served: Served, i: int) -> int | None:
    """The boundary that slot i ought to hold, L + 1 the normed last one; without a ruler, what the floor's captures show that the
    reference's slot is."""
    claim, layers = served.claims[i], served.ref.manifest.num_layers
    if served.ruler >= 0:
        return layers + 1 if claim == "final_norm" else Site.parse(claim).index
    evidence = served.evidence.slots
    read = (r for k, r in evidence.solution.ref_places.items() if evidence.pairs[k].ref == claim)
    reading = next((r for r in read if named(r)), None)
    return None if reading is None else _place(reading, layers)


def _one(finding: Finding, slots: Sequence[int], mender: Mender, cand: tuple[Part, ...]) -> Feeding:
    parts, stands_in, how = list(cand), [], []
    for i in slots:
        mended, words = mender.mend(i, finding.name)
        parts[i] = mended or mender.ref[i]
        how.append(words)
        if mended is None:
            stands_in.append(mender.keys[i])
    words = next((w for w in how if w), "the reference's own states in those slots")
    return Feeding(
        f"undone:{finding.code}",
        f"{finding.code} {finding.name} undone",
        tuple(parts),
        stands_in=tuple(stands_in),
        note=words,
        codes=(finding.code,),
    )


def _all(undone: Sequence[Feeding], mender: Mender, cand: tuple[Part, ...]) -> Feeding:
    """Every finding undone at once: what numerics alone leave."""
    parts, stands_in = list(cand), []
    for i in range(len(cand)):
        if all(feeding.parts[i] is cand[i] for feeding in undone):
            continue
        mended, _ = mender.mend(i)
        parts[i] = mended or mender.ref[i]
        if mended is None:
            stands_in.append(mender.keys[i])
    moved = next((f.moved for f in undone if f.moved), None)
    codes = tuple(c for f in undone for c in f.codes)
    words = "all undone: numerics alone"
    return Feeding("undone:all", words, tuple(parts), moved, (), tuple(stands_in), codes=codes)


def _only(served: Served, i: int, ref: tuple[Part, ...], cand: tuple[Part, ...]) -> Feeding:
    parts = [*ref[:i], cand[i], *ref[i + 1 :]]
    return Feeding(f"only:{i}", f"slot {i}: {served.feeds[1].keys[i]}", tuple(parts))


def _noisy(served: Served, ref: tuple[Part, ...]) -> list[Feeding]:
    roles = served.evidence.judge.terms.roles
    numbers = served.feeds[0].numbers
    if roles.fp32 is None or roles.bf16 is None or not numbers:
        return []
    sources = served.evidence.sources
    exact, rounded = sources[roles.fp32], sources[roles.bf16]
    keys = [key_of(n, served.ref.manifest.num_layers) for n in numbers]
    if any(k not in exact.sites() or k not in rounded.sites() for k in keys):
        return []
    noise = tuple(Noise(exact, rounded, (roles.fp32, roles.bf16), k) for k in keys)
    return [Feeding("noise", "ref, with the floor's noise", ref, noise=noise)]


def _moved(served: Served) -> dict[str, Moved]:
    """Where the states of each prompt's tokens lie among the candidate's rows, by the map of owners."""
    peeled = served.evidence.peeled
    assert peeled is not None
    found: dict[str, Moved] = {}
    for p in served.evidence.rows.prompts:
        size = int(p.positions.max(initial=-1)) + 1
        owner, row = [""] * size, np.full(size, -1, np.int64)
        for piece in peeled.rows.prompts:
            if piece.prompts[0] != p.prompts[0]:
                continue
            for position, at in zip(piece.positions.tolist(), piece.rows[1].tolist(), strict=True):
                if position < size:
                    owner[position], row[position] = piece.prompts[1], at
        found[p.prompts[0]] = Moved(tuple(owner[i] for i in p.positions), _at(row, p.positions))
    return found


def _at(row: NDArray[np.int64], positions: NDArray[np.int32]) -> NDArray[np.int64]:
    picked: NDArray[np.int64] = row[positions]
    return picked
