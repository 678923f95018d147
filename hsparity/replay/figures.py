"""One layer of one side, run and measured per token.

Errors are relative to the norm of what the part adds to the stream, |replayed output - captured input| for a whole
layer: 0.03 reads "the layer's own work is off by 3 %". Relative to the state, a residual that is hundreds of times
larger than its update would shrink every layer's error to nothing. What such a residual costs in turn, the rounding
of the stored sum, is part of the floor: the floor run's output is rounded the same way, and its error is never taken
below half a unit in the last place of the stored state. A few massive channels carry most of that rounding, so every
figure is made again without them (`rest`): neither can hide the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray

from hsparity.replay.inputs import Side, Whole
from hsparity.replay.layer import Layer, Outputs
from hsparity.replay.routing import Margins, Router, differ, margins

PARTS = ("layer", "attention", "mlp", "router")
SITES = {"attention": "attn_out", "mlp": "mlp_out", "router": "router_logits"}
MASSIVE_SHARE, MASSIVE_ROWS = 0.01, 256
EXPERTS = "experts"
NOT_FINITE = 1e6
FEW, MOST, HARDLY_ANY = 8, 0.5, 0.05

Vector = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Figures:
    """One part of one layer over N tokens, [N] each; NaN where a token is left out."""

    part: str
    error: Vector
    yard: Vector  # the same in the capture's dtype
    rest: Vector  # without the massive channels
    yard_rest: Vector
    gain: Vector  # <captured, replayed> / |replayed|^2, of updates
    first: NDArray[np.bool_]  # which tokens are at position 0
    differ: int = -1  # tokens whose captured experts are not the replay's
    wide: int = -1
    units: Vector | None = None  # margins of the differing tokens
    left_out: int = 0
    experts: NDArray[np.int64] | None = None  # that the replay chose, [N, k]


@dataclass(frozen=True, slots=True, eq=False)
class Work:
    """One layer of one side with one checkpoint's weights, on its way."""

    side: Side
    index: int
    kind: str
    free: list[Outputs]  # float32, per prompt: the layer from its captured input
    fed: list[Outputs]  # float32: with the captured attention output put in; empty when it is not captured

    def key(self, part: str) -> str:
        return f"boundary.{self.index + 1:03d}" if part == "layer" else f"{SITES[part]}.{self.index:03d}"


def run(layer: Layer, side: Side) -> Work:
    """The layer over every prompt of a side, on its captured input."""
    attention = f"attn_out.{layer.index:03d}"
    behind = any(side.has(f"{site}.{layer.index:03d}") for site in ("mlp_out", "router_logits", "experts"))
    free: list[Outputs] = []
    fed: list[Outputs] = []
    for prompt in side.prompts:
        input_nh = side.feed(prompt, f"boundary.{layer.index:03d}")
        free.append(layer.run(input_nh))
        if behind and side.has(attention):
            fed.append(layer.run(input_nh, side.feed(prompt, attention)))
    return Work(side, layer.index, layer.kind, free, fed)


def measure(exact: Work, floor: Work, router: Router | None) -> list[Figures]:
    """The figures of every part that the capture holds. `exact` ran in float32, `floor` in the capture's dtype."""
    side = exact.side
    made: list[Figures] = []
    for part in PARTS:
        behind = part in ("mlp", "router")
        if part == "router":
            if exact.kind != "moe" or not (side.has(exact.key("router")) or side.has(_experts_key(exact))):
                continue
        elif not side.has(exact.key(part)):
            continue
        if behind and side.has(f"attn_out.{exact.index:03d}"):
            runs, floors = exact.fed, floor.fed
        else:
            runs, floors = exact.free, floor.free
        found = _part(exact, part, runs, floors)
        if found is None:
            continue
        if exact.kind == "moe" and part != "attention":
            found = _routed(found, exact, runs, floors, router)
        made.append(found)
    return made


def _part(work: Work, part: str, runs: Sequence[Outputs], floors: Sequence[Outputs]) -> Figures | None:
    side, columns = work.side, []
    key = work.key(part)
    if not side.has(key):  # of a router, the choice alone was captured
        total = sum(side.lengths)
        nothing = np.full(total, np.nan)
        return Figures(part, nothing, nothing, nothing, nothing, nothing, _first(side.lengths))
    usual_h = _usual(side, key)
    limit = side.resolution(key)
    for prompt, one, other in zip(side.prompts, runs, floors, strict=True):
        replayed, floored = _tensor(one, part), _tensor(other, part)
        if replayed is None or floored is None:
            return None
        captured_nh = side.read(prompt, key).float()
        if captured_nh.shape != replayed.shape:
            return None
        base_nh = _base(work, prompt, part, replayed)
        columns.append(_tokens(captured_nh, replayed, floored, base_nh, limit, usual_h))
    error, yard, rest, yard_rest, gain = (np.concatenate(c) for c in zip(*columns, strict=True))
    return Figures(part, error, yard, rest, yard_rest, gain, _first(side.lengths))


def _tensor(outputs: Outputs, part: str) -> torch.Tensor | None:
    return {
        "layer": outputs.output_nh,
        "attention": outputs.attention_nh,
        "mlp": outputs.mlp_nh,
        "router": outputs.logits_ne,
    }[part]


def _base(work: Work, prompt: Whole, part: str, like: torch.Tensor) -> torch.Tensor:
    """What the part's output is an addition to."""
    if part != "layer":
        return torch.zeros_like(like)
    return work.side.read(prompt, f"boundary.{work.index:03d}").float()


def _tokens(
    captured_nh: torch.Tensor,
    replayed_nh: torch.Tensor,
    floored_nh: torch.Tensor,
    base_nh: torch.Tensor,
    limit: float,
    usual_h: torch.Tensor,
) -> tuple[Vector, ...]:
    """Error and floor per token, the same over the usual channels, and the gain."""
    update_nh = replayed_nh - base_nh
    found: list[Vector] = []
    for channels in (slice(None), usual_h):
        scale_n = _norm(update_nh[:, channels])
        error_n = _norm((captured_nh - replayed_nh)[:, channels]) / scale_n
        smallest_n = limit * _norm(replayed_nh[:, channels]) / scale_n
        yard_n = torch.maximum(_norm((floored_nh - replayed_nh)[:, channels]) / scale_n, smallest_n)
        # A captured NaN or Inf is as wrong as can be; a part that adds nothing is not measured.
        error_n[~captured_nh.isfinite().all(dim=1)] = NOT_FINITE
        error_n[scale_n == 0], yard_n[scale_n == 0] = torch.nan, torch.nan
        found += [error_n.numpy(), yard_n.numpy()]
    along_n = ((captured_nh - replayed_nh).double() * update_nh.double()).sum(1)
    return (*found, 1.0 + (along_n / update_nh.double().pow(2).sum(1)).numpy())


def _norm(tensor_nh: torch.Tensor) -> torch.Tensor:
    return tensor_nh.double().norm(dim=1)


def _usual(side: Side, key: str) -> torch.Tensor:
    """Which channels of a site are not among its top 1 % by RMS, bool [H]."""
    rows: list[torch.Tensor] = []
    left = MASSIVE_ROWS
    for prompt in side.prompts:
        if left > 0:
            rows.append(side.read(prompt, key)[:left].float())
            left -= len(rows[-1])
    rms_h = torch.cat(rows).pow(2).mean(0)
    massive = rms_h.topk(max(1, int(MASSIVE_SHARE * len(rms_h)))).indices
    usual_h = torch.ones(len(rms_h), dtype=torch.bool)
    usual_h[massive] = False
    return usual_h


def _first(lengths: Sequence[int]) -> NDArray[np.bool_]:
    marks = np.zeros(sum(lengths), bool)
    marks[np.cumsum([0, *lengths[:-1]])] = True
    return marks


def _experts_key(work: Work) -> str:
    return f"{EXPERTS}.{work.index:03d}"


def without_gain(found: Figures) -> Vector:
    """The error that is left when every captured update is divided by the median gain, [N].

    With d = captured - replayed, relative to the update: |d - b u|^2 = |d|^2 - 2 b <d, u> + b^2 where b is the common
    gain less one. All three terms are of the size of the error itself.
    """
    known = np.isfinite(found.gain)
    if not known.any():
        return np.full_like(found.error, np.nan)
    common = float(np.median(found.gain[known])) - 1.0
    left = found.error**2 - 2 * common * (found.gain - 1.0) + common**2
    result: Vector = np.sqrt(np.clip(left, 0.0, None)) / max(abs(1.0 + common), 1e-6)
    return result


def _routed(
    found: Figures, work: Work, runs: Sequence[Outputs], floors: Sequence[Outputs], router: Router | None
) -> Figures:
    """The figures with the tokens left out whose choice of experts rounding alone may turn: the ones whose captured
    choice did turn where it is captured, else all of them. A choice that rounding does not explain stays in."""
    side = work.side
    exact_nk, floor_nk = _joined(o.experts_nk for o in runs), _joined(o.experts_nk for o in floors)
    exact_ne, floor_ne = _joined(o.logits_ne for o in runs), _joined(o.logits_ne for o in floors)
    if exact_nk is None or floor_nk is None:
        return found
    found = replace(found, experts=exact_nk.numpy())
    found_margins: Margins | None = None
    if router is not None and exact_ne is not None and floor_ne is not None:
        found_margins = margins(router, exact_ne, floor_ne, exact_nk, side.dtype)
    natural_n = (
        torch.ones(len(exact_nk), dtype=torch.bool) if found_margins is None else found_margins.fragile_n
    )
    floor_turned_n = differ(exact_nk, floor_nk)
    if side.has(_experts_key(work)):
        captured_nk = torch.cat([side.read(p, _experts_key(work)).long() for p in side.prompts])
        turned_n = differ(exact_nk, captured_nk)
        # Which experts ran is the router's affair, and the whole layer's; the MLP is judged where they are the same.
        out_n = turned_n if found.part == "mlp" else turned_n & natural_n
        floor_out_n = floor_turned_n
        wide = -1 if found_margins is None else int((turned_n & ~natural_n).sum())
        units = None if found_margins is None else found_margins.units_n[turned_n].double().numpy()
        found = replace(found, differ=int(turned_n.sum()), wide=wide, units=units)
    elif found_margins is None:
        return found
    else:
        out_n, floor_out_n = natural_n, natural_n | floor_turned_n
    if found.part == "router":  # its logits are the same whichever experts they choose
        return found
    return _without(found, out_n.numpy(), floor_out_n.numpy())


def _without(found: Figures, out: NDArray[np.bool_], floor_out: NDArray[np.bool_]) -> Figures:
    def cut(values: Vector, marks: NDArray[np.bool_]) -> Vector:
        return np.where(marks, np.nan, values)

    return replace(
        found,
        error=cut(found.error, out),
        rest=cut(found.rest, out),
        gain=cut(found.gain, out),
        yard=cut(found.yard, floor_out),
        yard_rest=cut(found.yard_rest, floor_out),
        left_out=int(out.sum()),
    )


def odd_expert(found: Figures, limit: float) -> int:
    """The one expert whose tokens are beyond `limit` times the floor's 95th percentile while the others' are not; -1
    when there is none. Needs FEW tokens with it and without it."""
    yard = found.yard[np.isfinite(found.yard)]
    if found.experts is None or not len(yard):
        return -1
    known = np.isfinite(found.error)
    beyond = found.error > limit * np.quantile(yard, 0.95)
    shares: dict[int, tuple[float, float]] = {}
    for expert in np.unique(found.experts):
        with_it = (found.experts == expert).any(axis=1) & known
        without = ~(found.experts == expert).any(axis=1) & known
        if min(with_it.sum(), without.sum()) >= FEW:
            shares[int(expert)] = float(beyond[with_it].mean()), float(beyond[without].mean())
    odd = [e for e, (with_it, without) in shares.items() if with_it >= MOST and without <= HARDLY_ANY]
    return odd[0] if len(odd) == 1 else -1


def _joined(parts: object) -> torch.Tensor | None:
    tensors = list(parts)  # type: ignore[call-overload]
    return None if not tensors or any(t is None for t in tensors) else torch.cat(tensors)
