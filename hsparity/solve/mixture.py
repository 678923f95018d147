"""Is a slot a fixed linear mix of two or three boundaries?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
import torch
from numpy.typing import NDArray

from .arrays import HALF_STEP, Rows, float_rows, middle

LEAST_ROWS = 8
SHORTLIST = 12
# Residual over the noise that the coefficients let through. The mix must reach it, one boundary must not.
SAFETY = 2.0
BETTER = 3.0  # residual of the best single boundary over the mix's
AMPLIFIED = 3.0  # largest sum of |coefficients|: a difference of near-equal states fits anything
LEAST_PART = 3.0  # a part below this many times the allowed residual is not evidence of a part
STEADY = 0.15  # spread over tokens of the coefficients, relative to the smaller part


@dataclass(frozen=True, slots=True)
class Mixture:
    """cand = sum of coefficients[i] * ref[boundaries[i]]. Errors are medians over tokens not fitted to."""

    boundaries: tuple[int, ...]  # ascending
    coefficients: tuple[float, ...]
    residual: float  # relative to the candidate's row
    single: int  # best single boundary, times any one constant
    single_residual: float
    runner_up: tuple[int, ...]  # the next best set of as many boundaries
    runner_up_residual: float
    found: bool

    @property
    def margin(self) -> float:
        """Residual of the runner-up over that of the mix."""
        return self.runner_up_residual / max(self.residual, 1e-12)


def find_mixture(
    ref_knh: Sequence[Rows], cand_nh: Rows, noise: float | Sequence[float], parts: int = 3
) -> Mixture | None:
    """The two (or three) boundaries of which the candidate is a mix, with coefficients fixed over tokens.

    Fitted by least squares on every other token, each weighted by its own norm, from sums of inner products;
    the shortlist is then judged by its exact residual on the remaining tokens. `found` only when the mix is at
    the floor, no single boundary with any gain is, and each part is far above the floor. None for fewer than 8
    tokens or one boundary. `noise`: relative row error at the floor, for all boundaries or each.
    """
    cand = float_rows(cand_nh)
    scale = cand.norm(dim=1).clamp_min(1e-30)
    kept = torch.isfinite(scale)
    n = int(kept.sum())
    if n < LEAST_ROWS or len(ref_knh) < 2:
        return None
    scale, cand = scale[kept, None], cand[kept] / scale[kept, None]
    ref = torch.stack([float_rows(r)[kept] / scale for r in ref_knh])
    floor = np.maximum(np.broadcast_to(np.asarray(noise, float), (len(ref),)), HALF_STEP)
    fit = torch.arange(n) % 2 == 0
    gram, cross = _sums(ref[:, fit], cand[fit])
    tested, target = ref[:, ~fit], cand[~fit]
    size = tested.norm(dim=2).median(dim=1).values.numpy()

    def judged(group: tuple[int, ...]) -> tuple[float, tuple[int, ...], NDArray[np.floating]]:
        chosen = list(group)
        weights = np.linalg.lstsq(gram[np.ix_(chosen, chosen)], cross[chosen], rcond=None)[0]
        mixed = torch.einsum("k,knh->nh", torch.from_numpy(weights).float(), tested[chosen])
        return middle((target - mixed).norm(dim=1)), group, weights

    single = min((judged(g) for g in _best(gram, cross, 1)), key=lambda j: j[0])
    answer = None
    at_floor = single[0] <= SAFETY * 2**0.5 * float(floor[single[1][0]])
    for count in range(2, 2 if at_floor else min(parts, len(ref)) + 1):
        ranked = sorted((judged(g) for g in _best(gram, cross, count)), key=lambda j: j[0])
        residual, group, weights = ranked[0]
        rival = ranked[1] if len(ranked) > 1 else (float("inf"), (), weights)
        # Noise of the boundaries is carried along with their coefficients; the candidate has its own.
        own = float(np.max(floor[list(group)]))
        part = np.abs(weights) * size[list(group)]
        allowed = SAFETY * float(np.hypot(own, np.sqrt(((part * floor[list(group)]) ** 2).sum())))
        found = (
            residual <= allowed
            and single[0] > max(BETTER * residual, allowed)
            and part.sum() <= AMPLIFIED
            and part.min() >= LEAST_PART * allowed
            and _steady(ref[list(group)], cand, weights)
        )
        numbers = tuple(float(w) for w in weights)
        mix = Mixture(group, numbers, residual, single[1][0], single[0], rival[1], rival[0], bool(found))
        answer = answer if answer is not None and not found else mix
        if found:
            return mix
    none = Mixture(
        single[1], (float(single[2][0]),), single[0], single[1][0], single[0], (), float("inf"), False
    )
    return answer or none


def _sums(ref_knh: torch.Tensor, cand_nh: torch.Tensor) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Inner products summed over tokens: [K, K] of the boundaries, [K] with the candidate."""
    gram = torch.zeros(len(ref_knh), len(ref_knh), dtype=torch.float64)
    for start in range(0, ref_knh.shape[1], 16):
        block = ref_knh[:, start : start + 16].flatten(1)
        gram += (block @ block.T).double()
    cross = torch.einsum("knh,nh->k", ref_knh, cand_nh).double()
    return gram.numpy(), cross.numpy()


def _best(gram: NDArray[np.float64], cross: NDArray[np.float64], count: int) -> list[tuple[int, ...]]:
    """The sets of `count` boundaries that explain most, by the squared length of their projection."""
    groups = np.array(list(combinations(range(len(gram)), count)))
    sub = gram[groups[:, :, None], groups[:, None, :]]
    # Enough to keep near-equal boundaries solvable; far below any residual that matters.
    sub = sub + np.eye(count) * 1e-7 * np.trace(gram) / len(gram)
    side = cross[groups]
    weights = np.linalg.solve(sub, side[..., None])[..., 0]
    order = np.argsort(-(weights * side).sum(1), kind="stable")[:SHORTLIST]
    return [tuple(int(i) for i in groups[o]) for o in order]


def _steady(ref_gnh: torch.Tensor, cand_nh: torch.Tensor, weights: NDArray[np.floating]) -> bool:
    """Whether each token alone asks for the same coefficients."""
    gram = torch.einsum("gnh,fnh->ngf", ref_gnh, ref_gnh).double()
    side = torch.einsum("gnh,nh->ng", ref_gnh, cand_nh).double()
    eye = torch.eye(len(ref_gnh), dtype=torch.float64)
    ridge = 1e-6 * gram.diagonal(dim1=1, dim2=2).mean(1)[:, None, None] * eye
    each = torch.linalg.solve(gram + ridge, side[..., None])[..., 0]
    off = (each - torch.from_numpy(weights)).abs().median(dim=0).values
    return bool(off.max() <= STEADY * max(abs(weights).min(), 0.1))
