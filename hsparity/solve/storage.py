"""Were states kept in a narrower format than the file says: fp8, int8 or fp16?"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from .arrays import Rows
from .truncation import MANTISSA, Truncation, truncation, ulp

__all__ = ["Fp16Limits", "Stored", "Truncation", "fp16_limits", "stored_format", "truncation"]

# Format -> explicit mantissa bits, exponent of the largest value, largest value, exponent of the smallest step.
FP8 = {"e4m3fn": (3, 8, 448.0, -9), "e4m3fnuz": (3, 7, 240.0, -10), "e5m2": (2, 15, 57344.0, -16)}
INT8 = (127.0, 128.0, 127.5)
CERTAIN = -12.0  # log10 of the chance that a healthy row passes
SHARE = 0.9  # of the rows that have enough distinct values to tell
LEAST_LEVELS = 16  # distinct magnitudes in a row; fewer say nothing about the format
FREEDOM = 6.0  # log10 of the scales, formats and codes of the largest value that a row is tried with
FP16_MAX = 65504.0
FP16_NORMAL = 2.0**-14
FP16_SUBNORMAL = 2.0**-24


@dataclass(frozen=True, slots=True)
class Stored:
    """A format that every value of the rows lies on, after one scale per row."""

    kind: str  # "e4m3fn" | "e4m3fnuz" | "e5m2" | "int8" | "fp16"
    scale: str  # "1" | "power of two" | "per tensor" | "per token" | "none"
    share: float  # of the rows that can tell
    rows: int  # that can tell
    levels: int  # distinct magnitudes in a row, median
    log10_chance: float  # of one healthy row passing, median
    scale_value: float  # median over rows


def stored_format(rows_nh: Rows) -> Stored | None:
    """The narrow format behind stored rows [n, H] of bf16, fp16 or float32; None for healthy ones.

    A row passes when one scale s makes every value round(s q) in the stored dtype, for lattice values q: the
    intervals of s that the values allow must have a point in common. The chance that a healthy row passes is
    the product, over its distinct magnitudes, of how densely the scaled lattice covers stored values there,
    times the scales tried; it must be under 1e-12 for each row. Zeros, repeats and rows with under 16 distinct
    magnitudes are no evidence. Boundary 0 of a checkpoint whose embedding is itself fp8 passes rightly.
    """
    rows = torch.as_tensor(rows_nh)
    mantissa = MANTISSA.get(rows.dtype, 23)
    if mantissa == 23 and _fits(rows, torch.bfloat16):
        mantissa = 7
    elif mantissa == 23 and _fits(rows, torch.float16):
        found = _fits_lattice(rows.double(), 10)
        return found or _as_fp16(rows)
    return _fits_lattice(rows.double(), mantissa)


def _fits(rows: Tensor, dtype: torch.dtype) -> bool:
    finite = rows[torch.isfinite(rows)].float()
    return bool((finite.to(dtype).float() == finite).all())


def _as_fp16(rows: Tensor) -> Stored | None:
    """float32 rows whose values all are fp16 but not bf16: 13 bits of each are zero."""
    levels = [len(row[row != 0].abs().unique()) for row in rows]
    telling = [n for n in levels if n >= LEAST_LEVELS]
    if not telling:
        return None
    middle = sorted(telling)[len(telling) // 2]
    return Stored("fp16", "none", 1.0, len(telling), middle, -13 * math.log10(2) * middle, 1.0)


def _fits_lattice(rows: Tensor, mantissa: int) -> Stored | None:
    levels = [_levels(row) for row in rows]
    telling = [one for one in levels if len(one) >= LEAST_LEVELS]
    if not telling:
        return None
    best: Stored | None = None
    for kind in ("e5m2", "e4m3fn", "e4m3fnuz", "int8"):
        # Two bits fit three as well, so the narrower format is asked first and kept unless another fits more.
        passed: list[tuple[float, float]] = []
        for done, one in enumerate(telling):
            if len(passed) < done - (1 - SHARE) * len(telling):
                break
            fit = _fit(one, kind, mantissa)
            if fit is not None:
                passed.append(fit)
        share = len(passed) / len(telling)
        if share < SHARE or (best is not None and share <= best.share):
            continue
        scales = sorted(s for s, _ in passed)
        counts = sorted(len(one) for one in telling)
        best = Stored(
            kind,
            _scale_kind(passed),
            share,
            len(telling),
            counts[len(counts) // 2],
            sorted(c for _, c in passed)[len(passed) // 2],
            scales[len(scales) // 2],
        )
    return best


def _levels(row: Tensor) -> Tensor:
    """Distinct magnitudes above zero, ascending; none when a value is not finite."""
    size = row.abs()
    return size[size > 0].unique() if bool(torch.isfinite(size).all()) else size[:0]


def _scale_kind(passed: list[tuple[float, float]]) -> str:
    """Whether rows share a scale. A power of two moves between scale and code, so only the rest counts."""
    scales = torch.tensor([s for s, _ in passed], dtype=torch.float64)
    if bool((scales == 1).all()):
        return "1"
    part = torch.frexp(scales)[0]
    if bool((part == 0.5).all()):
        return "power of two"
    ratio = part / part[0]
    ratio = torch.where(ratio > 2**0.5, ratio / 2, torch.where(ratio < 0.5**0.5, ratio * 2, ratio))
    return "per tensor" if len(part) > 1 and bool(((ratio - 1).abs() < 2.0**-8).all()) else "per token"


def _fit(levels: Tensor, kind: str, mantissa: int) -> tuple[float, float] | None:
    """(scale, log10 chance of a healthy row) when the distinct magnitudes lie on the scaled lattice."""
    top = float(levels[-1])
    whole = lattice(levels, kind)
    if kind != "int8" and top <= FP8[kind][2] and bool((whole == levels).all()):
        chance = _log_chance(levels, 1.0, kind, mantissa) + FREEDOM
        return (1.0, chance) if chance <= CERTAIN else None
    for code in _top_codes(kind):
        guess = top / code
        # The largest value is rounded too, so the first guess may be off by half a step; each pass of the
        # intersection narrows it from the large values down.
        found = _common_scale(levels, guess, kind, mantissa)
        if found is None:
            continue
        low, high = found
        scale = _simplest(low, high)
        chance = _log_chance(levels, scale, kind, mantissa) + FREEDOM
        if chance <= CERTAIN:
            return scale, chance
    return None


def _top_codes(kind: str) -> list[float]:
    """Lattice values that the largest magnitude of a row may be, likeliest first."""
    if kind == "int8":
        return list(INT8)
    bits, exponent, largest, _ = FP8[kind]
    steps = 2**bits
    # A scale shared by a tensor leaves the largest value of a row anywhere in the upper binades.
    codes = [
        (1 + m / steps) * 2.0**e for e in range(exponent, exponent - 12, -1) for m in range(steps - 1, -1, -1)
    ]
    return [largest] + [c for c in codes if c < largest]


def _common_scale(levels: Tensor, guess: float, kind: str, mantissa: int) -> tuple[float, float] | None:
    """The interval of scales that put every magnitude on the lattice after rounding; None when empty."""
    half = 2.0 ** -(mantissa + 1)
    low, high = guess * (1 - half), guess * (1 + half)
    # From the largest value down, 16 at a time: codes are unambiguous while the interval is narrow.
    for start in range(len(levels), 0, -16):
        part = levels[max(start - 16, 0) : start]
        step = _stored_step(part, mantissa) / 2
        code = lattice(part / ((low + high) / 2), kind)
        if bool((code == 0).any()):
            return None
        low = max(low, float(((part - step) / code).max()))
        high = min(high, float(((part + step) / code).min()))
        if low > high * (1 + 1e-12):
            return None
    return low, high


def lattice(values: Tensor, kind: str) -> Tensor:
    """The nearest value of the format to each, unsaturated: int8 codes are the integers."""
    if kind == "int8":
        return values.round()
    step = _step(values, kind)
    return (values / step).round() * step


def _step(values: Tensor, kind: str) -> Tensor:
    if kind == "int8":
        return torch.ones_like(values)
    bits, _, _, smallest = FP8[kind]
    return ulp(values, bits).clamp_min(2.0**smallest)


def _log_chance(levels: Tensor, scale: float, kind: str, mantissa: int) -> float:
    """log10 of the chance that magnitudes of the stored dtype, wherever they are, all hit the lattice."""
    cover = _stored_step(levels, mantissa) / (scale * _step(levels / scale, kind))
    return float(cover.clamp(max=1.0).log10().sum())


def _stored_step(values: Tensor, mantissa: int) -> Tensor:
    """The distance between neighbouring values of the stored dtype; fp16 has subnormals that matter here."""
    step = ulp(values, mantissa)
    return step.clamp_min(FP16_SUBNORMAL) if mantissa == MANTISSA[torch.float16] else step


def _simplest(low: float, high: float) -> float:
    """A power of two where the interval holds one, else its middle."""
    power = 2.0 ** math.floor(math.log2(max(high, 1e-300)))
    return power if low <= power * (1 + 1e-12) else (low + high) / 2


@dataclass(frozen=True, slots=True)
class Fp16Limits:
    """Signs that values went through fp16, although stored wider."""

    overflowed: int  # inf or NaN where the other side is finite and beyond 65504
    saturated: int  # at the largest fp16 value where the other side is beyond it
    kept_beyond: int  # finite and beyond 65504: these rule fp16 out
    zeroed: int  # zero where the other side is not, when nothing is left below the smallest normal number
    flushed: int  # on the grid of 2**-24 among values that would not be
    log10_chance: float  # of that grid in healthy values

    @property
    def found(self) -> bool:
        """Whether the limits of fp16 show and nothing goes beyond them."""
        return not self.kept_beyond and bool(
            self.overflowed or self.saturated or self.zeroed or self.log10_chance <= CERTAIN
        )


def fp16_limits(rows_nh: Rows, other_nh: Rows | None = None) -> Fp16Limits:
    """Overflow, saturation and lost small values of fp16 in rows stored as bf16 or float32.

    `other_nh`: the other side's rows; without it only lost small values can show. A bf16 file turns 65504 into
    65536.
    """
    rows = torch.as_tensor(rows_nh)
    limit = float(torch.tensor(FP16_MAX).to(rows.dtype)) if rows.dtype in MANTISSA else FP16_MAX
    size = rows.float().abs()
    beyond = torch.zeros_like(size, dtype=torch.bool)
    zeroed = 0
    if other_nh is not None:
        other = torch.as_tensor(other_nh).float().abs()
        beyond = torch.isfinite(other) & (other > FP16_MAX * 1.02)
        zeroed = _zeroed(size, other)
    overflowed = int((beyond & ~torch.isfinite(size)).sum())
    saturated = int((beyond & (size == limit)).sum())
    kept = int((torch.isfinite(size) & (size > limit)).sum())
    flushed, chance = _small(rows.double().abs(), MANTISSA.get(rows.dtype, 23))
    return Fp16Limits(overflowed, saturated, kept, zeroed, flushed, chance)


def _zeroed(size: Tensor, other: Tensor) -> int:
    """Zeros where the other side has a small value, when no value between zero and fp16's smallest normal
    number is left and the other side has many."""
    small = (other > 0) & (other < FP16_NORMAL)
    left = (size > 0) & (size < FP16_NORMAL * (1 - 2.0**-7))
    zeros = int((small & (size == 0)).sum())
    return zeros if zeros >= LEAST_LEVELS and zeros >= 0.9 * int(small.sum()) and not bool(left.any()) else 0


def _small(size: Tensor, mantissa: int) -> tuple[int, float]:
    """Distinct values below the finest fp16 step of the stored dtype, all on fp16's grid, and the chance."""
    small = size[(size > 0) & (size < FP16_SUBNORMAL * 2**mantissa)].unique()
    if len(small) < LEAST_LEVELS or bool((small % FP16_SUBNORMAL != 0).any()):
        return 0, 0.0
    cover = ulp(small, mantissa) / FP16_SUBNORMAL
    return len(small), float(cover.clamp(max=1.0).log10().sum())
