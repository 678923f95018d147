"""The rules that were learned the hard way: what has to be run before a graph or a precision is blamed, and the runs that part
one cause from another."""

from __future__ import annotations

from .alike import Alike
from .confidence import LIKELY, changed, percent, span, word
from .knob import Knob
from .knobs import knobs, obstacle, quantisation
from .result import CODES, Blame
from .trial import Lab, run
from .variants import Turn


def following(lab: Lab, alike: Alike) -> list[tuple[str, tuple[str, Turn]]]:
    """The runs that a blame would ask for: (purpose, turn)."""
    found: list[tuple[str, tuple[str, Turn]]] = []
    quantised = [r for r in ("ref", "cand") if quantisation(lab.side(r).manifest)]
    for difference in alike.players:
        if difference.knob.name == "weights" and len(quantised) == 1 and (turn := twin_of(lab, quantised[0])):
            found.append(("split", turn))
        for name, needed in (
            ("padding", difference.knob.cause == "graph-or-compile" and bool(_replaying(lab))),
            ("clone-only", difference.knob.precision and _native(lab)),
        ):
            role = _eager(lab) if name == "padding" else difference.role
            knob, why = free(lab, role, name)
            if needed and knob is not None and not why:
                found.append(("rule", (role, Turn(knob, knob.values[0], knob.values[0].name))))
    return found


def ruled(lab: Lab, alike: Alike, blame: Blame) -> Blame:
    """The graph rule and the clone rule."""
    if blame.name == "graph-or-compile":
        return graph_rule(lab, blame)
    knob = next((k for k in knobs(lab.cand.engine) if k.name in blame.knobs), None)
    return clone_rule(lab, alike, blame) if knob is not None and knob.precision and _native(lab) else blame


def graph_rule(lab: Lab, blame: Blame) -> Blame:
    """A graph is not blamed before an eager run of its padded shape: the shape alone may choose other kernels."""
    if not _replaying(lab):
        return changed(blame, evidence=(*blame.evidence, "no graph is replayed: no pass was padded to one"))
    eager = _eager(lab)
    rival = "batch-variance: passes padded to the sizes that graphs were captured for"
    knob, why = free(lab, eager, "padding")
    if knob is None or why:
        return changed(
            blame,
            confidence="inconclusive",
            rival=rival,
            against=(f"the padded eager run was not made: {why}",),
        )
    trial = run(lab, [(eager, Turn(knob, knob.values[0], knob.values[0].name))], "rule")
    found = trial.share(lab)
    if found is None:
        return changed(blame, confidence="inconclusive", rival=rival, against=(trial.note,))
    if found.low >= LIKELY:
        return changed(
            blame,
            name="batch-variance",
            code=CODES["batch-variance"],
            headline="passes padded to a graph's batch size differ from unpadded ones; the graph itself is not to blame",
            share=span(found),
            confidence=word(found, None),
            evidence=(f"eager passes of the padded shape bring the sides together by {percent(found)}",),
        )
    return changed(
        blame, evidence=(*blame.evidence, f"eager passes of the padded shape explain only {percent(found)}")
    )


def clone_rule(lab: Lab, alike: Alike, blame: Blame) -> Blame:
    """Another precision may run other kernels, which do not write in place: it then cures an aliased hand-over. Hooks that
    clone, at the same precision, tell the two apart."""
    role = next((d.role for d in alike.players if d.knob.name in blame.knobs), "cand")
    knob, why = free(lab, role, "clone-only")
    rival = "aliased-capture: a hand-over that is overwritten in place looks like precision"
    if knob is None or why:
        return changed(
            blame,
            confidence="inconclusive",
            rival=rival,
            against=(f"the clone-only run was not made: {why or 'no such knob'}",),
        )
    trial = run(lab, [(role, Turn(knob, knob.values[0], knob.values[0].name))], "rule")
    found = trial.share(lab)
    if found is None:
        return changed(blame, confidence="inconclusive", rival=rival, against=(trial.note,))
    if found.low >= LIKELY:
        return changed(
            blame,
            name="aliased-capture",
            code=CODES["aliased-capture"],
            headline=f"the {lab.side(role).engine} hand-over is overwritten in place: read by cloning hooks it is not off",
            share=span(found),
            confidence=word(found, None),
            evidence=(f"clone-only, at the same precision, brings the sides together by {percent(found)}",),
        )
    return changed(
        blame, evidence=(*blame.evidence, "clone-only, at the same precision, leaves it: no aliasing")
    )


def free(lab: Lab, role: str, name: str) -> tuple[Knob | None, str]:
    """A knob of one side and why it cannot be turned there."""
    side = lab.side(role)
    knob = next((k for k in knobs(side.engine) if k.name == name), None)
    return knob, obstacle(knob, knob.values[0], side.situation) if knob else f"{side.engine} has no such run"


def twin_of(lab: Lab, role: str) -> tuple[str, Turn] | None:
    """The turn that takes a quantised side to its dequantised twin."""
    knob = next((k for k in knobs(lab.side(role).engine) if k.name == "weights"), None)
    value = knob.at("twin") if knob else None
    return None if knob is None or value is None else (role, Turn(knob, value, "its dequantised twin"))


def _native(lab: Lab) -> bool:
    """Whether what is compared was handed over by an engine, not read by hooks."""
    return any("slot." in p.ref + p.cand for p in lab.bench.places)


def _replaying(lab: Lab) -> list[str]:
    return [r for r in ("ref", "cand") if lab.side(r).settings.get("mode") == "graphs"]


def _eager(lab: Lab) -> str:
    return "cand" if _replaying(lab) == ["ref"] else "ref"
