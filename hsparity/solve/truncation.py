"""Were the candidate's values cut towards zero instead of rounded to the nearest?"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from .arrays import Rows, middle, row_errors, spread

MANTISSA = {torch.bfloat16: 7, torch.float16: 10}
BLOCKS = 16  # of the jackknife, over tokens and over channels
# Healthy pairs (SmolLM2, vLLM, SGLang and Transformers to each other and to fp32, boundaries 1 to 30): |step| of
# one boundary up to 0.13 at 730 tokens and 0.24 at 120, |z| up to 2.6; of all together 0.04 and 3.8 (a tiny model,
# 44 tokens: 0.18 and 3.0). Cut once: -0.5. Cut after every addition: -0.49 at boundary 1, -3.5 at 30.
LEAST_STEP = 0.3
LEAST_Z = 6.0
# A cut never comes with a growth; healthy pairs reach 0.0028. Rows rounded to a coarse lattice (fp8), or rounded
# twice after a gain, also have errors that follow the mantissa: their fit has a large positive gain.
MOST_GAIN = 0.004
LEAST_GAIN = -0.02  # a larger shrink is a gain of its own, whose rounding follows the mantissa too
CUT_NEAR = 0.05  # relative row error of rows that differ by a cut and noise
LEAST_ROWS = 2 * BLOCKS
CLIP = 20.0  # units in the last place: beyond that an element differs for another reason
NEAR = 0.25  # relative row error beyond which the rows are not the same tensor
# Log norm that a layer loses where its two additions are cut: 0.0027 each, less what new updates bring. A norm with a
# larger epsilon makes updates smaller at every layer, and may lose more than cutting can.
LOSS_A_LAYER = (0.0008, 0.006)
MOSTLY = 0.6  # of the row's error is the loss of norm
GROWN = 1.5
HEALTHY_LOSS = 0.0025  # of log norm: the most that healthy pairs lose or gain at any depth is 0.0022
LEAST_LOSS = 0.01
BIT_SHARE = 0.9


@dataclass(frozen=True, slots=True)
class Cut:
    """One boundary. `step`: what the stored step takes off |value|, in units in the last place (ulp): 0 when
    rounded, -0.5 when cut towards zero, +0.5 when the reference is the one that is cut."""

    step: float
    error: float  # standard error of `step`
    gain: float  # smooth relative difference of |value| beside it, which healthy engines have too
    projection: float  # median over tokens of <c, r> / <r, r> - 1: about -0.0027 for bf16 cut once
    log_norm: float  # median over tokens of log |c| / |r|
    log_norm_error: float
    row_error: float
    cut_share: float | None  # of elements where both differ: equal to cut(truth); None without a truth
    round_share: float | None  # equal to round(truth)

    @property
    def z(self) -> float:
        """`step` in standard errors."""
        return self.step / max(self.error, 1e-6)

    @property
    def proved(self) -> bool:
        """Whether the candidate is cut: by its bits, or by a step of at least 0.3 ulp at 6 standard
        errors."""
        if self.cut_share is not None and self.round_share is not None and self.cut_share > BIT_SHARE:
            return True
        fits = self.row_error <= CUT_NEAR and LEAST_GAIN <= self.gain <= MOST_GAIN
        return fits and self.step <= -LEAST_STEP and self.z <= -LEAST_Z


@dataclass(frozen=True, slots=True)
class Truncation:
    """All boundaries of a pair."""

    cuts: tuple[Cut, ...]
    slope: float  # of the median log norm ratio, per boundary
    slope_error: float
    loss: float  # log norm ratio at the last boundary
    step: float  # of all boundaries together, weighted by their errors
    error: float
    proved: tuple[int, ...]  # places in `cuts` that show it on their own
    depths: tuple[int, ...] = ()  # boundary of each of `cuts`

    @property
    def z(self) -> float:
        """`step` in standard errors: healthy pairs stay within 4."""
        return self.step / max(self.error, 1e-6)

    @property
    def found(self) -> bool:
        """Whether the boundaries together show a cut, and those near enough to tell do not contradict it."""
        near = [cut.row_error <= NEAR and cut.gain <= MOST_GAIN for cut in self.cuts]
        # Beside a larger difference a step says less: only one that cutting every addition makes is believed.
        plain = [cut.row_error <= CUT_NEAR and cut.gain >= LEAST_GAIN for cut in self.cuts]
        shown = all(near) and self.step <= -LEAST_STEP and self.z <= -LEAST_Z
        return shown and (all(plain) or self.compounding)

    @property
    def compounding(self) -> bool:
        """Whether norms shrink as cutting every addition makes them: from the first boundary on, at its rate,
        growing with depth until large new updates dilute it, and as most of the difference. Further layers
        blur the step that a single cut leaves, but not this."""
        losses = [cut.log_norm for cut in self.cuts]
        most = min(range(len(losses)), key=losses.__getitem__)
        if most == 0 or losses[most] > -LEAST_LOSS or max(losses) > -HEALTHY_LOSS:
            return False
        rate = -losses[0] / max(self.depths[0], 1)
        falling = all(later < earlier for earlier, later in pairwise(losses[: most + 1]))
        mostly = -losses[most] >= MOSTLY * self.cuts[most].row_error
        grown = losses[most] <= GROWN * losses[0]
        return falling and mostly and grown and LOSS_A_LAYER[0] <= rate <= LOSS_A_LAYER[1]


def truncation(
    ref_knh: Sequence[Rows],
    cand_knh: Sequence[Rows],
    *,
    truth: bool = False,
    mantissa: int | None = None,
    depths: Sequence[int] | None = None,
) -> Truncation:
    """Whether the candidate's rows are cut towards zero, boundary by boundary, and whether that compounds.

    `truth`: the reference is a float32 capture, so single bits can be checked too. `mantissa`: explicit bits
    of the candidate's stored dtype, 7 for bf16 (the default for float32 tensors too) and 10 for fp16. Ask
    `stored_format` first: rounding to fp8 also follows the mantissa, and one slot of it can look cut.
    `depths`: boundary of each entry. Leave out boundary 0, whose rows are a lookup and exact on both sides.
    """
    cuts, logs, replicates = [], [], []
    for ref_nh, cand_nh in zip(ref_knh, cand_knh, strict=True):
        ref, cand = torch.as_tensor(ref_nh), torch.as_tensor(cand_nh)
        bits = mantissa or MANTISSA.get(cand.dtype, 7)
        cut, left_out = rounding_step(ref.float(), cand.float(), bits, truth=truth)
        cuts.append(cut)
        replicates.append(left_out)
        logs.append(_log_norm(ref.float(), cand.float()))
    slope, error = _slope(torch.stack(logs), depths or range(len(logs)))
    proved = tuple(i for i, cut in enumerate(cuts) if cut.proved)
    weight = torch.tensor([max(cut.error, 1e-6) ** -2 for cut in cuts], dtype=torch.float64)
    weight = weight / weight.sum()
    step = float(weight @ torch.tensor([cut.step for cut in cuts], dtype=torch.float64))
    together = max(_deviation(weight @ torch.stack([one[dim] for one in replicates])) for dim in (0, 1))
    together = max(together, 1.0) if min(map(len, logs)) < LEAST_ROWS else together
    numbers = tuple(depths or range(len(logs)))
    return Truncation(tuple(cuts), slope, error, cuts[-1].log_norm, step, together, proved, numbers)


def rounding_step(
    ref: Tensor, cand: Tensor, mantissa: int = 7, *, truth: bool = False
) -> tuple[Cut, tuple[Tensor, Tensor]]:
    """The part of |c| - |r| that follows the size of a unit in the last place, float32 [n, H] on both sides.

    Healthy pairs differ in norm too (by up to 0.2% and 19 standard errors), so a mean says nothing. But a real
    difference is smooth in |value|, whereas a unit in the last place doubles at every power of two: with
    x = |v| / ulp, (|c| - |r|) / ulp is fitted as step + gain x. Values are taken from (r + c) / 2, so that
    exchanging the sides only changes the sign. The upper half of each row by size is used. The standard error
    is the larger of two jackknives, over blocks of tokens and sets of channels; the steps with each left out
    come back too.
    """
    mid = (ref + cand) / 2
    ulp_nh = ulp(mid, mantissa)
    size = mid.abs()
    use = (size > size.median(dim=1, keepdim=True).values) & torch.isfinite(mid)
    x = torch.where(use, size / ulp_nh / 2**mantissa, 0.0)
    y = torch.where(use, (cand - ref) * mid.sign() / ulp_nh, 0.0).clamp(-CLIP, CLIP)
    moments = [use.float(), x, y, x * x, x * y]
    step, gain = _line([m.sum(dtype=torch.float64) for m in moments])
    left_out = (_left_out(moments, 0), _left_out(moments, 1))
    error = max(map(_deviation, left_out))
    if len(ref) < LEAST_ROWS:
        error = max(error, 1.0)  # too few blocks to estimate it
    log = _log_norm(ref, cand)
    shares = _bits(ref, cand, mantissa) if truth else (None, None)
    projection = (cand * ref).sum(1) / ref.pow(2).sum(1).clamp_min(1e-30) - 1
    cut = Cut(
        step=float(step),
        error=error,
        gain=float(gain) / 2**mantissa,
        projection=middle(projection),
        log_norm=middle(log),
        log_norm_error=1.2533 * spread(log) / math.sqrt(max(len(log), 1)),
        row_error=middle(row_errors(ref, cand)),
        cut_share=shares[0],
        round_share=shares[1],
    )
    return cut, left_out


def ulp(values: Tensor, mantissa: int) -> Tensor:
    """The unit in the last place of each float32 value in a format with that many explicit mantissa bits."""
    _, exponent = torch.frexp(values.abs().clamp_min(1e-30))
    return torch.ldexp(torch.ones_like(values), exponent - 1 - mantissa)


def cut_bits(values: Tensor, mantissa: int) -> Tensor:
    """float32 values cut towards zero to that many explicit mantissa bits."""
    mask = -(1 << (23 - mantissa))
    return (values.contiguous().view(torch.int32) & mask).view(torch.float32)


def _line(sums: list[Tensor]) -> tuple[Tensor, Tensor]:
    count, sx, sy, sxx, sxy = sums
    det = (count * sxx - sx * sx).clamp_min(1e-12)
    return (sy * sxx - sx * sxy) / det, (count * sxy - sx * sy) / det


def _left_out(moments: list[Tensor], dim: int) -> Tensor:
    """The step when one of 16 blocks of tokens (dim 0) or sets of channels (dim 1) is left out, float64."""
    lines = [m.sum(1 - dim, dtype=torch.float64) for m in moments]
    place = torch.arange(len(lines[0]))
    # Neighbouring tokens err alike, so they go together.
    block = place * BLOCKS // max(len(place), 1) if dim == 0 else place % BLOCKS
    parts = [torch.zeros(BLOCKS, dtype=torch.float64).index_add_(0, block, line) for line in lines]
    return _line([part.sum() - part for part in parts])[0]


def _deviation(steps: Tensor) -> float:
    """The jackknife's standard error (Efron 1982) from the estimates with one part left out."""
    return math.sqrt((len(steps) - 1) / len(steps) * float((steps - steps.mean()).pow(2).sum()))


def _bits(truth: Tensor, cand: Tensor, mantissa: int) -> tuple[float | None, float | None]:
    """Shares of elements equal to the cut and to the rounded truth, where the two differ."""
    cut = cut_bits(truth, mantissa)
    # Half a step up, then cut: to the nearest, ties aside.
    rounded = cut_bits(truth + truth.sign() * ulp(truth, mantissa) / 2, mantissa)
    telling = (cut != rounded) & torch.isfinite(cand)
    if int(telling.sum()) < 100:
        return None, None
    return (cand == cut)[telling].float().mean().item(), (cand == rounded)[telling].float().mean().item()


def _log_norm(ref: Tensor, cand: Tensor) -> Tensor:
    return (cand.norm(dim=1) / ref.norm(dim=1).clamp_min(1e-30)).clamp_min(1e-30).log()


def _slope(log_kn: Tensor, depths: Sequence[int]) -> tuple[float, float]:
    """Median over tokens of each one's slope with depth, and its standard error."""
    if len(log_kn) < 3:
        return 0.0, float("inf")
    depth = torch.tensor(list(depths), dtype=torch.float32)
    depth = depth - depth.mean()
    slopes = (depth[:, None] * log_kn).sum(0) / depth.pow(2).sum()
    return middle(slopes), 1.2533 * spread(slopes) / math.sqrt(max(slopes.numel(), 1))
