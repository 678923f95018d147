"""A replay in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from hsparity.model import Verdict
from hsparity.replay.result import Added, Replay

PARTS = ("attention", "router", "mlp")  # in the order that a fault in one reaches the next


def headline(result: Replay) -> Replay:
    """The result with its headline."""
    return replace(result, headline=_headline(result))


def _headline(result: Replay) -> str:
    sides = [s for s in ("ref", "cand") if result.of(s)]
    told = {side: beyond(result, side) for side in sides}
    names = {"ref": result.ref or "the reference", "cand": result.cand or "the candidate"}
    guilty = [s for s in sides if told[s]]
    if not guilty:
        unsure = [a for a in result.added if a.weights == "own" and a.verdict is Verdict.INCONCLUSIVE]
        count = len({a.layer for a in result.added})
        if not unsure:
            return f"no layer adds more than its dtype costs: {count} replayed, {_both(sides, names)}"
        where = _places(sorted({a.layer for a in unsure}))
        return f"no layer is proved to add error; {where} could not be settled: {unsure[0].reason}"
    return guilt(result, names)


def guilt(result: Replay, names: Mapping[str, str]) -> str:
    """Which sides add error, where and by what, and which do not."""
    told = {side: beyond(result, side) for side in ("ref", "cand") if result.of(side)}
    words = [f"{names[s]} adds error {_where(result, s, layers)}" for s, layers in told.items() if layers]
    words += [f"{names[s]} does not" for s, layers in told.items() if not layers]
    return "; ".join(words)


def _both(sides: Sequence[str], names: dict[str, str]) -> str:
    return " and ".join(names[s] for s in sides)


def beyond(result: Replay, side: str) -> tuple[int, ...]:
    """The layers of a side that add error beyond the floor with the side's own weights, by any part."""
    return tuple(
        sorted(
            {
                a.layer
                for a in result.added
                if (a.side, a.weights, a.verdict) == (side, "own", Verdict.DIVERGED)
            }
        )
    )


def _where(result: Replay, side: str, layers: Sequence[int]) -> str:
    first = layers[0]
    share = f"in {_places(layers)}, first in layer {first}" if len(layers) > 1 else f"in layer {first}"
    parts = guilty_parts(result, side, first)
    part = parts[0] if len(parts) == 1 else "layer"
    told = next((a for a in result.of(side, part) if a.layer == first), None)
    reason = f": {told.reason}" if told is not None and told.verdict is Verdict.DIVERGED else ""
    return f"{share}{f', by its {_join(parts)}' if parts else ''}{reason}"


def remarks(added: Sequence[Added], limit: float) -> tuple[str, ...]:
    """What is worth knowing and accuses nobody: parts above the floor's limit in layers that stay within theirs."""
    found: dict[tuple[str, str], list[Added]] = {}
    for a in added:
        if a.weights == "own" and a.part != "layer" and a.verdict is Verdict.PARITY and a.ratio > limit:
            found.setdefault((a.side, a.part), []).append(a)
    return tuple(
        f"{side}: the {part} of {_places([a.layer for a in them])} stands at up to {max(a.ratio for a in them):.2g}× its "
        f"floor, its output at {sorted(a.gain for a in them)[len(them) // 2]:.4f} times the replay's; the layers "
        "themselves stay within: a kernel that truncates where Transformers rounds does this"
        for (side, part), them in found.items()
    )


def guilty_parts(result: Replay, side: str, layer: int) -> list[str]:
    """The parts of a layer that are beyond their floor, in the order that they run."""
    held = {a.part: a for a in result.added if (a.side, a.weights, a.layer) == (side, "own", layer)}
    return [p for p in PARTS if p in held and held[p].verdict is Verdict.DIVERGED]


def _places(layers: Sequence[int]) -> str:
    """`layer 3`, `layers 3-5, 8`."""
    runs: list[list[int]] = []
    for layer in layers:
        if runs and layer == runs[-1][-1] + 1:
            runs[-1].append(layer)
        else:
            runs.append([layer])
    shown = ", ".join(str(r[0]) if len(r) == 1 else f"{r[0]}-{r[-1]}" for r in runs)
    return f"layer{'s' * (len(layers) != 1)} {shown}"


def _join(words: Sequence[str]) -> str:
    return " and ".join(words)
