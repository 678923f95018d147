"""Rotated bases, moved channels and constant gains, on toy streams with a massive channel and sinks."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from hsparity.solve.basis import find_gain, find_permutation, find_rotation, name_gain
from tests.causes.streams import LAYERS, WIDTH, capture

Stack = list[torch.Tensor]


def rows(engine: int) -> Stack:
    """All boundaries of the standard prompts, each float32 [192, 128]."""
    made = capture(engine)
    keys = [f"boundary.{k:03d}" for k in range(LAYERS + 1)]
    return [torch.from_numpy(np.concatenate([s[k] for s in made.states.values()])).float() for k in keys]


@pytest.fixture(scope="module")
def pair() -> tuple[Stack, Stack, list[float]]:
    ref, cand = rows(1), rows(2)
    noise = [float(((c - r).norm(dim=1) / r.norm(dim=1)).median()) for r, c in zip(ref, cand, strict=True)]
    return ref, cand, noise


def orthogonal(width: int) -> torch.Tensor:
    return torch.linalg.qr(torch.randn(width, width, generator=torch.Generator().manual_seed(0)))[0]


def test_a_healthy_slot_is_in_no_other_basis(pair: tuple[Stack, Stack, list[float]]) -> None:
    """No boundary of a healthy pair is rotated, moved or scaled; its Gram matrix is at the derived noise."""
    ref, cand, noise = pair
    for k, slot in enumerate(cand):
        found = find_rotation(ref, slot, noise)
        assert not found.found
        assert found.boundary == k
        assert found.gram_error <= found.gram_noise
        assert find_permutation(ref[k], slot, noise[k]) is None
        gain = find_gain(ref[k], slot)
        assert not gain.constant
        assert not gain.by_rows


@pytest.mark.parametrize("count", [32, 192])
def test_a_rotation_names_its_boundary(pair: tuple[Stack, Stack, list[float]], count: int) -> None:
    """A rotated slot finds its boundary well apart from the next, whatever the massive channel carries."""
    ref, cand, noise = pair
    for k, slot in enumerate(cand):
        turned = (slot @ orthogonal(WIDTH)).bfloat16()[:count]
        found = find_rotation([r[:count] for r in ref], turned, noise)
        assert found.found
        assert found.boundary == k
        assert found.margin > 3
        assert found.norm_ratio == pytest.approx(1, abs=0.01)
        assert (found.held_out is None) == (count < WIDTH)


def test_the_map_holds_on_rows_it_was_not_fitted_to(pair: tuple[Stack, Stack, list[float]]) -> None:
    """With more rows than channels the map undoes the rotation on held-out rows; with fewer it spans the
    rows."""
    ref, cand, noise = pair
    q_hh = orthogonal(WIDTH)
    found = find_rotation(ref, cand[5] @ q_hh, noise)
    assert found.held_out is not None
    assert found.held_out < 0.1 < found.row_error
    assert found.map_hh is not None
    np.testing.assert_allclose(found.map_hh @ found.map_hh.T, np.eye(WIDTH), atol=1e-4)
    assert find_rotation([r[:32] for r in ref], (cand[5] @ q_hh)[:32], noise).span <= 32


@pytest.mark.parametrize("size", [0.02, 0.1, 0.3, 1.0, 30.0])
def test_noise_is_no_rotation(pair: tuple[Stack, Stack, list[float]], size: float) -> None:
    """Drift of any size, other tokens' rows and few or equal rows are never called a rotation."""
    ref, cand, noise = pair
    wide = [torch.randn(64, 4096, generator=torch.Generator().manual_seed(k)) for k in range(3)]
    off = torch.randn(64, 4096, generator=torch.Generator().manual_seed(9))
    assert not find_rotation(wide, wide[1] + size * off, 0.01).found
    assert not find_rotation(ref, cand[4].roll(1, 0) * (1 + size), noise).found
    assert not find_rotation([r[:4] for r in ref], (cand[4] @ orthogonal(WIDTH))[:4], noise).found
    equal = [r[7:8].expand(40, -1) for r in ref]
    assert not find_rotation(equal, equal[3] @ orthogonal(WIDTH), noise).found


def test_a_wide_stream_has_no_map() -> None:
    """Above 1,024 channels the Gram test alone decides."""
    wide = [torch.randn(32, 1500, generator=torch.Generator().manual_seed(k)) for k in range(3)]
    found = find_rotation(wide, wide[2][:, torch.randperm(1500)], 0.01)
    assert found.found
    assert found.map_hh is None


@pytest.mark.parametrize("count", [16, 192])
def test_moved_channels_are_put_back(pair: tuple[Stack, Stack, list[float]], count: int) -> None:
    """A shuffle, a roll and an interleaving are found exactly, with fewer tokens than channels too."""
    ref, cand, noise = pair
    shuffle = torch.randperm(WIDTH, generator=torch.Generator().manual_seed(0))
    woven = torch.arange(WIDTH).reshape(4, -1).T.flatten()
    for order, words in (
        (shuffle, "no simple order"),
        (torch.arange(WIDTH).roll(-32), "rolled by 32"),
        (woven, "4 slices interleaved"),
    ):
        for k, slot in enumerate(cand):
            found = find_permutation(ref[k][:count], slot[:count, order], noise[k])
            assert found is not None
            np.testing.assert_array_equal(found.channels, order.numpy())
            assert found.pattern() == words
            assert found.error_after < 2 * noise[k] + 0.004


def test_dead_and_equal_channels_do_not_hide_a_permutation(pair: tuple[Stack, Stack, list[float]]) -> None:
    """Channels of zeros and copies match several places; the others decide, and each place is used once."""
    ref, cand, noise = pair
    left, right = ref[4].clone(), cand[4].clone()
    for side in (left, right):
        side[:, 10:20] = 0
        side[:, 30] = side[:, 31]
    order = torch.randperm(WIDTH, generator=torch.Generator().manual_seed(3))
    found = find_permutation(left, right[:, order], noise[4])
    assert found is not None
    assert found.alike >= 10
    assert sorted(found.channels) == list(range(WIDTH))
    back = right[:, order][:, torch.from_numpy(found.undo)]
    assert float(((back - left).norm(dim=1) / left.norm(dim=1)).median()) < 0.02


def test_what_is_no_permutation(pair: tuple[Stack, Stack, list[float]]) -> None:
    """Another boundary, other rows, a rotation, drift and three tokens give None."""
    ref, cand, noise = pair
    assert find_permutation(ref[3], cand[4], noise[3]) is None
    assert find_permutation(ref[3], cand[3].roll(1, 0), noise[3]) is None
    assert find_permutation(ref[3], cand[3] @ orthogonal(WIDTH), noise[3]) is None
    assert find_permutation(ref[3], cand[3] * (1 + 0.2 * torch.randn_like(cand[3])), noise[3]) is None
    assert find_permutation(ref[3][:3], cand[3][:3].flip(1), noise[3]) is None


def test_one_gain_and_gains_by_rows(pair: tuple[Stack, Stack, list[float]]) -> None:
    """A constant gain is one set; image rows at 1/sqrt(H) are a second one with its rows."""
    ref, cand, _ = pair
    quarter = find_gain(ref[4], (cand[4] / 4).bfloat16())
    assert quarter.constant
    assert quarter.error_after < 0.02 < quarter.error_before
    assert name_gain(quarter.value, WIDTH, {}, quarter.spread)[0].startswith("1/4")
    image = cand[0].clone()
    image[20:60] /= WIDTH**0.5
    found = find_gain(ref[0], image)
    assert found.by_rows
    np.testing.assert_array_equal(found.sets[1].rows, np.arange(20, 60))
    assert name_gain(found.sets[1].value, WIDTH, {}) == ["1/sqrt(hidden_size)"]


def test_another_boundary_has_no_gain(pair: tuple[Stack, Stack, list[float]]) -> None:
    """Rows of another boundary have gains of every size, which make no set."""
    ref, cand, _ = pair
    found = find_gain(ref[2], cand[7])
    assert not found.constant
    assert not found.by_rows


def test_gains_take_names_from_the_config() -> None:
    """Every multiplier of the config is known with its inverse; a flag, a 1.0 and near values are not."""
    config = {"routed_scaling_factor": 2.5, "residual_multiplier": 0.22, "logits_scaling": 1.0}
    assert name_gain(2.5, 7168, config) == ["routed_scaling_factor = 2.5"]
    assert name_gain(0.4, 7168, config) == ["1/routed_scaling_factor, routed_scaling_factor = 2.5"]
    assert name_gain(0.2205, 7168, config) == ["residual_multiplier = 0.22"]
    assert name_gain(1.0, 7168, config) == []
    assert name_gain(2.45, 7168, config) == []
    assert name_gain(12.0, 4096, {"text_config": {"embedding_multiplier": 12}}) == [
        "embedding_multiplier = 12"
    ]
