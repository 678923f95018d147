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
from hsparity.yardstick import assign, own_kind, usable
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


# An engine against itself: prompts of 24 tokens, of which the last eight are decoded on one side and prefilled on the other.
DECODED = {f"p{i}": 16 for i in range(8)}


def rough(made: Capture, size: float, decoded: bool, seed: int = 5) -> Capture:
    """Decode rows (or the others) off by `size` of their norm, times the square root of the boundary."""
    rng = np.random.default_rng(seed)

    def change(_: str, states: States) -> States:
        for key, rows in states.items():
            at = slice(16, None) if decoded else slice(0, 16)
            depth = int(key[9:]) if key.startswith("boundary") else len(ALL) - 1
            draw = rng.standard_normal(rows[at].shape)
            norms = np.linalg.norm(rows[at], axis=1, keepdims=True)
            scale = size * np.sqrt(depth) / np.linalg.norm(draw, axis=1, keepdims=True)
            rows[at] += scale * norms * draw
        return states

    return edited(made, change)


def run_of(made: Capture, folder: Path, **changes: object) -> Source:
    return open_source(replace(made, **changes).write(folder))


def test_decode_rows_are_held_to_what_decoding_alone_does(
    ref: Source, floor: list[Source], tmp_path: Path
) -> None:
    """Where one side decoded what the other prefilled, the pair's decode rows are held to what the engine itself
    differs by there: fewer of them are beyond e0's tail, and the report and the ratio say so."""
    cand = run_of(rough(capture(2), 0.006, True), tmp_path / "cand", prefill=DECODED)
    own = run_of(rough(capture(1), 0.012, True, seed=6), tmp_path / "own", prefill=DECODED)
    alone, beside = compare(ref, cand, floor, Query()), compare(ref, cand, [*floor, own], Query())
    assert "prefill against decode" in beside.floor.source
    assert "decode against prefill rows allowed up to" in beside.floor.source
    plain, wide = (next(r for r in c.delta(8).ratios if r.of == "pair") for c in (alone, beside))  # type: ignore[union-attr]
    assert wide.share < plain.share
    assert "allowed" in wide.reason
    assert "allowed" not in plain.reason
    sides = ([r for r in c.delta(8).ratios if r.of != "pair"][:2] for c in (alone, beside))  # type: ignore[union-attr]
    assert next(sides) == next(sides)


def test_an_own_floor_excuses_only_the_rows_it_measured(
    ref: Source, floor: list[Source], tmp_path: Path
) -> None:
    """Prefill rows that are off are accused as without it, however rough decoding is."""
    own = run_of(rough(capture(1), 0.006, True), tmp_path / "own", prefill=DECODED)
    cand = run_of(rough(capture(1), 0.02, False), tmp_path / "cand", prefill=DECODED)
    assert compare(ref, cand, [*floor, own], Query()).verdict is Verdict.DIVERGED


def test_a_faulty_side_is_beyond_the_reference_however_it_repeats(
    ref: Source, floor: list[Source], tmp_path: Path
) -> None:
    """A fault in decoding that its own floor shows as well: the side's own error to fp32 is never widened."""
    faulty = rough(capture(1), 0.05, True)
    cand = run_of(faulty, tmp_path / "cand", prefill=DECODED)
    own = run_of(rough(capture(1), 0.05, True, seed=6), tmp_path / "own", prefill=DECODED)
    assert compare(ref, cand, [*floor, own], Query()).verdict is Verdict.DIVERGED


@pytest.mark.parametrize(("size", "verdict"), [(0.004, Verdict.PARITY), (0.05, Verdict.INCONCLUSIVE)])
def test_a_changed_setting_excuses_rounding_and_no_more(
    ref: Source, tmp_path: Path, size: float, verdict: Verdict
) -> None:
    """Without fp32 and bf16, a difference that the engine's own floor shows too is parity while it is as small as
    rounding; what is larger may be the fault that is looked for, and is open."""
    cand = run_of(rough(capture(1), size, True), tmp_path / "cand", prefill=DECODED)
    own = run_of(rough(capture(1), size, True, seed=6), tmp_path / "own", prefill=DECODED)
    result = compare(ref, cand, [own], Query())
    assert result.verdict is verdict
    assert "prefill against decode of the" in result.floor.source
    if verdict is Verdict.INCONCLUSIVE:
        assert "hsparity floor --only fp32,bf16" in reasons(result)


@pytest.mark.parametrize(
    ("changes", "kind"),
    [
        ({}, "repeat"),
        ({"settings": {"batch": 8}}, "batch"),
        ({"prefill": DECODED}, "prefill-decode"),
        ({"steps": {"p0": [0] * 12 + [1] * 12}}, "chunked"),
        ({"settings": {"chunked_prefill": True}}, "repeat"),
        ({"settings": {"batch": 8}, "prefill": DECODED}, None),
        ({"settings": {"attention_backend": "other"}}, None),
        ({"version": "0.31.0"}, None),
    ],
)
def test_what_a_capture_is_to_a_side(
    ref: Source, tmp_path: Path, changes: dict[str, object], kind: str | None
) -> None:
    """Nothing changed is a repeat, one thing its own kind, two things or another kernel no floor at all; chunking that
    was asked for and changed no pass is nothing changed."""
    assert own_kind(ref, run_of(capture(1), tmp_path / "own", **changes)) == kind


def test_another_batch_is_asked_of_a_pair_of_batches(ref: Source, tmp_path: Path) -> None:
    """A pair whose sides ran in other batches is held to the engine's own batch floor, not to its repeat."""
    cand = run_of(rough(capture(1), 0.002, True), tmp_path / "cand", settings={"batch": 8})
    again = run_of(capture(1), tmp_path / "again")
    own = run_of(rough(capture(1), 0.002, True, seed=6), tmp_path / "own", settings={"batch": 8})
    assert assign(ref, again, [own, run_of(capture(1), tmp_path / "third")]).own == "repeat"
    assert assign(ref, cand, [own, again]).own == "batch"
    result = compare(ref, cand, [own, again], Query())
    assert result.verdict is Verdict.PARITY
    assert "another batch shape of the reference" in result.floor.source


def test_floors_that_nobody_named_are_used_or_left(ref: Source, floor: list[Source], tmp_path: Path) -> None:
    """What lies beside a side and is of no use to the pair is left out in silence; what was named is refused aloud."""
    other = floors(tmp_path / "other", Toy(width=64))
    cand = run_of(capture(2), tmp_path / "cand", engine="sglang", version="0.5.23")
    assert usable(ref, cand, [*other, *floor]) == floor
    assert usable(ref, cand, other) == []
    with pytest.raises(HsparityError, match="another model"):
        compare(ref, cand, other, Query())
