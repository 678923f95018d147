"""Slots that are a fixed mix of boundaries."""

from __future__ import annotations

import pytest
import torch

from hsparity.solve.mixture import Mixture, find_mixture
from tests.unit.test_solve_basis import Stack, rows


@pytest.fixture(scope="module")
def pair() -> tuple[Stack, Stack, list[float]]:
    ref, cand = rows(1), rows(2)
    noise = [float(((c - r).norm(dim=1) / r.norm(dim=1)).median()) for r, c in zip(ref, cand, strict=True)]
    return ref, cand, noise


def solved(ref: Stack, slot: torch.Tensor, noise: list[float]) -> Mixture:
    found = find_mixture(ref, slot.bfloat16(), noise)
    assert found is not None
    return found


@pytest.mark.parametrize(("i", "j"), [(2, 7), (7, 3), (8, 6), (4, 5)])
def test_a_mix_of_two_is_solved(pair: tuple[Stack, Stack, list[float]], i: int, j: int) -> None:
    """b_i - 0.4 (b_i - b_j) gives both boundaries and both coefficients."""
    ref, cand, noise = pair
    found = solved(ref, cand[i] - 0.4 * (cand[i] - cand[j]), noise)
    assert found.found
    assert found.boundaries == tuple(sorted((i, j)))
    assert dict(zip(found.boundaries, found.coefficients, strict=True)) == pytest.approx(
        {i: 0.6, j: 0.4}, abs=0.02
    )
    assert found.single_residual > 3 * found.residual
    assert found.margin > 2


def test_a_mix_of_three_is_solved(pair: tuple[Stack, Stack, list[float]]) -> None:
    """Three parts are tried when two do not reach the floor."""
    ref, cand, noise = pair
    found = solved(ref, 0.5 * cand[8] + 0.3 * cand[2] + 0.2 * cand[5], noise)
    assert found.found
    assert found.boundaries == (2, 5, 8)
    assert found.coefficients == pytest.approx((0.3, 0.2, 0.5), abs=0.02)
    limited = find_mixture(ref, 0.5 * cand[8] + 0.3 * cand[2] + 0.2 * cand[5], noise, parts=2)
    assert limited is not None
    assert not limited.found


def test_what_is_no_mix(pair: tuple[Stack, Stack, list[float]]) -> None:
    """Healthy slots, gains, drift, fp8, half an update, other rows and per-token blends are not mixes."""
    ref, cand, noise = pair
    made = torch.Generator().manual_seed(0)

    def random(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=made)

    for k in range(2, 8):
        state, size = cand[k], cand[k].norm(dim=1, keepdim=True)
        half = torch.where(random(128) > 0, 1.0, 0.0) * (cand[k + 1] - state)  # part of the layer's branches
        for slot in (
            state,
            0.4 * state,
            state * (1 + 0.1 * random(*state.shape)),
            state + 0.05 * size * random(*state.shape) / 128**0.5,
            state.to(torch.float8_e5m2).float(),
            state + half,
            state.roll(1, 0),
            state - random(len(state), 1).abs().clamp(max=0.8) * (state - cand[k - 2]),
        ):
            assert not solved(ref, slot, noise).found


def test_too_little_to_tell(pair: tuple[Stack, Stack, list[float]]) -> None:
    """Under 8 tokens or with one boundary there is no answer."""
    ref, cand, noise = pair
    assert find_mixture([r[:7] for r in ref], cand[3][:7], noise) is None
    assert find_mixture(ref[:1], cand[3], noise[:1]) is None
