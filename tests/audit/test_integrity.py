"""What the files alone show: each damage named once, with its count, and never at the cost of the audit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from hsparity.capture.readers.base import Sample
from hsparity.model import Verdict
from tests.audit import bench

Edit = Callable[[Sample], Sample]


def only(number: int, edit: Edit) -> bench.Change:
    return lambda n, sample: edit(sample) if n == number else sample


def states(slot: int, fill: Callable[[torch.Tensor], object]) -> Edit:
    def edit(sample: Sample) -> Sample:
        made = [s.clone() for s in sample.states]
        fill(made[slot])
        return replace(sample, states=tuple(made))

    return edit


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-300])


def emptied(path: Path) -> None:
    path.write_bytes(b"")


def garbled(path: Path) -> None:
    path.write_bytes(b"\x00" * 400 + path.read_bytes()[400:])


def file_of(folder: Path, number: int) -> Path:
    (found,) = (p for p in folder.rglob(f"*_{number}.*") if p.is_file())
    return found


@pytest.mark.parametrize("form", bench.FORMATS)
def test_a_healthy_dataset_says_nothing(tmp_path: Path, form: str) -> None:
    result = bench.run(bench.dataset(tmp_path / "data", form), tmp_path)
    assert result.verdict is Verdict.PARITY
    assert result.integrity.troubles == ()
    assert result.integrity.change == ""
    assert (result.integrity.samples, result.integrity.read, result.integrity.tokens) == (13, 13, 149)
    assert (result.integrity.slots, result.integrity.hidden_size) == (4, 256)
    assert result.integrity.lengths == (5, 6, 46)
    assert result.server is None


@pytest.mark.parametrize("form", bench.FORMATS)
@pytest.mark.parametrize("damage", [cut, emptied, garbled])
def test_a_file_that_cannot_be_read(
    tmp_path: Path, server: Path, floor: bench.Floor, form: str, damage: Callable[[Path], None]
) -> None:
    path = bench.dataset(tmp_path / "data", form)
    damage(file_of(path, 3))
    result = bench.run(path, tmp_path, server, floor)
    (kind,) = bench.troubles(result)
    trouble = bench.troubles(result)[kind]
    assert (kind, trouble.count) == ("unreadable", 1)
    assert "[E206]" in trouble.text
    assert "_3" in trouble.samples[0]
    # The others are audited all the same.
    assert result.sampled == 12
    assert all(r.right for r in result.groups[0].readings)
    assert result.verdict is Verdict.DIVERGED
    assert "1 of 13 samples" in result.headline


NAN, INF = float("nan"), float("inf")
EDITS: dict[str, tuple[Edit, str, str]] = {
    "a NaN row": (states(1, lambda s: s[2].fill_(NAN)), "not-finite", "in 1 row"),
    "one Inf": (states(3, lambda s: s[0, 5].fill_(INF)), "not-finite", "in 1 row"),
    "zero rows": (states(2, lambda s: s[1:3].zero_()), "zero-rows", "2 rows"),
    "no loss": (lambda s: replace(s, loss_mask=s.loss_mask * 0), "unlearnt", "keeps no token"),  # type: ignore[operator]
    "a slot less": (lambda s: replace(s, states=s.states[1:]), "other-make", "3 slots of 256"),
    "another dtype": (
        lambda s: replace(s, states=tuple(t.half() for t in s.states)),
        "other-make",
        "256, float16",
    ),
}


@pytest.mark.parametrize("form", bench.FORMATS)
@pytest.mark.parametrize("name", EDITS)
@pytest.mark.parametrize("number", [0, 5])
def test_one_damaged_sample(
    tmp_path: Path, server: Path, floor: bench.Floor, form: str, name: str, number: int
) -> None:
    """The first sample among them: it must not stand for the others."""
    edit, kind, words = EDITS[name]
    path = bench.dataset(tmp_path / "data", form, change=only(number, edit))
    result = bench.run(path, tmp_path, server, floor)
    found = bench.troubles(result)
    assert set(found) == {kind}
    assert found[kind].count == 1
    assert found[kind].samples == (f"{'hs' if form == bench.V2 else 'data'}_{number}",)
    assert words in found[kind].text
    assert result.integrity.slots == 4
    assert result.integrity.dtype == "bfloat16"
    # What is damaged is no evidence on what the slots are.
    assert result.sampled == (13 if kind == "unlearnt" else 12)
    assert not bench.causes(result)
    assert all(r.right for r in result.groups[0].readings)
    assert result.verdict is (Verdict.PARITY if kind == "unlearnt" else Verdict.DIVERGED)


def test_several_samples_are_counted_once_each(tmp_path: Path) -> None:
    def damaged(number: int, sample: Sample) -> Sample:
        if number in (2, 4, 6):
            return states(number // 2, lambda s: s[:2].fill_(NAN))(sample)
        return states(0, lambda s: s[0].zero_())(sample) if number == 8 else sample

    result = bench.run(bench.dataset(tmp_path / "data", bench.V2, change=damaged), tmp_path)
    found = bench.troubles(result)
    assert {kind: t.count for kind, t in found.items()} == {"not-finite": 3, "zero-rows": 1}
    assert found["not-finite"].samples == ("hs_2", "hs_4", "hs_6")
    assert "in 6 rows" in found["not-finite"].text


def test_a_mask_that_learns_nothing_anywhere_is_wrong(tmp_path: Path) -> None:
    """A few are conversations that were cut; all of them are a mask that was never made."""
    change = lambda n, s: replace(s, loss_mask=s.loss_mask * 0)  # noqa: E731
    result = bench.run(bench.dataset(tmp_path / "data", change=change), tmp_path)
    assert {k: t.count for k, t in bench.troubles(result).items()} == {"no-loss": 13}
    assert result.verdict is Verdict.DIVERGED


@pytest.mark.parametrize("form", [bench.V1, bench.FORGE])
def test_a_mask_of_another_length(tmp_path: Path, form: str) -> None:
    path = bench.dataset(tmp_path / "data", form)
    file = file_of(path, 5)
    content = torch.load(file)
    torch.save(content | {"loss_mask": content["loss_mask"][1:]}, file)
    found = bench.troubles(bench.run(path, tmp_path))
    assert {k: t.count for k, t in found.items()} == {"unreadable": 1}
    assert "loss_mask has another length" in found["unreadable"].text


@pytest.mark.parametrize("form", [bench.V1, bench.FORGE])
def test_rows_and_tokens_of_different_number(tmp_path: Path, form: str) -> None:
    path = bench.dataset(tmp_path / "data", form)
    file = file_of(path, 5)
    content = torch.load(file)
    torch.save(content | {k: content[k][:-1] for k in ("input_ids", "loss_mask")}, file)
    found = bench.troubles(bench.run(path, tmp_path))
    assert {k: t.count for k, t in found.items()} == {"unreadable": 1}


@pytest.mark.parametrize("form", bench.FORMATS)
def test_a_copy_is_worth_knowing_and_no_more(tmp_path: Path, form: str) -> None:
    made = bench.samples((*bench.FEEDS, bench.ENDS[form]))
    result = bench.run(bench.written(tmp_path / "data", form, [*made, made[2]], bench.FEEDS), tmp_path)
    assert {k: t.count for k, t in bench.troubles(result).items()} == {"duplicate": 1}
    assert result.verdict is Verdict.PARITY


def test_the_same_tokens_of_another_make(tmp_path: Path) -> None:
    made = bench.samples((*bench.FEEDS, bench.LAST))
    other = bench.samples((3, 5, 6, bench.LAST))
    result = bench.run(bench.written(tmp_path / "data", bench.V2, [*made, other[2], other[4]]), tmp_path)
    found = bench.troubles(result)
    assert {k: t.count for k, t in found.items()} == {"same-tokens": 2}
    assert found["same-tokens"].samples == ("hs_13", "hs_14")
    assert result.verdict is Verdict.DIVERGED


def test_the_same_tokens_run_twice_are_no_damage(tmp_path: Path) -> None:
    """An engine need not give the same bits twice: here two engines, on all the same prompts."""
    made = [bench.samples((*bench.FEEDS, bench.LAST), engine) for engine in ("vllm", "sglang")]
    result = bench.run(bench.written(tmp_path / "data", bench.V2, [*made[0], *made[1]]), tmp_path)
    assert {k: t.count for k, t in bench.troubles(result).items()} == {"run-again": 13}
    assert result.verdict is Verdict.PARITY


@pytest.mark.parametrize("form", bench.FORMATS)
def test_missing_numbers(tmp_path: Path, form: str) -> None:
    path = bench.dataset(tmp_path / "data", form)
    for number in (3, 7):
        file_of(path, number).unlink()
    result = bench.run(path, tmp_path)
    found = bench.troubles(result)
    assert {k: t.count for k, t in found.items()} == {"missing": 2}
    assert found["missing"].samples == ("3", "7")
    assert result.verdict is Verdict.PARITY  # SpecForge leaves records out as it writes


def test_rows_that_repeat_the_one_before(tmp_path: Path) -> None:
    edit = states(3, lambda s: s[2].copy_(s[1]))
    result = bench.run(bench.dataset(tmp_path / "data", change=only(0, edit)), tmp_path)
    found = bench.troubles(result)
    assert {k: t.count for k, t in found.items()} == {"repeated-rows": 1}
    assert "1 row" in found["repeated-rows"].text
    assert result.verdict is Verdict.PARITY


def test_the_headline_tells_what_made_the_verdict(tmp_path: Path) -> None:
    """Rows that repeat are no damage, and come first in the list."""

    def change(number: int, sample: Sample) -> Sample:
        return states(3, lambda s: s[2].copy_(s[1]))(sample) if number == 0 else sample

    made = bench.samples((*bench.FEEDS, bench.LAST), change=change)
    other = bench.samples((3, 5, 6, bench.LAST))
    result = bench.run(bench.written(tmp_path / "data", bench.V2, [*made, other[4]]), tmp_path)
    assert set(bench.troubles(result)) == {"repeated-rows", "same-tokens"}
    assert result.verdict is Verdict.DIVERGED
    assert "states of another size" in result.headline


def test_damaged_samples_are_left_out_of_a_repair(tmp_path: Path, server: Path, floor: bench.Floor) -> None:
    def change(number: int, sample: Sample) -> Sample:
        return states(1, lambda s: s[0].fill_(NAN))(sample) if number in (0, 4) else sample

    path = bench.dataset(tmp_path / "data", bench.V2, change=change)
    emptied(file_of(path, 7))
    result = bench.run(path, tmp_path, server, floor, repair=tmp_path / "out")
    assert result.repair is not None
    assert (result.repair.possible, result.repair.written, result.repair.left_out) == (True, 10, 3)
    assert result.repair.verdict is Verdict.PARITY
    again = bench.run(tmp_path / "out", tmp_path / "again", server, floor)
    assert again.verdict is Verdict.PARITY
    assert again.integrity.troubles == ()
    assert again.integrity.samples == 10


def test_a_step_in_the_norms_is_told_and_settles_nothing(tmp_path: Path) -> None:
    """Forty samples of one make, forty of another, on tokens of their own."""
    rng = np.random.default_rng(5)

    def many(aux: tuple[int, ...]) -> list[Sample]:
        found = []
        for sample in bench.samples((*aux, bench.LAST))[:2] * 20:
            assert sample.token_ids is not None
            found.append(replace(sample, token_ids=rng.integers(0, 512, len(sample.token_ids))))
        return found

    path = bench.written(tmp_path / "data", bench.V2, [*many(bench.FEEDS), *many((3, 5, 6))])
    result = bench.run(path, tmp_path)
    assert result.integrity.change == "hs_40"
    assert result.verdict is Verdict.INCONCLUSIVE
    whole = bench.written(tmp_path / "whole", bench.V2, [*many(bench.FEEDS), *many(bench.FEEDS)])
    assert bench.run(whole, tmp_path / "b").integrity.change == ""
