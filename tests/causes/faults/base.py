"""What a fault is: a pure function on a candidate's capture, its variants, and how the capture is handed over."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from hsparity.query import Query
from tests.causes.real import NAMES
from tests.causes.streams import Capture, States, as_slots, edited

Change = Callable[..., Capture]

# Boundaries that each shape hands over, by number of layers; "all" hands over every one under its own name.
SLOTS: Mapping[str, Mapping[int, tuple[int, ...]]] = {
    "three": {8: (2, 4, 6), 30: (2, 15, 27)},
    "late": {8: (3, 6, 8), 30: (5, 20, 29)},
    "three-last": {8: (2, 4, 8), 30: (2, 15, 30)},
    "last": {8: (8,), 30: (30,)},
    "native": {8: (1, 3, 5, 8), 30: (1, 9, 18, 30)},
}
CLAIMED = ("three", "late", "three-last", "last")  # by --boundaries; of "native" nothing is claimed


@dataclass(frozen=True)
class Variant:
    """One severity of a fault, and the comparison that has to name it."""

    label: str
    options: Mapping[str, Any]
    shape: str = "all"
    models: tuple[str, ...] = NAMES
    ref: str = "hf-bf16"
    cand: str = "vllm"
    floor: bool = True
    query: Query | None = None  # in place of the shape's own
    facts: Mapping[str, Any] = field(default_factory=dict)  # put into both sides' model_config
    unit: float = 1.0  # power of two by which every capture's stream is scaled: exact in bf16


@dataclass(frozen=True)
class Fault:
    name: str  # the finding that has to come first
    change: Change
    variants: tuple[Variant, ...]
    handed_over: bool  # the change is to the slots, not to the stream they are taken from
    side: str = "cand"

    @property
    def fact(self) -> str:
        return (self.change.__doc__ or "").strip()


FAULTS: list[Fault] = []


def fault(name: str, *variants: Variant, handed_over: bool = False, side: str = "cand") -> Any:
    """Registers a function on a capture as the fault `name`."""

    def register(change: Change) -> Change:
        FAULTS.append(Fault(name, change, variants, handed_over, side))
        return change

    return register


_OWN = ("shape", "models", "ref", "cand", "floor", "query", "facts", "unit")


def v(label: str, **given: Any) -> Variant:
    """A variant: what is no field of it is an option of the fault's function."""
    fields = {key: given.pop(key) for key in _OWN if key in given}
    return Variant(label, given, **fields)


def handed(made: Capture, shape: str) -> Capture:
    """The capture as an engine hands it over: branches are its own business, boundaries may become slots.

    Shape "made": the fault has made the slots already.
    """
    if shape == "made":
        return made
    if shape == "all":
        return edited(made, lambda _, s: {k: x for k, x in s.items() if not k.startswith(("attn", "mlp"))})
    chosen = SLOTS[shape][made.model.layers]
    return edited(made, lambda _, s: as_slots(s, chosen))


def query_of(shape: str, layers: int) -> Query:
    """What a user claims of the capture."""
    return Query(boundaries=",".join(map(str, SLOTS[shape][layers]))) if shape in CLAIMED else Query()


def key(boundary: int) -> str:
    return f"boundary.{boundary:03d}"


def streams_of(states: States) -> list[str]:
    """Boundaries and slots: what holds the residual stream."""
    return [k for k in states if k.startswith(("boundary", "slot"))]


def chosen_boundaries(states: States, which: Sequence[int] | str) -> list[str]:
    """Keys of the boundaries a fault touches: "every", "last", or numbers."""
    found = sorted(k for k in states if k.startswith("boundary"))
    if which == "every":
        return found
    if which == "last":
        return found[-1:]
    return [key(int(k)) for k in which]


def each(made: Capture, which: Sequence[int] | str, function: Callable[[np.ndarray], np.ndarray]) -> Capture:
    """`function` on the chosen boundaries' states."""

    def change(_: str, states: States) -> States:
        return {**states, **{k: function(states[k]) for k in chosen_boundaries(states, which)}}

    return edited(made, change)


def with_facts(made: Capture, **config: Any) -> Capture:
    """The capture with entries of its model's config replaced."""
    model = made.model
    return replace(made, real=replace(model, config={**model.config, **config}))


def random_rotation(width: int, seed: int = 11) -> np.ndarray:
    """A random orthogonal matrix [H, H]."""
    found, _ = np.linalg.qr(np.random.default_rng(seed).standard_normal((width, width)))
    return found
