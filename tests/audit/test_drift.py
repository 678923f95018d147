"""A step in the norms of a slot: found where a layer moves, and nowhere else."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from hsparity.audit.drift import find_step
from hsparity.audit.scan import measure
from tests.audit import bench

SPREAD = 0.02  # decades, of a sample's median norm: as recorded on tiny-deepseek-v3 and SmolLM2
LAYER = 0.055  # decades from one boundary to the next, in the middle of tiny-deepseek-v3
SEEDS = 25
TEXTS = ("even", "heavy tails", "two kinds", "correlated", "slow wave", "trend", "by length")


def texts(kind: str, n: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """What the texts of n samples do to their norms, [n]."""
    noise = SPREAD * rng.standard_normal(n)
    if kind == "heavy tails":
        return SPREAD * rng.standard_t(2, n)
    if kind == "two kinds":
        return 0.3 * noise + 0.15 * (rng.random(n) < 0.4)
    if kind == "correlated":
        for i in range(1, n):
            noise[i] = 0.9 * noise[i - 1] + 0.44 * noise[i]
        return noise
    if kind == "slow wave":
        return noise + 0.1 * np.sin(np.linspace(0, 9, n) + rng.uniform(0, 6))
    if kind == "trend":
        return noise + np.linspace(0, 0.2, n)
    if kind == "by length":
        lengths = np.sort(np.exp(rng.uniform(1, 8, n)))
        return (0.05 + 0.1 * rng.standard_normal(n)) / np.sqrt(lengths)
    return noise


def norms(kind: str, n: int, seed: int) -> NDArray[np.float64]:
    """[n, 4]: what a text does moves all slots, each by a share of its own."""
    rng = np.random.default_rng((seed, n, TEXTS.index(kind)))
    own = 0.3 * SPREAD * rng.standard_normal((n, 4))
    return np.array([0.0, 0.2, 0.4, 0.5]) + own + texts(kind, n, rng)[:, None] * rng.uniform(0.5, 1.2, 4)


@pytest.mark.parametrize("n", [8, 13, 16, 24, 100, 400, 2000])
@pytest.mark.parametrize("kind", TEXTS)
def test_healthy_norms_have_no_step(kind: str, n: int) -> None:
    found = [s for s in range(SEEDS if n < 1000 else 5) if find_step(norms(kind, n, s))]
    assert found == []


@pytest.mark.parametrize("kind", TEXTS)
def test_few_false_alarms_where_texts_vary_as_slowly_as_the_dataset_is_long(kind: str) -> None:
    """At 40 samples a wave or a correlation as long as that looks like a step now and then: five in a hundred
    with a correlation over ten samples, none of most."""
    found = [s for s in range(100) if find_step(norms(kind, 40, s))]
    assert len(found) <= (6 if kind == "correlated" else 2)


STEPS = [(30, 15), (40, 20), (100, 20), (400, 8), (400, 392), (2000, 1000)]


@pytest.mark.parametrize(("n", "at"), STEPS)
@pytest.mark.parametrize("kind", ["even", "by length"])
def test_a_step_of_one_layer_is_found_where_it_is(kind: str, n: int, at: int) -> None:
    for slot in range(3):
        table = norms(kind, n, slot)
        table[at:, slot] += LAYER
        step = find_step(table)
        assert step is not None
        assert abs(step.at - at) <= 1
        # Where the texts move every slot at the same place, which one the layer moves cannot be told.
        assert kind != "even" or step.slot == slot


@pytest.mark.parametrize(("n", "at"), STEPS)
def test_a_step_among_outliers_is_mostly_found(n: int, at: int) -> None:
    found = 0
    for seed in range(20):
        table = norms("heavy tails", n, seed)
        table[at:, seed % 3] += 2 * LAYER
        step = find_step(table)
        found += step is not None and abs(step.at - at) <= 1
    assert found >= 16


def test_samples_that_are_not_finite_are_passed_over() -> None:
    table = norms("even", 60, 1)
    table[30:, 1] += 0.2
    table[[3, 29, 30, 50], [0, 1, 2, 3]] = np.nan
    step = find_step(table)
    assert step is not None
    assert step.at == 31  # 30 is not finite


@pytest.mark.parametrize("table", [[], [[]], [[0.1]] * 7, [[0.1, 0.2]] * 500, [[float("nan")] * 4] * 50])
def test_nothing_to_find(table: list[list[float]]) -> None:
    assert find_step(table) is None


def test_recorded_samples_have_no_step() -> None:
    """Two long prompts before eleven short ones."""
    for engine in ("vllm", "sglang", "hf-bf16"):
        made = bench.samples((*bench.FEEDS, bench.LAST), engine)
        assert find_step([measure(str(i), "", s).norms for i, s in enumerate(made)]) is None
