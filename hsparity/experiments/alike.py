"""The first round: every knob that differs between the sides, set alike."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from .attribution import Remaining, Share, Subset, gains, shapley, share, wanted
from .differences import Difference
from .proofs import refused
from .result import State
from .trial import Lab, Trial, run
from .variants import Turn

SETTLED = 0.9
HALF = 0.5  # a floor that is more of the difference than this leaves too little to share out
ADDITIVE = 0.1  # single shares that add up to within this of 1 need no pairs

Vector = NDArray[np.float64]


@dataclass(eq=False)
class Alike:
    """What setting the differing knobs alike gave."""

    players: tuple[Difference, ...] = ()  # the ones that could be set alike
    trials: dict[Subset, Trial] = field(default_factory=dict)
    idle: tuple[Difference, ...] = ()  # set differently, and the engine ignored it
    stuck: tuple[Difference, ...] = ()  # cannot be set alike here
    shares: dict[str, Share] = field(default_factory=dict)  # by knob
    tails: dict[str, Share] = field(default_factory=dict)
    values: dict[str, Vector] = field(default_factory=dict)  # the gains behind `shares`, [1 + RESAMPLES]
    stopped: str = ""  # the knob that settled it before all were tried
    repeats: bool = False  # the spec with all alike is the other side's own

    @property
    def whole(self) -> Trial | None:
        """With every differing knob set alike."""
        return self.trials.get(frozenset(d.knob.name for d in self.players))

    @property
    def interaction(self) -> float:
        """What the whole removes beyond the sum of its parts, of 1; 0 where it was not measured."""
        whole = self.whole
        singles = [self.trials.get(frozenset((d.knob.name,))) for d in self.players]
        if whole is None or whole.left is None or len(singles) < 2:
            return 0.0
        parts = [t.left.bulk for t in singles if t is not None and t.left is not None]
        return (1.0 - whole.left.bulk) - sum(1.0 - p for p in parts)


def sort(lab: Lab, found: Sequence[Difference], chosen: frozenset[str]) -> Alike:
    """Which of the differing knobs can be tried. `chosen`: only these; empty for all."""
    result = Alike()
    players, idle, stuck = [], [], []
    for difference in found:
        knob = difference.knob
        sides = (lab.ref, lab.cand)
        if difference.proof.applied is False and (not lab.across or any(refused(knob, s) for s in sides)):
            idle.append(difference)
        elif chosen and knob.name not in chosen:
            continue
        elif difference.turn is None:
            stuck.append(difference)
        else:
            players.append(difference)
    return replace(result, players=tuple(players), idle=tuple(idle), stuck=tuple(stuck))


def turns(players: Sequence[Difference], subset: Subset) -> list[tuple[str, Turn]]:
    """What sets the knobs of `subset` alike."""
    return [(d.role, d.turn) for d in players if d.knob.name in subset and d.turn is not None]


def measure(lab: Lab, alike: Alike, everything: bool) -> None:
    """Singles first; the whole; then what Shapley values need where the singles do not add up."""
    names = [d.knob.name for d in alike.players]
    sets = wanted(names)
    singles, rest = sets[: len(names)], sets[len(names) :]
    for subset in singles:
        trial = alike.trials[subset] = run(lab, turns(alike.players, subset), "alike")
        found = trial.share(lab)
        if found is not None and trial.state is State.MEASURED and found.low >= SETTLED and not everything:
            alike.stopped = next(iter(subset))
            break
    if not alike.stopped and rest:
        whole = alike.trials[rest[0]] = run(lab, turns(alike.players, rest[0]), "alike")
        if not _adds_up(alike, whole):
            for subset in rest[1:]:
                alike.trials[subset] = run(lab, turns(alike.players, subset), "alike")
    alike.repeats = _repeats(lab, alike)
    _attribute(lab, alike)


def _adds_up(alike: Alike, whole: Trial) -> bool:
    return whole.left is not None and abs(alike.interaction) < ADDITIVE * max(1.0 - whole.left.bulk, 0.0)


def _repeats(lab: Lab, alike: Alike) -> bool:
    """Whether the whole is the other side's own spec, so that what it leaves is the engine's repeat noise."""
    if lab.across or alike.stuck or not alike.players:
        return False
    from .variants import Variant

    every = tuple(t for _, t in turns(alike.players, frozenset(d.knob.name for d in alike.players)))
    made = lab.spec(Variant("cand", every))
    plain = lab.ref.spec
    return replace(made, prompts=plain.prompts, sites=plain.sites).sha256() == plain.sha256()


def _attribute(lab: Lab, alike: Alike) -> None:
    """Shapley values where the sets for them were measured, single shares otherwise."""
    left = {
        s: t.left for s, t in alike.trials.items() if t.left is not None and t.state is not State.NOT_APPLIED
    }
    names = [d.knob.name for d in alike.players]
    floor = noise(lab, alike)
    for tail, into in ((False, alike.shares), (True, alike.tails)):
        gain = gains(left, tail)
        every = all(s in gain for s in wanted(names)) and len(names) > 1
        values = shapley(names, gain) if every else _singly(names, gain)
        if not tail:
            alike.values = values
        f, f_r = (
            (0.0, None)
            if floor is None
            else (floor.tail, floor.tail_r)
            if tail
            else (floor.bulk, floor.bulk_r)
        )
        for name, value in values.items():
            into[name] = share(float(value[0]), value[1:], f, f_r)


def _singly(names: Sequence[str], gain: Mapping[Subset, Vector]) -> dict[str, Vector]:
    """What each knob removes alone; for one whose own run failed, what it removes after all the others."""
    whole, found = frozenset(names), {}
    for name in names:
        alone, rest = frozenset((name,)), whole - {name}
        if alone in gain:
            found[name] = gain[alone]
        elif whole in gain and rest in gain:
            found[name] = gain[whole] - gain[rest]
    return found


def noise(lab: Lab, alike: Alike) -> Remaining | None:
    """What no knob can remove: between engines the bf16 floor, within one what a repeat leaves; None where that is
    nothing, or so much of the difference that a share of the rest would say nothing."""
    found = lab.floor if lab.across else None
    if found is None and alike.repeats and alike.whole is not None:
        found = alike.whole.left
    if found is None:
        return None
    most = max(float(np.quantile(r, 0.975)) for r in (found.bulk_r, found.tail_r))
    return found if max(most, found.bulk, found.tail) < HALF else None


def parts(value: Mapping[str, Vector], name: str, split: Vector) -> tuple[Vector, Vector]:
    """A player's gain as the part that `split` removes and the rest, [1 + RESAMPLES] each; `split` is a gain of the same
    pair."""
    whole = value[name]
    size = max(len(whole), len(split))
    first = np.broadcast_to(split, (size,)) if len(split) == 1 else split
    return first, whole - first
