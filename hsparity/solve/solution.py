"""The structural solver on aligned rows: what each slot is, by the dictionary or by what no dictionary holds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from hsparity.align.layers import sample
from hsparity.align.tokens import PromptRows
from hsparity.capture.source import Source
from hsparity.metrics.kernel import Norm
from hsparity.model import SiteDelta, Verdict
from hsparity.pairing import BRANCHES, SitePair, boundaries_of
from hsparity.solve.dictionary import Bench, entries
from hsparity.solve.forms import Form, site
from hsparity.solve.precision import Precision, look_for_cuts, precision
from hsparity.solve.readings import CLOSE, Reader, Reading, Slot
from hsparity.solve.unresolved import Unresolved
from hsparity.stream import pool_map
from hsparity.yardstick import Roles
from hsprobe.schema import Site

SAMPLE = 128


@dataclass(slots=True, eq=False)
class Solution:
    """What was found, and the comparison to make in place of the claimed one."""

    pairs: tuple[SitePair, ...]  # the claimed pairs, each with its reading undone
    places: dict[int, Reading] = field(default_factory=dict)  # number of a pair -> its reading
    precision: Precision = field(default_factory=Precision)
    ref_places: dict[int, Reading] = field(default_factory=dict)  # the reference's slots, read on the floor

    @property
    def readings(self) -> tuple[Reading, ...]:
        return tuple(self.places[k] for k in sorted(self.places))

    def of(self, *kinds: str) -> dict[int, Reading]:
        """The readings of these kinds that may be named, by the number of their pair."""
        return {k: r for k, r in sorted(self.places.items()) if r.kind in kinds and named(r)}


def named(reading: Reading) -> bool:
    """Whether a reading may be named: it stands at the floor, or has evidence of its own."""
    return reading.at_floor or bool(reading.note)


Figures = Callable[[int, str], NDArray[np.float32]]  # (number of a pair, metric) -> [N]


@dataclass(frozen=True, slots=True, eq=False)
class Given:
    """What the solver starts from."""

    sources: Sequence[Source]
    prompts: Sequence[PromptRows]
    pairs: Sequence[SitePair]
    deltas: Sequence[SiteDelta]
    roles: Roles
    same_run: bool
    norm: Norm | None
    plus_one: bool
    mask: NDArray[np.int64]
    resolution: float
    limit: float
    settled: frozenset[str]  # sites that the search already proved to be what is claimed
    figures: Figures  # of every aligned token of a pair
    floor_ruler: int | None = None  # a floor's capture to read both sides on, when neither has the neighbours

    @property
    def has_floor(self) -> bool:
        return self.roles.kind == "bf16-reference" or (self.roles.kind == "repeat" and self.same_run)


def suspects(given: Given) -> list[int]:
    """Numbers of the pairs that are not at parity, and not proved to be what is claimed."""
    return [k for k, pair in enumerate(given.pairs) if _suspect(given, k, pair)]


def solve(given: Given) -> Solution:
    """Read every suspect."""
    solution = Solution(tuple(given.pairs))
    numbers = suspects(given)
    doubtful = [k for k, d in enumerate(given.deltas) if d.tokens and d.verdict is not Verdict.PARITY]
    requested = [k for k in doubtful if given.pairs[k].requested]
    if any(s.manifest.dtype.startswith("float8") for s in given.sources[:2]):
        # Judged at the resolution of its own dtype an 8-bit file is at parity with everything.
        requested = [k for k, p in enumerate(given.pairs) if p.requested and given.deltas[k].tokens]
    solution.precision = precision(given, requested, {k: _extreme(given, k) for k in requested})
    if given.floor_ruler is not None and numbers:
        for side, places in ((1, solution.places), (0, solution.ref_places)):
            places.update(_read(given, solution.precision, given.floor_ruler, side, numbers))
        return solution
    ruler, side = _ruler(given)
    if ruler is None or not numbers:
        look_for_cuts(given, requested, solution.precision)
        return solution
    solution.places = _read(given, solution.precision, ruler, side, numbers)
    pairs = list(given.pairs)
    for k, reading in solution.places.items():
        if named(reading) and reading.undoable and not reading.as_claimed:
            pairs[k] = undone(given.pairs[k], reading, ruler)
    solution.pairs = tuple(pairs)
    # A neighbouring layer is smaller too: only slots that hold what they are said to can be cut.
    in_place = [k for k in requested if k not in solution.places or solution.places[k].as_claimed]
    look_for_cuts(given, in_place, solution.precision)
    return solution


def _read(
    given: Given, known: Precision, ruler: int, side: int, numbers: Sequence[int]
) -> dict[int, Reading]:
    """The reading of one side's slot of each of these pairs."""
    bench = Bench(given.sources, sample(given.prompts, SAMPLE), given.mask)
    dictionary = entries(given.sources[ruler], given.norm, given.plus_one)
    reader = Reader(
        bench, ruler, side, dictionary, Floor(bench, given, ruler), given.has_floor, given.resolution
    )
    slots = {k: _slot(given, given.pairs[k], side, known) for k in numbers}
    found = {r.slot.key: r for r in reader.read(list(slots.values()))}
    rest = Unresolved(reader, given)
    read = [k for k, slot in slots.items() if slot.key in found]
    # The farthest from the floor first: what is tried on a few slots is tried on those.
    read.sort(key=lambda k: found[slots[k].key].close / found[slots[k].key].error)
    better: dict[int, Reading] = {}

    def work(k: int) -> None:
        better[k] = _by_claim(rest.read(found[slots[k].key], k))

    for k in read:
        # One by one, since failures spare the later ones; in the pool, where torch keeps to one core.
        pool_map(work, [k])
    ranks = rest.together(list(better.values()))
    return {k: ranks.get(better[k].slot.key, better[k]) for k in sorted(better)}


def _extreme(given: Given, k: int) -> NDArray[np.int64]:
    """The aligned tokens of a pair that are not finite, then those of the largest norm."""
    bad = np.flatnonzero(np.nan_to_num(given.figures(k, "bad_cand")) > 0)
    largest = np.argsort(-np.nan_to_num(given.figures(k, "ref_norm")), kind="stable")[:16]
    found: NDArray[np.int64] = np.concatenate((bad[:16], largest))
    return np.unique(found)


def _ruler(given: Given) -> tuple[int | None, int]:
    """Which source's boundaries the other side's slots are read on."""
    counts = [len(boundaries_of(s)) for s in given.sources[:2]]
    if max(counts) < 2:
        return None, 1
    return (0, 1) if counts[0] >= counts[1] else (1, 0)


def _suspect(given: Given, k: int, pair: SitePair) -> bool:
    delta = given.deltas[k]
    if not delta.tokens or delta.verdict is Verdict.PARITY or Site.parse(pair.ref).kind in BRANCHES:
        return False
    return not (pair.cand in given.settled and pair.ref in given.settled)


def _slot(given: Given, pair: SitePair, side: int, known: Precision) -> Slot:
    own, other = (pair.ref, pair.cand)[side], (pair.ref, pair.cand)[1 - side]
    role = ("ref", "cand")[side]
    slot = Slot(own, None, allowance=known.allowance(role, own), side=role)
    if own == "final_norm" or other == "final_norm":
        layers = given.sources[0].manifest.num_layers
        claimed = None if pair.landed else layers
        return replace(slot, claimed=claimed, normed=own == "final_norm" or not pair.landed)
    if given.floor_ruler is not None:
        return replace(slot, claimed=None if pair.landed else pair.boundary)
    if pair.landed or not other.startswith("boundary."):
        return slot
    return replace(slot, claimed=Site.parse(other).index)


def _by_claim(reading: Reading) -> Reading:
    """A state between attention and MLP that was said to be the boundary below it was changed in place after it
    was stored; the tensor is the same, the claim tells them apart."""
    if reading.kind == "mid-layer" and reading.slot.claimed == reading.number - 1:
        return replace(reading, kind="aliased-capture", number=reading.number - 1)
    return reading


def undone(pair: SitePair, reading: Reading, ruler: int) -> SitePair:
    """The pair with the reading in place of the claim: the slot without its fault, against what it is."""
    form, key = reading.ruler_form, reading.ruler_form.sites[0]
    floor_site = Site("boundary", reading.number).key
    changed = replace(
        pair, boundary=reading.number, floor_site=floor_site, floor_form=reading.floor_form or form
    )
    if ruler == 0:
        return replace(changed, ref=key, ref_form=form, cand_form=reading.slot_form)
    return replace(changed, cand=key, cand_form=form, ref_form=reading.slot_form)


class Floor:
    """The largest error of a form that is still at the floor: measured on the floor's captures of the same
    form."""

    def __init__(self, bench: Bench, given: Given, ruler: int) -> None:
        self.bench, self.given, self.ruler = bench, given, ruler
        self.known: dict[int, float] = {}
        self.kept: list[Form] = []  # keeps the forms alive, so that an id is one form

    def __call__(self, form: Form, number: int) -> float:
        if id(form) not in self.known:
            self.kept.append(form)
            self.known[id(form)] = self._measure(form, number)
        return self.known[id(form)]

    def _measure(self, form: Form, number: int) -> float:
        roles, given = self.given.roles, self.given
        if not given.has_floor:
            return CLOSE
        base, other = (
            (roles.fp32, roles.bf16) if roles.kind == "bf16-reference" else (roles.repeated, roles.repeat)
        )
        if base is None or other is None:
            return CLOSE
        scale = given.limit * (np.sqrt(2.0) if roles.kind == "bf16-reference" else 1.0)
        found = _median(self.bench.errors(base, other, [(form, form)])[0])
        if not np.isfinite(found):
            # The floor's captures lack a part: what the boundary itself costs, on the scale of the form.
            boundary = site(Site("boundary", number).key)
            whole = _median(self.bench.errors(base, other, [(boundary, boundary)])[0])
            found = whole * self._size(boundary) / self._size(form)
        return float(scale * max(found, given.resolution)) if np.isfinite(found) else CLOSE

    def _size(self, form: Form) -> float:
        rows = self.bench.whole(self.ruler, [form])[:, 0]
        return float(rows.square().sum(1).sqrt().median()) if len(rows) else float("nan")


def _median(values: NDArray[np.float64]) -> float:
    known = values[np.isfinite(values)]
    return float(np.median(known)) if len(known) else float("nan")
