"""Is the candidate the reference in another basis: rotated, or with its channels in another order?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from .arrays import HALF_STEP, Rows, float_rows, middle, row_errors, spread, unit
from .gains import Gain, GainSet, find_gain, name_gain

__all__ = [
    "Gain",
    "GainSet",
    "Permutation",
    "Rotation",
    "find_gain",
    "find_permutation",
    "find_rotation",
    "name_gain",
]

GRAM_ROWS = 256
MAP_WIDTH = 1024  # widest stream for which the map itself is computed
LEAST_ROWS = 16  # two rows always have the same centred Gram, three nearly so
# Healthy pairs reach 0.95x the derived Gram noise (SmolLM2, vLLM/SGLang/Transformers, every boundary); the
# next boundary is 7x further than the right one.
GRAM_SAFETY = 2.5
GRAM_BLIND = 0.25  # beyond this Gram noise, other boundaries would pass as well
# Independent noise of size d on H -> inf channels moves unit rows by d and their Gram by d*d: below 0.3, the
# Gram error is less than a tenth only where d < 0.1. A rotation moves rows and not their Gram.
MOVED, UNMOVED = 0.3, 10.0

LEAST_TOKENS = 8  # fewer tokens: some channel resembles any other by chance
CHANNEL_SAFETY = 4.0  # channel error over what the row noise puts on a channel, in standard deviations
MATCHED = 0.98  # share of channels that must match another one within noise
FIRST_CHANNELS, FIRST_SHARE = 256, 0.9  # a few channels first: far fewer matches rule the rest out
RIVALS = 4
CHUNK = 512


@dataclass(frozen=True, slots=True, eq=False)
class Rotation:
    """cand = ref[boundary] @ map_hh for an orthogonal map. Errors are medians over tokens."""

    found: bool
    boundary: int
    gram_error: float  # relative, of rows of the Gram matrix of unit, centred rows
    gram_noise: float  # what the row noise alone may cause, with its safety factor
    runner_up: int | None
    runner_up_error: float
    row_error: float  # of unit rows: large, or nothing is rotated
    norm_ratio: float
    norm_spread: float
    map_hh: NDArray[np.float32] | None  # None when H > 1024 or nothing is rotated
    span: int  # dimensions on which the map is known; below H it is arbitrary on the rest
    held_out: (
        float | None
    )  # row error of unit rows that the map was not fitted to; None when rows are too few

    @property
    def margin(self) -> float:
        """Runner-up's Gram error over the best one's."""
        return self.runner_up_error / max(self.gram_error, 1e-12)


def find_rotation(ref_knh: Sequence[Rows], cand_nh: Rows, noise: float | Sequence[float]) -> Rotation:
    """The boundary whose rows have the candidate's inner products, and whether the rows are those of another
    basis.

    A rotation keeps row norms, the mean row and all inner products, so rows are scaled to unit length, centred
    and scaled again: sinks and massive channels then carry no more weight than others, on either side and
    without masking a channel. `noise`: relative row error at the floor, for all boundaries or each. At least
    16 rows; the Gram test takes at most 256 of them, evenly spaced, the map (H <= 1024) all. A channel
    permutation is a rotation too: ask `find_permutation` first.
    """
    cand = float_rows(cand_nh)
    n = len(cand)
    pick = torch.linspace(0, n - 1, min(n, GRAM_ROWS)).round().long()
    floor = _per_boundary(noise, len(ref_knh))
    cand_gram, _ = _gram(cand[pick])
    errors, amplified = [], []
    for ref_nh in ref_knh:
        ref_gram, gain = _gram(float_rows(ref_nh)[pick])
        rows = (cand_gram - ref_gram).norm(dim=1) / ref_gram.norm(dim=1).clamp_min(1e-30)
        error = middle(rows)
        errors.append(error if np.isfinite(error) else np.inf)
        amplified.append(gain)
    order = np.argsort(errors, kind="stable")
    best, runner = int(order[0]), int(order[1]) if len(order) > 1 else None
    ref = float_rows(ref_knh[best])
    # An inner product of unit rows with independent noise e on both is off by sqrt(2) e at most, e grown by
    # centring.
    allowed = GRAM_SAFETY * 2**0.5 * floor[best] * amplified[best]
    moved = middle(row_errors(unit(ref), unit(cand)))
    ratio = (cand.norm(dim=1) / ref.norm(dim=1).clamp_min(1e-30)).log()
    found = n >= LEAST_ROWS and errors[best] <= allowed <= GRAM_BLIND
    # Centring hides a vector added to every row: a rotation also moves the centred rows.
    turned = middle(row_errors(_centred(ref), _centred(cand)))
    found = bool(found and min(moved, turned) >= max(MOVED, UNMOVED * errors[best]))
    map_hh, span, held_out = _procrustes(unit(ref), unit(cand)) if found else (None, 0, None)
    return Rotation(
        found=found,
        boundary=best,
        gram_error=float(errors[best]),
        gram_noise=float(allowed),
        runner_up=runner,
        runner_up_error=float(errors[runner]) if runner is not None else float("inf"),
        row_error=moved,
        norm_ratio=float(np.exp(middle(ratio))),
        norm_spread=spread(ratio),
        map_hh=map_hh,
        span=span,
        held_out=held_out,
    )


def _centred(rows_nh: Tensor) -> Tensor:
    """Unit rows less their mean."""
    rows = unit(rows_nh)
    return rows - rows.mean(0)


def _per_boundary(noise: float | Sequence[float], count: int) -> NDArray[np.float64]:
    return np.maximum(np.broadcast_to(np.asarray(noise, float), (count,)), HALF_STEP)


def _gram(rows_nh: Tensor) -> tuple[Tensor, float]:
    """Inner products of unit, centred rows, and by how much centring enlarges relative noise."""
    centred = unit(rows_nh)
    centred = centred - centred.mean(0)
    length = centred.norm(dim=1).clamp_min(1e-30)
    rows = centred / length[:, None]
    return rows @ rows.T, middle(1 / length)


def _procrustes(ref: Tensor, cand: Tensor) -> tuple[NDArray[np.float32] | None, int, float | None]:
    """Orthogonal Q with cand = ref @ Q, the dimensions it is known on, and its error on held-out rows.

    Schoenemann 1966: Q = U V' of the singular value decomposition of ref' cand.
    """
    n, width = ref.shape
    if width > MAP_WIDTH:
        return None, min(n, width), None
    held = torch.arange(n) % 5 == 4
    fit = ~held if int((~held).sum()) >= width else torch.ones(n, dtype=torch.bool)
    left, sizes, right = torch.linalg.svd(ref[fit].T @ cand[fit])
    span = int((sizes > sizes[0] * width * torch.finfo(torch.float32).eps).sum())
    q_hh = left @ right
    error = middle(row_errors(cand[held], ref[held] @ q_hh)) if not bool(fit.all()) else None
    return q_hh.numpy(), span, error


@dataclass(frozen=True, slots=True, eq=False)
class Permutation:
    """cand[:, j] = ref[:, channels[j]]. Errors are medians over tokens of relative row errors."""

    channels: NDArray[np.int64]  # [H]
    matched: float  # share of channels equal within noise to the one they are assigned
    moved: int  # channels that are certainly another one than their own
    alike: int  # channels that several reference channels match: their order is not known
    error_before: float
    error_after: float

    @property
    def undo(self) -> NDArray[np.int64]:
        """cand[:, undo] is in the reference's order."""
        return np.argsort(self.channels)

    def pattern(self) -> str:
        """The order in words where it has a simple one: a roll, blocks, or an interleaving."""
        return _pattern(self.channels)


def find_permutation(ref_nh: Rows, cand_nh: Rows, noise: float) -> Permutation | None:
    """The order of the candidate's channels, when it is the reference with its channels moved.

    None when the channels are in place, when too few match another one within noise, or for under 8 tokens.
    Each channel is a vector over tokens of rows scaled to unit length (a permutation keeps row norms, so sinks
    weigh no more than others). Nothing of size [H, H] is kept.
    """
    ref_raw, cand_raw = float_rows(ref_nh), float_rows(cand_nh)
    noise = max(noise, HALF_STEP)
    n, width = ref_raw.shape
    before = middle(row_errors(ref_raw, cand_raw))
    if n < LEAST_TOKENS or not before > 3 * noise or not torch.isfinite(cand_raw).all():
        return None
    ref, cand = unit(ref_raw).T.contiguous(), unit(cand_raw).T.contiguous()  # [H, n]
    # The row noise spread over channels: a part that all share, a part in proportion to the channel.
    allowed = CHANNEL_SAFETY * noise * (n / width + ref.pow(2).sum(1)).sqrt()
    some = torch.linspace(0, width - 1, min(width, FIRST_CHANNELS)).long()
    near = _nearest(ref, cand[some])
    if float((_apart(cand[some], ref, near) <= allowed[near]).any(1).float().mean()) < FIRST_SHARE:
        return None
    near = _nearest(ref, cand)
    distance = _apart(cand, ref, near)
    fits = distance <= allowed[near]
    channels = _assign(near.numpy(), distance.numpy(), fits.numpy())
    to = torch.from_numpy(channels)
    own = (cand - ref).norm(dim=1)
    final = (cand - ref[to]).norm(dim=1)
    good = final <= allowed[to]
    moved = int((good & (own > 2 * allowed[to]) & (own > 4 * final)).sum())
    after = middle(row_errors(ref_raw[:, to], cand_raw))
    matched = float(good.float().mean())
    if moved < 2 or matched < MATCHED or after > 3 * noise or before < 3 * after:
        return None
    alike = int((fits.sum(1) > 1).sum())
    return Permutation(channels, matched, moved, alike, before, after)


def _apart(cand: Tensor, ref: Tensor, near: Tensor) -> Tensor:
    """The distance of each candidate channel from each of its nearest, [H, R]."""
    return torch.stack([(cand - ref[one]).norm(dim=1) for one in near.T], 1)


def _nearest(ref: Tensor, cand: Tensor) -> Tensor:
    """The few reference channels nearest to each candidate channel, int64 [H, 1 + RIVALS]; its own comes
    last."""
    square = ref.pow(2).sum(1)
    found = []
    for start in range(0, len(cand), CHUNK):
        # Only a shortlist: the distances themselves are taken from differences.
        score = square - 2 * cand[start : start + CHUNK] @ ref.T
        found.append(score.topk(min(RIVALS, len(ref)), largest=False).indices)
    return torch.cat([torch.cat(found), torch.arange(len(cand))[:, None]], 1)


def _assign(
    near: NDArray[np.int64], distance: NDArray[np.float32], fits: NDArray[np.bool_]
) -> NDArray[np.int64]:
    """One reference channel for each candidate channel, none twice.

    A channel that fits its own place stays; the rest are matched from the closest pair on. What is left over
    (channels alike, or matching nothing) takes the free places in ascending order.
    """
    width = len(near)
    channels = np.full(width, -1)
    free = np.ones(width, bool)
    staying = np.flatnonzero(fits[:, -1] & (distance[:, -1] <= distance[:, :-1].min(1) * 1.0001))
    channels[staying], free[staying] = staying, False
    for flat in np.argsort(distance, axis=None, kind="stable"):
        row, column = divmod(int(flat), near.shape[1])
        if channels[row] < 0 and free[near[row, column]]:
            channels[row] = near[row, column]
            free[channels[row]] = False
    left = np.flatnonzero(channels < 0)
    home = left[free[left]]
    channels[home], free[home] = home, False
    channels[channels < 0] = np.flatnonzero(free)
    return channels


def _pattern(channels: NDArray[np.int64]) -> str:
    width = len(channels)
    steps = np.diff(channels) % width
    if (steps == 1).all():
        return f"rolled by {channels[0]}"
    for parts in range(2, min(width // 2, 16) + 1):
        if width % parts == 0:
            woven = np.arange(width).reshape(parts, -1).T.ravel()
            if (channels == woven).all():
                return f"{parts} slices interleaved"
            if (channels == np.argsort(woven)).all():
                return f"every {parts}th channel together"
    blocks = [len(list(g)) for one, g in groupby(steps == 1) if one]
    if blocks and len(blocks) <= 64 and sum(blocks) + len(blocks) >= 0.9 * width:
        return f"{len(blocks)} blocks in another order"
    return "no simple order"
