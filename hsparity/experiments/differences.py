"""Which knobs stand elsewhere on one side than on the other, and where a side's knobs stand now."""

from __future__ import annotations

from dataclasses import dataclass

from ..align.tokens import pair_prompts
from .knob import Knob, Value, same
from .knobs import argument_knobs, knobs, obstacle, quantisation
from .proofs import Made, Proof, prove, refused
from .takes import Side
from .variants import Turn

UNPROVED = Proof(None, "")


@dataclass(frozen=True, slots=True)
class Difference:
    """A knob that the sides set differently. `turn` sets `role` like the other side; None: it cannot be done."""

    knob: Knob
    role: str
    ref: str  # where each stands, in words
    cand: str
    turn: Turn | None
    why_not: str = ""
    proof: Proof = UNPROVED  # that the sides really run differently


def level(knob: Knob, made: Made) -> str | None:
    """Where a knob stands on a capture, by what the capture shows; None where that cannot be said."""
    settings, spec = made.settings, made.spec
    if knob.name == "weights":
        return "quantised" if quantisation(made.manifest) else "plain"
    if knob.name == "kv-dtype":
        said = str(settings.get("kv_cache_dtype") or "auto")
        return "fp8" if "fp8" in said or "float8" in said else "auto"
    if knob.name == "dtype":
        return made.manifest.dtype
    if knob.name == "mla":
        return "on" if "MLA" in str(settings.get("attention_backend")) else "off"
    if knob.name in ("graph", "compile"):
        mode = str(settings.get("mode"))
        return mode if knob.name == "graph" else ("on" if mode == "compiled" else "off")
    if knob.name == "chunked-prefill":
        return None if not made.passes else ("chunks" if made.passes > 1 else "whole")
    if knob.name == "prefix-cache":
        return "on" if made.cached else "off"
    if knob.name == "tensor-parallel":
        return str(settings.get("tp", 1))
    if knob.name == "batch":
        return str(spec.batch) if spec.engine != "hf" else "1"
    if knob.name == "mask":
        return "full mask" if not knob.slice(spec).args else None
    if knob.name == "batch-invariant":
        part = knob.slice(spec)
        return (
            "on"
            if any(str(v) not in ("0", "False") for v in (*part.args.values(), *part.env.values()))
            else "off"
        )
    if knob.name == "clone-only":
        return spec.mechanism
    stands = settings.get(knob.setting) if knob.setting else None
    return None if stands in (None, "") else str(stands)


def shown(knob: Knob, made: Made) -> str:
    """Where a knob stands, for people: what the capture shows, what was asked for where it shows nothing."""
    if knob.how == "prompts":
        return f"{made.spec.generate} decoded, {sum(p.prefill for p in made.source.prompts)} read"
    asked, stands = knob.spelled(knob.slice(made.spec)), level(knob, made)
    return asked if knob.how == "model" or stands is None or refused(knob, made) else stands


def _both(knob: Knob, other: Knob, ref: Made, cand: Made) -> tuple[str, str]:
    """Where a knob stands on each side; what was asked for where both stand alike by name."""
    left, right = shown(other, ref), shown(knob, cand)
    if left == right:
        left, right = other.spelled(other.slice(ref.spec)), knob.spelled(knob.slice(cand.spec))
    return left, right


def differences(ref: Side, cand: Side) -> tuple[Difference, ...]:
    """Every knob in which the sides differ, as asked for or as run; likely and cheap ones first."""
    found = _same_engine(ref, cand) if ref.engine == cand.engine else _across(ref, cand)
    return tuple(sorted(found, key=lambda d: d.knob.cost / max(d.knob.likely, 0.01)))


def _same_engine(ref: Side, cand: Side) -> list[Difference]:
    found = []
    for knob in (*knobs(cand.engine), *argument_knobs(ref.spec, cand.spec)):
        wanted = knob.slice(ref.spec)
        if same(wanted, knob.slice(cand.spec)) or not _numeric(knob, ref, cand):
            continue
        proof = prove(knob, cand, ref)
        # A default that was written out is no difference.
        if (
            proof.applied is False
            and not (refused(knob, ref) or refused(knob, cand))
            and _alike(knob, ref, cand)
        ):
            continue
        left, right = _both(knob, knob, ref, cand)
        turn = Turn(knob, wanted, left)
        why_not = obstacle(knob, wanted, cand.situation)
        found.append(Difference(knob, "cand", left, right, None if why_not else turn, why_not, proof))
    return found


def _numeric(knob: Knob, ref: Side, cand: Side) -> bool:
    """Whether what differs in the spec can move a state: more sites or other prompts cannot."""
    if knob.name == "padding":
        return False
    if knob.name == "clone-only":
        return ref.spec.mechanism != cand.spec.mechanism
    if knob.name == "weights":
        return ref.manifest.weights_sha256 != cand.manifest.weights_sha256 or not ref.manifest.weights_sha256
    if knob.name == "decode":
        pairs, _ = pair_prompts(ref.source, cand.source)
        return any(a.prefill != b.prefill for a, b in pairs)
    return True


def _alike(knob: Knob, ref: Side, cand: Side) -> bool:
    if knob.setting and knob.setting in ref.settings:
        return bool(ref.settings.get(knob.setting) == cand.settings.get(knob.setting))
    return level(knob, ref) == level(knob, cand) is not None


def _across(ref: Side, cand: Side) -> list[Difference]:
    """By where the knobs of one name stand; the side is turned that can be, towards the finer setting where both can."""
    theirs = {k.name: k for k in knobs(ref.engine)}
    found = []
    for knob in knobs(cand.engine):
        other = theirs.get(knob.name)
        if other is None or not _numeric(knob, ref, cand):
            continue
        left, right = level(other, ref), level(knob, cand)
        if left is None or right is None or (left == right and knob.name != "weights"):
            continue
        # Each engine names its kernels itself: those are toggled, not matched.
        if knob.name == "attention-backend":
            continue
        ways = (_way("cand", knob, cand, ref, left), _way("ref", other, ref, cand, right))
        free = sorted((w for w in ways if not w[1]), key=lambda w: w[2])
        turn, why_not, _, role = free[0] if free else ways[0]
        found.append(
            Difference(
                knob if role == "cand" else other,
                role,
                *_both(knob, other, ref, cand),
                turn if not why_not else None,
                why_not,
                Proof(True, f"{left} against {right}"),
            )
        )
    return found


def _way(role: str, knob: Knob, side: Side, other: Side, wanted: str) -> tuple[Turn | None, str, bool, str]:
    """Turning `side` to where the other stands: the turn, why it cannot be, whether that is coarser, and the role."""
    if knob.name == "weights":
        fields = {"model": other.spec.model, "revision": other.spec.revision}
        turn = Turn(knob, Value(wanted, fields=fields), shown(knob, other))
        return turn, "", quantisation(other.manifest) is not None, role
    value = knob.at(wanted)
    if value is None:
        return None, f"{side.engine} has no {knob.title} like {wanted}", True, role
    why_not = obstacle(knob, value, side.situation)
    return Turn(knob, value, wanted), why_not, value.coarse, role


def toggles(side: Side) -> tuple[list[Turn], list[tuple[str, str, str]]]:
    """What can be turned away from where a side stands, and what cannot: (knob, value, why)."""
    able: list[Turn] = []
    unable: list[tuple[str, str, str]] = []
    for knob in knobs(side.engine):
        stands = level(knob, side)
        seen = set()
        for value in knob.values:
            standing = value.name == stands or (value.name == "default" and not knob.slice(side.spec).args)
            if standing or value.coarse or value.name in seen or not _further(knob, value, stands, side):
                continue
            why_not = obstacle(knob, value, side.situation)
            if why_not:
                unable.append((knob.name, value.name, why_not))
                continue
            seen.add(value.name)
            able.append(Turn(knob, value, value.name))
    able.sort(key=lambda t: t.knob.cost / max(t.knob.likely, 0.01))
    return able, [u for u in unable if u[:2] not in {(t.knob.name, t.label) for t in able}]


def _further(knob: Knob, value: Value, stands: str | None, side: Side) -> bool:
    """Whether a place is worth a capture of its own."""
    if knob.name == "batch":
        # One other batch: alone where there were several, four where it was alone.
        return value.name == ("1" if stands != "1" else "4") and len(side.spec.prompts) > 1
    if knob.name == "tensor-parallel":
        return stands == "1" or value.name == "1"
    if knob.name == "padding":
        return level(knob, side) is None and str(side.settings.get("mode")) == "eager"
    if knob.name in ("graph", "compile"):
        return stands == "eager" or value.name in ("eager", "off")
    return True
