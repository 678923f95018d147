"""One experiment: turn knobs, capture, prove that they were applied, measure what is left of the difference."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from hsprobe.schema import CaptureSpec

from ..errors import HsparityError
from .attribution import Ledger, Remaining, Share, share
from .distances import Bench, site_of
from .proofs import Made, Proof, prove
from .result import Experiment, Span, State
from .takes import Cache, Cost, Side, forced
from .variants import Turn, Variant, build

Say = Callable[[str], None]
Vector = NDArray[np.float64]


@dataclass(eq=False)
class Lab:
    """What every experiment of a bisection shares."""

    ref: Side
    cand: Side
    bench: Bench
    ledger: Ledger
    cache: Cache
    floor_bn: Vector | None
    across: bool  # the sides are different engines
    verbose: bool = False
    say: Say = lambda text: None
    done: dict[str, Trial] = field(default_factory=dict)

    def side(self, role: str) -> Side:
        return self.ref if role == "ref" else self.cand

    @cached_property
    def floor(self) -> Remaining | None:
        """What two healthy engines would leave, as v. One engine against itself leaves nothing."""
        if self.floor_bn is None or not self.across:
            return None
        return self.ledger.remaining(self.floor_bn)

    @property
    def floor_share(self) -> float:
        """The floor's part of the difference, 0 where there is none or the pair stands within it."""
        return self.floor.bulk if self.floor is not None and self.floor.bulk < 0.5 else 0.0

    def spec(self, variant: Variant) -> CaptureSpec:
        side = self.side(variant.role)
        other = self.cand if variant.role == "ref" else self.ref
        made = build(side, variant, self.cache.folder / "twins")
        return forced(made, other.source)

    def estimate(self, variant: Variant) -> tuple[Cost, bool]:
        """What it takes, and whether the cache holds it already."""
        side = self.side(variant.role)
        base = side.cost
        try:
            if self.cache.holds(self.spec(variant), side.interpreter):
                return Cost(0.0, 0), True
        except HsparityError:
            pass  # a twin that cannot be made is told of when its turn comes
        seconds = None if base.seconds is None else base.seconds * variant.cost
        return Cost(seconds, base.bytes), False


@dataclass(eq=False)
class Trial:
    """Knobs turned on one side or both, and what was measured."""

    turns: tuple[tuple[str, Turn], ...]  # (role, turn)
    purpose: str
    state: State = State.PLANNED
    made: Mapping[str, Made] = field(default_factory=dict)
    after_bn: Vector | None = None
    left: Remaining | None = None
    moved_units: float | None = None
    proof: str = ""
    note: str = ""
    lent: bool = False  # a side's own capture stood for the variant
    doubted: bool = False  # the states moved, and the capture does not show that the knob was turned
    error: HsparityError | None = None

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(t.knob.name for _, t in self.turns)

    @property
    def key(self) -> str:
        return "; ".join(f"{role} {t.knob.name} {t.label}" for role, t in self.turns)

    def variants(self) -> tuple[Variant, ...]:
        roles = dict.fromkeys(role for role, _ in self.turns)
        return tuple(Variant(r, tuple(t for role, t in self.turns if role == r)) for r in roles)

    def share(self, lab: Lab, tail: bool = False) -> Share | None:
        """The part of the excess that is gone."""
        if self.left is None:
            return None
        floor = lab.floor if lab.floor_share else None
        v, v_r = (self.left.tail, self.left.tail_r) if tail else (self.left.bulk, self.left.bulk_r)
        f, f_r = (
            (0.0, None)
            if floor is None
            else (floor.tail, floor.tail_r)
            if tail
            else (floor.bulk, floor.bulk_r)
        )
        if tail and f >= 0.5:
            f, f_r = 0.0, None
        return share(1.0 - v, 1.0 - v_r, f, f_r)


def run(lab: Lab, turns: Sequence[tuple[str, Turn]], purpose: str) -> Trial:
    """Make the captures, prove them, measure. What fails is the trial's state; only a stop from outside is raised."""
    trial = Trial(tuple(turns), purpose)
    if trial.key in lab.done:
        return lab.done[trial.key]
    lab.done[trial.key] = trial
    made: dict[str, Made] = {}
    try:
        for variant in trial.variants():
            side = lab.side(variant.role)
            lab.say(f"{variant.role} with {', '.join(f'{t.knob.name} {t.label}' for t in variant.turns)}")
            made[variant.role] = lab.cache.make(lab.spec(variant), side.interpreter, lab.verbose)
        trial.made = made
        _measure(lab, trial)
    except HsparityError as error:
        if error.code in ("E205", "E106"):
            raise  # a full disk ends everything that follows too
        trial.state, trial.error = State.FAILED, error
        trial.note = f"{error.code} {error.message}"
    return trial


def _measure(lab: Lab, trial: Trial) -> None:
    proofs = [prove(t.knob, trial.made[role], lab.side(role)) for role, t in trial.turns]
    shown = "applied: " if all(p.applied for p in proofs) else ""
    trial.proof = shown + "; ".join(dict.fromkeys(p.text for p in proofs))
    unapplied = [p for p in proofs if p.applied is False]
    own = {Path(side.source.folder).resolve() for side in (lab.ref, lab.cand)}
    trial.lent = any(Path(m.source.folder).resolve() in own for m in trial.made.values())
    if trial.lent:
        trial.note = "the cache holds a side's own capture for it: no new run was made"
    ref = trial.made.get("ref", lab.ref).source
    cand = trial.made.get("cand", lab.cand).source
    keys = {role: _renamed(lab, made) for role, made in trial.made.items()}
    trial.after_bn = lab.bench.squared(ref, cand, keys)
    trial.left = lab.ledger.remaining(trial.after_bn)
    moves = [
        (role, lab.bench.moved(lab.side(role).source, trial.made[role].source, role, keys[role]))
        for role in trial.made
    ]
    still = all(not (m[np.isfinite(m)] > 0).any() for _, m in moves)
    trial.moved_units = max(_units(lab, m) for _, m in moves)
    if unapplied and still:
        trial.state = State.NOT_APPLIED
        trial.proof = "; ".join(p.text for p in unapplied)
    elif unapplied:
        trial.state, trial.doubted = State.MEASURED, True
        names = [t.knob.name for (_, t), p in zip(trial.turns, proofs, strict=True) if p.applied is False]
        trial.note = (
            f"{', '.join(names)} was not applied"
            if len(names) < len(proofs)
            else "the states moved although no setting shows that it was applied"
        )
    elif still:
        trial.state = _still(trial, proofs)
    else:
        trial.state = State.MEASURED


def _still(trial: Trial, proofs: Sequence[Proof]) -> State:
    """Bit-equal after a turn: no effect, where the capture proves that it was turned."""
    if all(p.applied for p in proofs):
        return State.NO_EFFECT
    trial.note = "bit-equal, and nothing shows that it was applied"
    return State.NOT_APPLIED


def _units(lab: Lab, moved_bn: Vector) -> float:
    """The largest median of a move over its floor at the same boundary; relative where there is no floor."""
    found = [0.0]
    for b, row in enumerate(moved_bn):
        known = row[np.isfinite(row)]
        if not len(known):
            continue
        far = float(np.sqrt(np.median(known)))
        if lab.floor_bn is not None:
            yard = float(np.sqrt(np.nanmedian(lab.floor_bn[b])))
            far = far / yard if yard > 0 else 0.0
        found.append(far)
    return max(found)


def _renamed(lab: Lab, made: Made) -> dict[str, str]:
    """Slots by the boundary that the data put them at, where hooks read a side whose slots were compared before."""
    renamed, held = {}, set(made.source.sites())
    for place in lab.bench.places:
        for key in {place.ref, place.cand} - held:
            if place.boundary is not None:
                renamed[key] = site_of(place.boundary, made.manifest.num_layers)
    return renamed


def experiment(lab: Lab, trial: Trial) -> Experiment:
    """The record of a trial."""
    bulk, tail = trial.share(lab), trial.share(lab, tail=True)
    known = trial.after_bn[-1] if trial.after_bn is not None and len(trial.after_bn) else np.zeros(0)
    known = known[np.isfinite(known)]
    return Experiment(
        turned=tuple(_words(lab, role, t) for role, t in trial.turns),
        knobs=trial.names,
        role=" and ".join(dict.fromkeys(role for role, _ in trial.turns)),
        purpose=trial.purpose,
        state=trial.state,
        capture=", ".join(str(m.source.path) for m in trial.made.values()),
        share=None if bulk is None else Span(bulk.value, bulk.low, bulk.high),
        tail=None if tail is None else Span(tail.value, tail.low, tail.high),
        moved=trial.moved_units,
        left=float(np.sqrt(np.median(known))) if len(known) else None,
        proof=trial.proof,
        note=trial.note,
    )


def _words(lab: Lab, role: str, turn: Turn) -> str:
    from .differences import shown

    return f"{role} {turn.knob.name}: {shown(turn.knob, lab.side(role))} -> {turn.label}"
