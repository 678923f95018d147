"""Slots that hold another boundary than they claim, or that are missing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hsparity.query import Query
from hsprobe.schema import Site
from tests.causes.faults.base import SLOTS, fault, key, v
from tests.causes.real import SMOL, TINY
from tests.causes.streams import Capture, States, edited

T, S = (TINY,), (SMOL,)


def moved(made: Capture, origin: dict[int, int]) -> Capture:
    """Boundary k holds what was boundary `origin[k]`; one that would come from beyond the last is not there."""

    def change(_: str, states: States) -> States:
        found = dict(states)
        for k, source in origin.items():
            found.pop(key(k), None)
            if key(source) in states:
                found[key(k)] = states[key(source)].copy()
        return found

    return edited(made, change)


def slotted(made: Capture, order: Sequence[int]) -> Capture:
    """Slot i holds what was slot `order[i]`; there are as many as `order` names."""
    return edited(
        made,
        lambda _, states: {
            Site("slot", i).key: states[Site("slot", j).key].copy() for i, j in enumerate(order)
        },
    )


@fault(
    "layer-offset",
    v("+1, every boundary", by=1),
    v("-1, every boundary", by=-1, cand="sglang"),
    v("+2, every boundary", by=2, ref="sglang"),
    v("+1, three slots", by=1, shape="three"),
    v("-1, three slots, no floor", by=-1, shape="three", floor=False),
    v("+2, three slots, SGLang", by=2, shape="three", cand="sglang"),
    v("the last of three one early", by=-1, which="last", shape="three-last"),
    v("the last alone one early", by=-1, which="last", shape="last", cand="sglang", floor=False),
    v("the middle of three one late", by=1, which="middle", shape="three"),
    v("the default list in place of a later one", which="default", shape="late"),
)
def layer_offset(made: Capture, by: int = 0, which: str = "every") -> Capture:
    """Slots hold the boundary `by` further: all, all but the last, only one, or the engine's default list."""
    layers = made.model.layers
    if which == "default":
        return moved(made, dict(zip(SLOTS["late"][layers], DEFAULTS[layers], strict=True)))
    touched = {
        "every": range(layers + 1),
        "inner": range(layers),
        "last": (layers,),
        "middle": SLOTS["three"][layers][1:2],
    }[which]
    return moved(made, {k: k + by for k in touched})


DEFAULTS = {8: (2, 4, 5), 30: (2, 15, 27)}  # EAGLE-3's: 2, L // 2, L - 3


@fault(
    "slot-count",
    v("the last of three dropped", kept=(0, 1), shape="three-last"),
    v(
        "the last of three dropped, SGLang, no floor",
        kept=(0, 1),
        shape="three-last",
        cand="sglang",
        floor=False,
    ),
    v(
        "ids de-duplicated",
        kept=(0, 1),
        ids=(2, 4, 4),
        shape="three",
        query=Query(boundaries="2,4"),
        models=T,
    ),
    v(
        "ids de-duplicated",
        kept=(0, 1),
        ids=(2, 15, 15),
        shape="three",
        query=Query(boundaries="2,15"),
        models=S,
    ),
    v("the first of three lost with its pipeline stage", kept=(1, 2), shape="three"),
    v("only the last stage's slot", kept=(2,), shape="three", cand="sglang"),
    handed_over=True,
)
def slot_count(made: Capture, kept: Sequence[int], ids: Sequence[int] = ()) -> Capture:
    """Fewer slots than ids were given: the last one, a repeated one, or those of an earlier pipeline stage."""
    fewer = slotted(made, kept)
    return replace(fewer, settings={**made.settings, "native_ids": list(ids)}) if ids else fewer


@fault(
    "slots-permuted",
    v("the three in reverse", order=(2, 1, 0), shape="three"),
    v("the three rotated", order=(2, 0, 1), shape="three", cand="sglang"),
    v("the first two swapped, no floor", order=(1, 0, 2), shape="three", floor=False),
    v("the last two swapped", order=(0, 2, 1), shape="three-last", cand="sglang"),
    handed_over=True,
)
def slots_permuted(made: Capture, order: Sequence[int]) -> Capture:
    """The boundaries that were asked for, in other slots."""
    return slotted(made, order)


@fault(
    "slot-duplicated",
    v("the first twice", order=(0, 0, 2), shape="three"),
    v("the last everywhere", order=(2, 2, 2), shape="three", cand="sglang"),
    v("the last twice, no floor", order=(0, 2, 2), shape="three-last", floor=False),
    v("the first everywhere", order=(0, 0, 0), shape="three-last"),
    handed_over=True,
)
def slot_duplicated(made: Capture, order: Sequence[int]) -> Capture:
    """One buffer in several slots, bit for bit."""
    return slotted(made, order)


@fault(
    "slot-duplicated",
    v("boundary 5 is boundary 4", which=5),
    v("boundary 3 is boundary 2, SGLang", which=3, cand="sglang"),
)
def boundary_duplicated(made: Capture, which: int) -> Capture:
    """Of all boundaries, one is the one before it bit for bit: its buffer was never written again."""
    return moved(made, {which: which - 1})
