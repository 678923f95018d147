"""Formats narrower than the file says, and values cut instead of rounded."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from hsparity.solve.storage import fp16_limits, stored_format, truncation
from hsparity.solve.truncation import cut_bits
from tests.unit.test_solve_basis import rows

Change = Callable[[torch.Tensor], torch.Tensor]


def stream(count: int, width: int, seed: int) -> torch.Tensor:
    """float32 [count, width] with channel sizes spread over four binades, one of them massive."""
    made = torch.Generator().manual_seed(seed)
    size = torch.exp(torch.randn(width, generator=made))
    size[5] = 200.0
    return torch.randn(count, width, generator=made) * size


def through(dtype: torch.dtype, scale: Change) -> Change:
    largest = torch.finfo(dtype).max

    def kept(rows_nh: torch.Tensor) -> torch.Tensor:
        by = scale(rows_nh)
        return (rows_nh / by).clamp(-largest, largest).to(dtype).float() * by

    return kept


def per_token(largest: float) -> Change:
    return lambda r: r.abs().amax(1, keepdim=True) / largest


E4, E5, NUZ = torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e4m3fnuz


@pytest.mark.parametrize("stored", [torch.bfloat16, torch.float16, torch.float32])
@pytest.mark.parametrize(
    ("change", "kinds", "scale"),
    [
        (lambda r: through(E4, lambda _: torch.tensor(16.0))(4 * r), {"e4m3fn"}, {"power of two"}),
        (through(E4, lambda r: torch.tensor(1.0)), {"e4m3fn"}, {"1"}),
        (through(E5, lambda r: torch.tensor(1.0)), {"e5m2"}, {"1"}),
        (through(E4, lambda r: r.abs().max() / 448), {"e4m3fn"}, {"per tensor"}),
        (through(E4, per_token(448)), {"e4m3fn"}, {"per token"}),
        (through(E5, per_token(57344)), {"e5m2"}, {"per token"}),
        (through(NUZ, per_token(240)), {"e4m3fnuz", "e4m3fn"}, {"per token"}),
        (lambda r: (r / per_token(127)(r)).round() * per_token(127)(r), {"int8"}, {"per token"}),
    ],
)
def test_narrow_formats_are_found(
    change: Change, kinds: set[str], scale: set[str], stored: torch.dtype
) -> None:
    """Each lattice is found in each stored dtype, with the scale's product rounded to that dtype."""
    found = stored_format(change(stream(12, 576, 1)).to(stored))
    assert found is not None
    assert found.kind in kinds
    assert found.scale in scale
    assert found.share == 1
    assert found.levels <= 127
    assert found.log10_chance < -12


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
@pytest.mark.parametrize("width", [64, 128, 576, 4096])
def test_healthy_rows_lie_on_no_lattice(width: int, dtype: torch.dtype) -> None:
    """Healthy rows of any width and dtype pass for nothing."""
    assert stored_format(stream(16, width, 2).to(dtype)) is None


def test_rows_with_few_values_are_no_evidence() -> None:
    """Rows of zeros, of a few repeated values, and not finite ones pass for nothing."""
    assert stored_format(torch.zeros(8, 256).bfloat16()) is None
    few = torch.tensor([0.0, 0.5, -0.5, 1.0, 2.0]).repeat(8, 50).bfloat16()
    assert stored_format(few) is None
    assert stored_format(torch.full((8, 256), float("inf")).bfloat16()) is None
    healthy = stream(16, 256, 3).bfloat16()
    healthy[:4] = few[:4, :1] * 0 + 1
    assert stored_format(healthy) is None


def test_healthy_toy_states_lie_on_no_lattice() -> None:
    """No boundary of a toy decoder passes."""
    assert [stored_format(r[:24].bfloat16()) for r in rows(1)] == [None] * 9


def test_fp16_in_a_float32_file() -> None:
    """float32 values that all are fp16 came through fp16; bf16 values widened did not."""
    found = stored_format(stream(8, 256, 4).half().float())
    assert found is not None
    assert found.kind == "fp16"
    assert stored_format(stream(8, 256, 4).bfloat16().float()) is None


def test_the_limits_of_fp16() -> None:
    """Overflow, saturation and the grid of small values show fp16; a value kept beyond 65504 rules it out."""
    truth = stream(16, 256, 5)
    truth[3, 5] = 1e5
    assert fp16_limits(truth.half().bfloat16(), truth).overflowed == 1
    held = fp16_limits(truth.clamp(-65504, 65504).half().bfloat16(), truth)
    assert held.saturated == 1
    assert held.found
    kept = fp16_limits(truth.bfloat16(), truth)
    assert kept.kept_beyond == 1
    assert not kept.found
    small = stream(16, 256, 6) * 1e-6
    assert fp16_limits(small.half().bfloat16()).found
    assert not fp16_limits(small.bfloat16()).found


def engine(truth: torch.Tensor, noise: float, seed: int) -> torch.Tensor:
    made = torch.Generator().manual_seed(seed)
    return truth * (1 + noise * torch.randn(truth.shape, generator=made))


@pytest.mark.parametrize("noise", [0.001, 0.01])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_cut_values_are_told_from_noise(noise: float, dtype: torch.dtype) -> None:
    """Values cut once lose half a unit in the last place, seen through noise of several; rounded ones lose
    nothing."""
    bits = 7 if dtype == torch.bfloat16 else 10
    noise = noise if bits == 7 else noise / 8
    truth = [stream(256, 512, k) for k in range(4)]
    ref = [engine(t, noise, 10 + k).to(dtype) for k, t in enumerate(truth)]
    exact = [engine(t, noise, 20 + k) for k, t in enumerate(truth)]
    healthy = truncation(ref, [e.to(dtype) for e in exact])
    assert not healthy.found
    assert not healthy.proved
    assert abs(healthy.z) < 4
    cut = truncation(ref, [cut_bits(e, bits).to(dtype) for e in exact])
    assert cut.found
    assert cut.step == pytest.approx(-0.5, abs=0.1)
    assert not cut.compounding
    assert not truncation([cut_bits(e, bits).to(dtype) for e in exact], ref).found


def test_cut_bits_are_proved_against_a_truth() -> None:
    """Against a float32 truth the very bits are the cut ones."""
    truth = [stream(64, 256, k) for k in range(3)]
    cut = truncation(truth, [cut_bits(t, 7).bfloat16() for t in truth], truth=True)
    assert cut.cuts[0].cut_share == 1
    assert cut.cuts[0].round_share == 0
    assert cut.cuts[0].projection == pytest.approx(-0.0027, abs=0.0006)
    rounded = truncation(truth, [t.bfloat16() for t in truth], truth=True)
    assert rounded.cuts[0].cut_share == 0
    assert rounded.cuts[0].round_share is not None
    assert rounded.cuts[0].round_share > 0.99
    assert not rounded.found


def test_a_loss_that_compounds() -> None:
    """A stream cut after every addition loses norm with depth, its cosine high."""
    made = torch.Generator().manual_seed(0)
    state = exact = stream(128, 256, 1).bfloat16().float()
    ref, cand = [], []
    for _ in range(24):
        update = torch.randn(128, 256, generator=made) * exact.abs().mean() * 0.1
        exact, state = exact + update, cut_bits(state + update, 7)
        ref.append(exact.bfloat16())
        cand.append(state.bfloat16())
    found = truncation(ref, cand)
    assert found.found
    assert found.compounding
    assert found.loss < -0.01
    assert not truncation(ref, [engine(r.float(), 0.01, k).bfloat16() for k, r in enumerate(ref)]).found


@pytest.mark.parametrize("factor", [0.9973, 1.0027, 0.98, 1.02])
def test_what_only_resembles_a_cut(factor: float) -> None:
    """A small gain, fp8 rows and another stream are not called cut."""
    truth = [stream(128, 512, k) for k in range(4)]
    ref = [engine(t, 0.01, 10 + k).bfloat16() for k, t in enumerate(truth)]
    cand = [engine(t, 0.01, 20 + k).bfloat16() for k, t in enumerate(truth)]
    assert not truncation(ref, [(c.float() * factor).bfloat16() for c in cand]).found
    assert not truncation(ref, [c.to(E5).bfloat16() for c in cand]).found
    assert not truncation(ref, [through(E4, per_token(448))(c.float()).bfloat16() for c in cand]).found
    assert not truncation(ref, cand[1:] + cand[:1]).found
