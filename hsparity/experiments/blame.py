"""From measured shares to named causes."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from .alike import SETTLED, Alike, noise, parts
from .attribution import Share, share
from .confidence import LIKELY, POSSIBLE, at_most, changed, percent, span, word
from .differences import Difference, shown
from .knobs import knobs, obstacle, quantisation, quantises_activations
from .result import CODES, Blame, State
from .rules import ruled, twin_of
from .trial import Lab, Trial, run
from .variants import Turn

Vector = NDArray[np.float64]


def of_alike(lab: Lab, alike: Alike) -> list[Blame]:
    """The causes that setting knobs alike has shown, the largest share first."""
    found: list[Blame] = []
    joint = _joint(lab, alike)
    for difference in alike.players:
        name = difference.knob.name
        value = alike.shares.get(name)
        if value is None or value.high <= POSSIBLE or (value.low <= 0.0 and value.value < POSSIBLE):
            continue
        if name == "weights":
            found += _weights(lab, alike, difference, joint)
            continue
        found.append(_blame(lab, alike, difference, difference.knob.cause, value, joint))
    found = [ruled(lab, alike, b) for b in found]
    return sorted(found, key=lambda b: -(b.share.value if b.share else 0.0))


def _joint(lab: Lab, alike: Alike) -> Share | None:
    """What all differing knobs explain together."""
    whole = alike.whole
    if whole is None or whole.left is None:
        return None
    floor = noise(lab, alike)
    f, f_r = (0.0, None) if floor is None else (floor.bulk, floor.bulk_r)
    return share(1.0 - whole.left.bulk, 1.0 - whole.left.bulk_r, f, f_r)


def _blame(
    lab: Lab, alike: Alike, difference: Difference, cause: str, value: Share, joint: Share | None
) -> Blame:
    knob = difference.knob
    single = alike.trials.get(frozenset((knob.name,)))
    evidence: list[str] = []
    against: list[str] = []
    if single is not None and single.left is not None:
        evidence.append(_gone(single))
        if single.proof:
            (against if single.doubted else evidence).append(single.proof)
        if single.lent:
            against.append(single.note)
    tail = alike.tails.get(knob.name)
    if tail is not None and tail.high < SETTLED <= value.low:
        against.append(
            f"of the 5 % of tokens that are farthest off it explains {percent(tail)}: something else jumps there"
        )
    if abs(alike.interaction) >= 0.1:
        evidence.append(
            f"the knobs interact: together they remove {alike.interaction:+.0%} beyond the sum of each alone"
        )
    return Blame(
        cause,
        CODES.get(cause, CODES["unknown"]),
        (knob.name,),
        f"{knob.title}: {difference.ref} in the reference, {difference.cand} in the candidate",
        span(value),
        span(tail),
        at_most(word(value, joint), "likely")
        if single is not None and single.doubted
        else word(value, joint),
        tuple(evidence),
        tuple(against),
        next=_see(lab, single, difference.role),
    )


def _gone(trial: Trial) -> str:
    assert trial.left is not None
    if trial.left.bulk == 0.0 and trial.left.tail == 0.0:
        return "set alike, the sides are bit-equal"
    return f"set alike, {1 - trial.left.bulk:.1%} of the squared distance is gone (median token)"


def _see(lab: Lab, trial: Trial | None, role: str) -> str:
    if trial is None or role not in trial.made:
        return ""
    made = str(trial.made[role].source.path)
    pair = (made, lab.cand.path) if role == "ref" else (lab.ref.path, made)
    return shlex.join(["hsparity", "compare", *pair])


def _weights(lab: Lab, alike: Alike, difference: Difference, joint: Share | None) -> list[Blame]:
    """Other weights: quantised ones are parted into the weights' own error and what their kernel adds, by the twin."""
    value = alike.shares["weights"]
    configs = {role: quantisation(lab.side(role).manifest) for role in ("ref", "cand")}
    quantised = [role for role, config in configs.items() if config]
    if len(quantised) != 1:
        cause = "weights-differ" if not quantised else "quantised-weights"
        return [_blame(lab, alike, difference, cause, value, joint)]
    role = quantised[0]
    config = configs[role] or {}
    activations = quantises_activations(config)
    kernel = "quantised-activations" if activations else "quantised-weights"
    turn = twin_of(lab, role)
    trial = run(lab, [turn], "split") if turn else None
    if trial is None or trial.left is None or trial.state is State.NOT_APPLIED:
        why = (
            "no twin could be made"
            if trial is None
            else f"the twin was not measured: {trial.note or trial.proof}"
        )
        blame = _blame(lab, alike, difference, "quantised-weights", value, joint)
        if not activations:
            return [blame]
        rival = (
            "quantised-activations: the kernel rounds them too, and only the dequantised twin parts the two"
        )
        return [changed(blame, confidence=at_most(blame.confidence, "likely"), rival=rival, against=(why,))]
    gain = np.concatenate([[1.0 - trial.left.bulk], 1.0 - trial.left.bulk_r])
    by_kernel, by_weights = parts(alike.values, "weights", gain)
    floor = noise(lab, alike)
    f, f_r = (0.0, None) if floor is None else (floor.bulk, floor.bulk_r)
    found: list[Blame] = []
    for cause, gained, says in (
        ("quantised-weights", by_weights, "left when the weights are dequantised: the weights' own error"),
        (
            kernel,
            by_kernel,
            "gone when the weights are dequantised: the quantised kernel, and the twin's rounding to 16 bits",
        ),
    ):
        part = share(float(gained[0]), gained[1:], f, f_r)
        if part.high <= POSSIBLE or part.value < POSSIBLE:
            continue
        if found and found[0].name == cause:
            found[0] = changed(found[0], evidence=(*found[0].evidence, f"{percent(part)} is {says}"))
            continue
        blame = _blame(lab, alike, difference, cause, part, joint or value)
        found.append(changed(blame, tail=None, evidence=(f"{percent(part)} is {says}", *blame.evidence)))
    return found


def of_toggles(lab: Lab, trials: Sequence[Trial]) -> list[Blame]:
    """The causes that turning a knob away from where both sides have it has shown."""
    found = []
    for trial in trials:
        value = trial.share(lab)
        if trial.state is not State.MEASURED or value is None or value.low < LIKELY:
            continue
        if len(trial.turns) > 1:
            found.append(_precision(trial, value))
            continue
        role, turn = trial.turns[0]
        side = lab.side(role)
        blame = Blame(
            turn.knob.cause,
            CODES.get(turn.knob.cause, CODES["unknown"]),
            (turn.knob.name,),
            f"{turn.knob.title} on the {'reference' if role == 'ref' else 'candidate'} ({side.engine}): "
            f"{turn.label} in place of {shown(turn.knob, side)} brings the sides together",
            span(value),
            span(trial.share(lab, tail=True)),
            word(value, None),
            (trial.proof,) if trial.proof else (),
            next=_see(lab, trial, role),
        )
        found.append(ruled(lab, Alike(), blame) if turn.knob.cause == "graph-or-compile" else blame)
    return sorted(found, key=lambda b: -(b.share.value if b.share else 0.0))


def _precision(trial: Trial, value: Share) -> Blame:
    """Both sides in float32 agree: one arithmetic, rounded differently. By whom, and by more than it has to, that does not
    say: a kernel at fault in 16 bits is cured by float32 too."""
    name = "dtype-rounding"
    return Blame(
        name,
        CODES[name],
        trial.names[:1],
        "in float32 the sides compute the same; what sets them apart is how they round to 16 bits",
        span(value),
        None,
        at_most(word(value, None), "likely"),
        (trial.proof,) if trial.proof else (),
        rival="a kernel that rounds more than it has to: another precision cures it too",
    )


def both_exact(lab: Lab) -> list[tuple[str, Turn]]:
    """The turns that put both sides in float32; none where one of them cannot go there or is there."""
    turns = []
    for role in ("ref", "cand"):
        side = lab.side(role)
        knob, value = next(
            ((k, k.at("float32")) for k in knobs(side.engine) if k.name == "dtype"), (None, None)
        )
        if knob is None or value is None or side.manifest.dtype == "float32":
            return []
        if obstacle(knob, value, side.situation):
            return []
        turns.append((role, Turn(knob, value, value.name)))
    return turns
