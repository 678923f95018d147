"""The arithmetic: per-token sums against plain float64, and the corners of float32."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from hsparity import registry
from hsparity.metrics.base import LARGEST, Sums
from hsparity.metrics.kernel import BlockSums, Kernel, Norm
from hsparity.solve.forms import Form
from hsparity.table import TokenTable

NOTHING = torch.zeros(0, dtype=torch.int64)


def sums_of(ref: torch.Tensor, cand: torch.Tensor, massive: torch.Tensor = NOTHING) -> BlockSums:
    return Kernel(ref.shape[1], 2, [(0, 1)]).run([ref, cand], massive)


def whole(sums: BlockSums, width: int) -> Sums:
    return Sums(sum(sums.norms[0]), sum(sums.norms[1]), sum(sums.diffs[0, 1]), sums.largest, width)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
@pytest.mark.parametrize("width", [64, 100, 576, 4096])
@pytest.mark.parametrize("channels", [0, 1, 7])
def test_sums_equal_float64(dtype: torch.dtype, width: int, channels: int) -> None:
    """Every sum is within 1e-6 of float64 arithmetic on the same values, for all rows of several pieces."""
    generator = torch.Generator().manual_seed(width)
    ref = torch.randn(301, width, generator=generator)
    ref[:, 3] *= 200.0
    cand = (ref * (1 + 0.004 * torch.randn(301, width, generator=generator))).to(dtype)
    ref = ref.to(dtype)
    massive = torch.arange(channels) * 3
    sums = sums_of(ref, cand, massive)
    x, y = ref.double().numpy(), cand.double().numpy()
    inside = np.isin(np.arange(width), massive.numpy())
    for part, chosen in enumerate((~inside, inside)):
        for found, exact in ((sums.norms[0], x), (sums.norms[1], y), (sums.diffs[0, 1], y - x)):
            np.testing.assert_allclose(found[part], (exact[:, chosen] ** 2).sum(1), rtol=1e-6)
    np.testing.assert_allclose(sums.largest, np.abs(y - x).max(1), rtol=1e-6)


def test_metrics_equal_their_definitions() -> None:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((50, 96)).astype(np.float32)
    y = (x + 0.01 * rng.standard_normal((50, 96))).astype(np.float32)
    sums = whole(sums_of(torch.from_numpy(x), torch.from_numpy(y)), 96)
    x, y = x.astype(np.float64), y.astype(np.float64)
    norms = np.linalg.norm(x, axis=1), np.linalg.norm(y, axis=1)
    wanted = {
        "rel_l2": np.linalg.norm(y - x, axis=1) / norms[0],
        "cosine": (x * y).sum(1) / (norms[0] * norms[1]),
        "mse": ((y - x) ** 2).mean(1),
        "max_abs": np.abs(y - x).max(1),
        "norm_ratio": norms[1] / norms[0],
    }
    assert set(registry.metrics()) == set(wanted)
    for name, metric in registry.metrics().items():
        np.testing.assert_allclose(metric.of(sums), wanted[name], rtol=1e-6)


def test_a_cosine_near_one_keeps_its_digits() -> None:
    """1 - cosine of a relative error of 1e-6 is 5e-13, not rounding noise of the norms."""
    rng = np.random.default_rng(1)
    x = rng.standard_normal((20, 512))
    y = x + 1e-6 * rng.standard_normal((20, 512)) * np.linalg.norm(x, axis=1, keepdims=True) / np.sqrt(512)
    sums = Sums((x * x).sum(1), (y * y).sum(1), ((y - x) ** 2).sum(1), np.abs(y - x).max(1), 512)
    assert np.all(np.abs((1 - registry.metrics()["cosine"].of(sums)) / 5e-13 - 1) < 0.3)


def test_values_outside_the_squares_of_float32() -> None:
    """Rows whose squares overflow or vanish in float32 are finite and right; they are not called NaN."""
    x = torch.ones(4, 130)
    x[1], x[2] = 1e25, 1e-25
    y = x * 1.5
    y[3] = 1e7
    sums = sums_of(x, y)
    found = registry.metrics()["rel_l2"].of(whole(sums, 130))
    np.testing.assert_allclose(found[:3], 0.5, rtol=1e-6)
    np.testing.assert_allclose(registry.metrics()["cosine"].of(whole(sums, 130)), 1.0, atol=1e-8)
    assert not sums.nonfinite.any()


def test_nonfinite_elements_are_counted_per_side() -> None:
    x, y = torch.ones(5, 64), torch.ones(5, 64)
    x[1, 5:8] = torch.nan
    y[2, 0] = torch.inf
    x[4, 0] = y[4, 0] = -torch.inf
    sums = sums_of(x, y, torch.tensor([0]))
    assert sums.nonfinite.tolist() == [[0, 3, 0, 0, 1], [0, 0, 1, 0, 1]]
    assert sums.equal.tolist() == [True, False, False, True, True]


def test_zero_rows() -> None:
    """Zero against zero is equal; anything against zero is infinitely far, which stays a finite number."""
    x, y = torch.zeros(2, 64), torch.zeros(2, 64)
    y[1] = 1.0
    sums = whole(sums_of(x, y), 64)
    known = registry.metrics()
    assert known["rel_l2"].of(sums).tolist() == [0.0, LARGEST]
    assert known["cosine"].of(sums).tolist() == [1.0, 0.0]
    assert known["norm_ratio"].of(sums).tolist() == [1.0, LARGEST]


def test_equal_in_value_is_not_equal_in_every_bit() -> None:
    """Minus zero and zero, or two dtypes, are equal numbers and different bits."""
    x, y = torch.ones(2, 64), torch.ones(2, 64)
    x[0, 3], y[0, 3] = 0.0, -0.0
    assert sums_of(x, y).equal.tolist() == [False, True]
    assert sums_of(x, y.bfloat16()).equal.tolist() == [False, False]


def test_a_normed_form_is_the_normed_state() -> None:
    rng = torch.Generator().manual_seed(0)
    x, scale = torch.randn(40, 256, generator=rng), torch.rand(256, generator=rng) + 0.5
    normed = x * (x.square().mean(1, keepdim=True) + 1e-6).rsqrt() * scale
    made = Form((("boundary.008", 1.0),), (Norm(scale, 1e-6),)).make({"boundary.008": x}.get)
    assert made is not None
    sums = Kernel(256, 2, [(0, 1)]).run([made, normed], NOTHING)
    assert float(sums.diffs[0, 1][0].max()) < 1e-9


def test_tables_of_parts_merge_into_the_table_of_the_whole() -> None:
    """Two halves put side by side, in memory or on disk, read back as one."""
    rng = np.random.default_rng(0)
    values = rng.random((3, 2, 100)).astype(np.float32)
    for in_memory in (1 << 20, 0):
        merged = TokenTable(3, ("a", "b"), 100, in_memory)
        for start, stop in ((0, 37), (37, 100)):
            part = TokenTable(3, ("a", "b"), stop - start, in_memory)
            for site in range(3):
                part.write(site, 0, values[site, :, start:stop])
            merged.merge(part, start)
        for site in range(3):
            for i, name in enumerate(("a", "b")):
                np.testing.assert_array_equal(merged.read(site, name), values[site, i])
