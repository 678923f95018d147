"""Slots made of the right parts in the wrong amounts: a branch counted twice or by one rank only, the next
layer's attention added in place, a state taken between attention and MLP."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from hsparity.align.layers import medians
from hsparity.solve.dictionary import Bench, Entry
from hsparity.solve.forms import Form, site
from hsprobe.schema import Site

TIMES = (2, 3, 4, 8, 16)
SNAP = 0.2  # a fitted coefficient may be a round number when it is that near: the exact error decides
ALIGNED = 0.3  # cosine of what is left with the next update: chance gives 1 / sqrt(H)
RANKS = (2, 4, 8)
RANK_NEAR = 0.2
CLEARER = 3.0  # times the cosine with any other update

Vector = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Branches:
    """What the ruler holds of layer `layer`, between boundary `layer` and the next."""

    layer: int
    below: str
    above: str
    attn: Form | None
    mlp: Form | None

    @property
    def update(self) -> Form:
        return Form(((self.above, 1.0), (self.below, -1.0)))

    @property
    def middle(self) -> Form | None:
        """The stream between attention and MLP; None where the attention output cannot be had."""
        return Form(((self.below, 1.0), *self.attn.parts)) if self.attn else None


def branches(held: Mapping[int, str], sites: Sequence[str]) -> dict[int, Branches]:
    """Per layer whose both boundaries the ruler holds; one captured branch gives the other."""
    found = {}
    for k, below in held.items():
        above = held.get(k + 1)
        if not above:
            continue
        attn, mlp = Site("attn_out", k).key, Site("mlp_out", k).key
        rest = ((above, 1.0), (below, -1.0))
        left = site(attn) if attn in sites else Form((*rest, (mlp, -1.0))) if mlp in sites else None
        right = site(mlp) if mlp in sites else Form((*rest, (attn, -1.0))) if attn in sites else None
        found[k] = Branches(k, below, above, left, right)
    return found


@dataclass(frozen=True, slots=True)
class Fit:
    """Coefficients of the parts that are added to a layer's input to make a slot, constant over tokens."""

    attn: float
    mlp: float


def fit(bench: Bench, ruler: int, side: int, slot: Form, layer: Branches, apart: bool) -> Fit | None:
    """Least squares of slot - boundary over the layer's branches, together or apart, every token with the
    weight of its update. None where they cannot be had apart."""
    if apart and (layer.attn is None or layer.mlp is None):
        return None
    parts = [layer.attn, layer.mlp] if apart else [layer.update]
    forms = [site(layer.below), site(layer.above), *[p for p in parts if p]]

    def work(task: int) -> tuple[Vector, Vector] | None:
        left, right = bench.rows(ruler, task, forms), bench.rows(side, task, [slot])
        if left is None or right is None or not (left.isfinite().all() and right.isfinite().all()):
            return None
        moved = right[:, 0] - left[:, 0]
        weight = 1.0 / (left[:, 1] - left[:, 0]).square().sum(1).clamp_min(1e-30)
        stack = left[:, 2:]
        normal = torch.einsum("nph,nqh,n->pq", stack, stack, weight).double()
        target = torch.einsum("nph,nh,n->p", stack, moved, weight).double()
        return normal.numpy(), target.numpy()

    sums = bench.each(work)
    if not sums:
        return None
    normal, target = (np.sum(part, axis=0) for part in zip(*sums, strict=True))
    if np.linalg.cond(normal) > 1e8:
        return None
    found = np.linalg.solve(normal, target)
    attn, mlp = (found[0], found[1]) if apart else (found[0], found[0])
    return Fit(float(attn), float(mlp))


def round_number(value: float, scale: float | None = None) -> float | None:
    """The amount a coefficient stands for: 0, 1, n, 1/n, or the routed scaling factor; None when it is none
    of them."""
    known = [1.0, *map(float, TIMES), *[1.0 / n for n in TIMES], *([scale, 1.0 / scale] if scale else [])]
    if abs(value) < SNAP:
        return 0.0
    near = min(known, key=lambda n: abs(value / n - 1.0))
    return near if abs(value / near - 1.0) < SNAP else None


def amounts(layer: Branches, found: Fit, scale: float | None) -> Entry | None:
    """The entry that the fitted amounts name; None when they are ordinary or no round numbers."""
    attn, mlp = round_number(found.attn), round_number(found.mlp, scale)
    if attn is None or mlp is None or (attn, mlp) == (1.0, 1.0) or (attn, mlp) == (0.0, 0.0):
        return None
    number = layer.layer + 1
    most = max(attn, mlp)
    if attn == mlp or layer.attn is None or layer.mlp is None:
        parts = {layer.above: attn, layer.below: 1.0 - attn}
        what = "its update"
    else:
        parts = {layer.below: 1.0}
        for form, amount in ((layer.attn, attn), (layer.mlp, mlp)):
            for key, coefficient in form.parts:
                parts[key] = parts.get(key, 0.0) + amount * coefficient
        what = "its attention output" if attn != 1.0 else "its MLP output"
    amount = mlp if mlp != 1.0 else attn
    if scale and mlp in (scale, 1.0 / scale) and attn == 1.0 and mlp not in (*map(float, TIMES),):
        kind = "gain"
    elif most > 1.0:
        kind = "double-reduce"
    elif 0.0 < min(attn, mlp) < 1.0:
        kind = "partial-sum"
    else:
        return None
    words = f"boundary {number} with {what} counted {amount:.4g} times"
    return Entry(kind, number, Form(tuple(parts.items())), words, scalable=False)


@dataclass(frozen=True, slots=True)
class RankShare:
    """How much of the MLP output a slot holds after the attention: one rank of n holds a part with projection
    1/n and squared size 1/n, since the parts are unlike each other."""

    projection: float  # median <rest, mlp> / |mlp|^2
    square: float  # median |rest|^2 / |mlp|^2

    @property
    def ranks(self) -> int:
        """The number of ranks that both figures agree on; 0 when they agree on none."""
        for n in RANKS:
            if all(abs(value * n - 1.0) < RANK_NEAR for value in (self.projection, self.square)):
                return n
        return 0


def rank_share(bench: Bench, ruler: int, side: int, slot: Form, layer: Branches) -> RankShare | None:
    """What the slot holds beyond the layer's middle, against the layer's MLP output."""
    if layer.middle is None or layer.mlp is None:
        return None
    forms = [layer.middle, layer.mlp]

    def work(task: int) -> Vector | None:
        left, right = bench.rows(ruler, task, forms), bench.rows(side, task, [slot])
        if left is None or right is None:
            return None
        rest, mlp = right[:, 0] - left[:, 0], left[:, 1]
        size = mlp.square().sum(1)
        both: Vector = (
            torch.stack(((rest * mlp).sum(1) / size, rest.square().sum(1) / size), 1).double().numpy()
        )
        return both

    found = bench.each(work)
    values = np.concatenate(found) if found else np.zeros((0, 2))
    values = values[np.isfinite(values).all(1)]
    return RankShare(*np.median(values, axis=0).tolist()) if len(values) else None


def summed(bench: Bench, ruler: int, side: int, slots: Sequence[str], layer: Branches) -> float:
    """The median relative error of the sum of several slots, each the layer's middle plus one rank's share,
    against the boundary above; NaN where it cannot be had."""
    if layer.middle is None or len(slots) < 2:
        return float("nan")
    forms = [layer.middle, site(layer.above)]
    count = len(slots)

    def work(task: int) -> NDArray[np.float32] | None:
        left = bench.rows(ruler, task, forms)
        right = bench.rows(side, task, [site(key) for key in slots])
        if left is None or right is None:
            return None
        whole = right.sum(1) - (count - 1) * left[:, 0]
        size = torch.linalg.vector_norm(left[:, 1], dim=1)
        apart: NDArray[np.float32] = (torch.linalg.vector_norm(whole - left[:, 1], dim=1) / size).numpy()
        return apart

    errors = bench.each(work)
    return float(np.median(np.concatenate(errors))) if errors else float("nan")


@dataclass(frozen=True, slots=True)
class Between:
    """How what is left of a slot after boundary `number` lies along the layers' updates."""

    number: int
    amount: float  # median <rest, next update> / |next update|^2
    cosine: float  # median with the next update
    other: float  # largest median with any other update


def between(
    bench: Bench, ruler: int, side: int, slot: Form, held: Mapping[int, str], number: int
) -> Between | None:
    """Where the slot's difference from a boundary points: along the update of the next layer, or nowhere."""
    layers = [k for k in held if k + 1 in held]
    if number not in layers:
        return None
    keys = [held[number], *dict.fromkeys(key for k in layers for key in (held[k], held[k + 1]))]
    places = {key: i for i, key in enumerate(keys[1:], 1)}

    def work(task: int) -> tuple[Vector, Vector] | None:
        left, right = bench.rows(ruler, task, [site(key) for key in keys]), bench.rows(side, task, [slot])
        if left is None or right is None:
            return None
        rest = right[:, 0] - left[:, 0]
        updates = torch.stack([left[:, places[held[k + 1]]] - left[:, places[held[k]]] for k in layers], 1)
        dot = torch.einsum("nkh,nh->nk", updates, rest)
        size = torch.linalg.vector_norm(updates, dim=2)
        along = dot / (size * torch.linalg.vector_norm(rest, dim=1, keepdim=True))
        return along.double().numpy(), (dot / size.square()).double().numpy()

    found = bench.each(work)
    if not found:
        return None
    cosine, share = (medians(np.concatenate(parts)) for parts in zip(*found, strict=True))
    at = layers.index(number)
    other = float(np.nanmax(np.abs(np.delete(cosine, at)), initial=0.0))
    return Between(number, float(share[at]), float(cosine[at]), other)


def lies_between(found: Between) -> bool:
    """Whether the slot plainly holds a part of the next update and of no other."""
    return 0.05 < found.amount < 0.95 and found.cosine >= ALIGNED and found.cosine >= CLEARER * found.other
