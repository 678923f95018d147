"""What may serve as a floor, and what a floor may never excuse."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from hsparity.capture.read import open_source
from hsparity.capture.source import Source
from hsparity.compare import Query, compare
from hsparity.errors import HsparityError
from hsparity.model import Comparison, Verdict
from tests.causes.judged import ALL, against
from tests.causes.streams import Capture, States, Toy, capture, edited, floors


def noisy(made: Capture, size: float) -> Capture:
    """Every state off by `size` of its norm."""
    rng = np.random.default_rng(5)

    def change(_: str, states: States) -> States:
        draw = {k: rng.standard_normal(v.shape) for k, v in states.items()}
        return {
            k: v
            + size
            * np.linalg.norm(v, axis=1, keepdims=True)
            * draw[k]
            / np.linalg.norm(draw[k], axis=1, keepdims=True)
            for k, v in states.items()
        }

    return edited(made, change)


def transformers(made: Capture, folder: Path, dtype: torch.dtype = torch.bfloat16) -> Source:
    return open_source(replace(made, engine="hf", version="5.19.0", dtype=dtype).write(folder))


@pytest.mark.parametrize("size", [0.02, 0.3])
def test_a_faulty_transformers_side_is_not_its_own_yardstick(
    ref: Source, floor: list[Source], tmp_path: Path, size: float
) -> None:
    """The floor that was named is used, whatever the sides are."""
    faulty = transformers(noisy(capture(0), size), tmp_path / "hf")
    assert compare(ref, faulty, floor, Query()).verdict is Verdict.DIVERGED
    assert compare(faulty, ref, floor, Query()).verdict is Verdict.DIVERGED


def test_two_transformers_captures_are_no_floor_of_themselves(tmp_path: Path) -> None:
    """The difference between the sides cannot measure the difference between the sides."""
    exact = transformers(capture(None), tmp_path / "fp32", torch.float32)
    assert compare(exact, transformers(noisy(capture(0), 0.1), tmp_path / "bf16"), [], Query()).verdict is (
        Verdict.INCONCLUSIVE
    )


def test_an_inflated_bf16_capture_passes_nobody(
    ref: Source, floor: list[Source], clean: Capture, tmp_path: Path
) -> None:
    """A healthy engine far below e0 shows that e0 is wrong; a grossly wrong e0 is refused."""
    some = transformers(noisy(capture(0), 0.02), tmp_path / "some")
    result = against(ref, clean, tmp_path / "1", [floor[0], some])
    assert result.verdict is Verdict.INCONCLUSIVE
    assert "errs more than bf16 does" in reasons(result)
    gross = transformers(noisy(capture(0), 0.3), tmp_path / "gross")
    with pytest.raises(HsparityError, match="do not agree with each other") as caught:
        against(ref, clean, tmp_path / "2", [floor[0], gross])
    assert caught.value.code == "E211"


def test_a_floor_of_another_model_accuses_nobody(ref: Source, clean: Capture, tmp_path: Path) -> None:
    """Sides that agree and are both far from fp32 share what sets them apart, or the floor is not theirs."""
    result = against(ref, clean, tmp_path, floors(tmp_path / "floor", Toy(seed=9)))
    assert result.verdict is Verdict.INCONCLUSIVE
    assert "the sides agree" in reasons(result)


def test_a_side_is_no_repeat_of_itself(ref: Source, tmp_path: Path) -> None:
    """Its distance to itself is zero, or all of the fault."""
    faulty = open_source(noisy(capture(1), 0.3).write(tmp_path / "faulty"))
    for floor in (ref, faulty):
        with pytest.raises(HsparityError, match="no floor can be made"):
            compare(ref, faulty, [floor], Query())


def test_zeros_on_both_sides_are_not_parity(ref: Source, tmp_path: Path) -> None:
    """Nothing was captured there, however equal it is."""

    def emptied(_: str, states: States) -> States:
        states[ALL[3]][:] = 0
        return states

    empty = open_source(edited(capture(1), emptied).write(tmp_path / "a"))
    result = compare(empty, open_source(edited(capture(1), emptied).write(tmp_path / "b")), [], Query())
    assert result.verdict is Verdict.INCONCLUSIVE
    assert "all zero on both sides" in reasons(result)


def test_a_zero_row_is_lost(ref: Source, clean: Capture, floor: list[Source], tmp_path: Path) -> None:
    """An error of the whole state is not rounding, on a single token."""

    def emptied(prompt: str, states: States) -> States:
        if prompt == "p0":
            states[ALL[3]][5] = 0
        return states

    assert against(ref, edited(clean, emptied), tmp_path, floor).verdict is Verdict.DIVERGED


def test_a_site_that_some_prompts_lack_is_diverged(
    ref: Source, clean: Capture, floor: list[Source], tmp_path: Path
) -> None:
    """States that one side has only for some prompts are said to be missing."""
    states = {p: {k: v for k, v in s.items() if p != "p0" or k != ALL[3]} for p, s in clean.states.items()}
    result = against(ref, replace(clean, states=states), tmp_path, floor)
    assert result.verdict is Verdict.DIVERGED
    assert "have no state here on one side" in reasons(result)


def reasons(result: Comparison) -> str:
    return "; ".join(d.reason for d in result.deltas if d.requested)
