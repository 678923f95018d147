"""The command that settles a hypothesis next."""

from __future__ import annotations

import shlex

from hsparity.diagnose.facts import Facts
from hsparity.diagnose.weighing import Hypothesis

# Codes whose experiment is one knob of the engine; the others are settled by a replay.
KNOBS = {
    "HS501": "weights",
    "HS502": "weights",
    "HS503": "kv-dtype",
    "HS504": "attention-backend",
    "HS506": "graph",
    "HS510": "chunked-prefill",
    "HS513": "dtype",
    "HS514": "batch",
    "HS515": "decode",
    "HS517": "mask",
}


def bisect_command(f: Facts, *knobs: str) -> str:
    """Turns these knobs, or all that differ."""
    chosen = [f"--knobs {','.join(knobs)}"] if knobs else []
    return " ".join(["hsparity bisect", *_pair(f), *_floors(f), *chosen])


def replay_command(f: Facts) -> str:
    """Replays every layer on its captured input, and weighs that."""
    return " ".join(["hsparity compare", *_pair(f), *_floors(f), "--replay"])


def next_commands(f: Facts, h: Hypothesis, tied: tuple[str, ...]) -> tuple[str, ...]:
    """What would settle this cause, or part it from those that it is level with."""
    knobs = tuple(dict.fromkeys(KNOBS[code] for code in (h.code, *tied) if code in KNOBS))
    if h.code == "HS508" and f.routing is None:
        return routers_commands(f)
    if h.code == "HS504" and "mla" in f"{f.mine.backend} {f.other.backend}":
        knobs = tuple("mla" if knob == "attention-backend" else knob for knob in knobs)
    if h.code == "HS514" and f.mine.tp != f.other.tp:
        knobs = tuple("tensor-parallel" if knob == "batch" else knob for knob in knobs)
    if knobs and h.code in KNOBS:
        return (bisect_command(f, *knobs),)
    if f.replay is None:
        return (replay_command(f),)
    return () if h.confidence == "settled" else (bisect_command(f),)


def routers_commands(f: Facts) -> tuple[str, ...]:
    """Captures with the routers, on both sides."""
    out = []
    for source in (f.evidence.ref, f.evidence.cand):
        m = source.manifest
        model, folder = shlex.quote(m.model), shlex.quote(f"{source.path.rstrip('/')}-routers")
        sites = "'boundary.*,router_logits.*,experts.*'"
        out.append(
            f"hsparity capture {m.engine} --model {model} --dtype {m.dtype} --sites {sites} -o {folder}"
        )
    return tuple(out)


def _pair(f: Facts) -> list[str]:
    return [shlex.quote(f.evidence.ref.path), shlex.quote(f.evidence.cand.path)]


def _floors(f: Facts) -> list[str]:
    return [word for path in f.evidence.floors for word in ("--floor", shlex.quote(path))]
