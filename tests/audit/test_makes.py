"""Datasets that were made twice: by two versions, or with other ids from some sample on."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from hsparity.capture import foreign
from hsparity.capture.readers.base import Sample
from hsparity.model import Verdict
from tests.audit import bench
from tests.causes import real

OTHER = (3, 5, 6)


def parts(first: tuple[int, ...], then: tuple[int, ...], at: int, end: int = bench.LAST) -> list[Sample]:
    return [*bench.samples((*first, end))[:at], *bench.samples((*then, end))[at:]]


@pytest.mark.parametrize("at", [1, 6, 10, 12])
@pytest.mark.parametrize("order", [(bench.FEEDS, OTHER), (OTHER, bench.FEEDS)])
def test_the_first_sample_of_another_make(
    tmp_path: Path,
    server: Path,
    floor: bench.Floor,
    at: int,
    order: tuple[tuple[int, ...], tuple[int, ...]],
) -> None:
    path = bench.written(tmp_path / "data", bench.V2, parts(*order, at))
    result = bench.run(path, tmp_path, server, floor)
    assert result.verdict is Verdict.DIVERGED
    assert len(result.groups) == 2
    assert [g.since for g in result.groups if g.since] == [f"hs_{at}"]
    assert f"From hs_{at} on" in result.headline
    by_start = sorted(result.groups, key=lambda g: bool(g.since))
    assert [bench.holds(g.readings)[:3] for g in by_start] == list(order)
    assert [len(g.samples) for g in by_start] == [at, 13 - at]


def test_both_makes_are_put_right(tmp_path: Path, server: Path, floor: bench.Floor) -> None:
    path = bench.written(tmp_path / "data", bench.V2, parts(bench.FEEDS, (4, 2, 5), 6))
    result = bench.run(path, tmp_path, server, floor, repair=tmp_path / "out")
    assert result.repair is not None
    assert (result.repair.possible, result.repair.written) == (True, 13)
    assert result.repair.verdict is Verdict.PARITY
    found = foreign.open_dataset(tmp_path / "out", "out")
    for record, sample in zip(found.records(), bench.samples((*bench.FEEDS, bench.LAST)), strict=True):
        states = found.read(record).states
        assert all(torch.equal(a, b) for a, b in zip(states, sample.states, strict=True)), record.id


def test_three_makes_in_a_row(tmp_path: Path, server: Path, floor: bench.Floor) -> None:
    made = [*parts((4, 2, 5), bench.FEEDS, 1)[:2], *bench.samples((5, 4, 2, bench.LAST))[2:]]
    path = bench.written(tmp_path / "data", bench.V2, made)
    result = bench.run(path, tmp_path, server, floor, repair=tmp_path / "out")
    assert result.verdict is Verdict.DIVERGED
    assert sorted(g.since for g in result.groups) == ["", "hs_1", "hs_2"]
    assert result.repair is not None
    assert result.repair.verdict is Verdict.PARITY
    found = foreign.open_dataset(tmp_path / "out", "out")
    for record, sample in zip(found.records(), bench.samples((*bench.FEEDS, bench.LAST)), strict=True):
        states = found.read(record).states
        assert all(torch.equal(a, b) for a, b in zip(states, sample.states, strict=True)), record.id


def test_one_odd_sample_in_the_middle_is_no_change_of_make(
    tmp_path: Path, server: Path, floor: bench.Floor
) -> None:
    mine, other = (bench.samples((*aux, bench.LAST)) for aux in (bench.FEEDS, OTHER))
    path = bench.written(tmp_path / "data", bench.V2, [*mine[:6], other[6], *mine[7:]])
    result = bench.run(path, tmp_path, server, floor)
    assert result.verdict is Verdict.DIVERGED
    assert [(g.samples, g.since) for g in result.groups[1:]] == [(("hs_6",), "")]
    assert not result.groups[0].since


def test_a_make_that_is_not_in_the_file_cannot_be_put_right(
    tmp_path: Path, server: Path, floor: bench.Floor
) -> None:
    path = bench.written(tmp_path / "data", bench.V2, parts(bench.FEEDS, OTHER, 6))
    result = bench.run(path, tmp_path, server, floor)
    assert result.repair is not None
    assert not result.repair.possible


def test_interleaved_makes(tmp_path: Path, server: Path, floor: bench.Floor) -> None:
    """Two jobs, each with its own version, wrote into one folder by turns."""
    mine, other = (bench.samples((*aux, bench.LAST)) for aux in (bench.FEEDS, (4, 2, 5)))
    made = [other[i] if i % 2 else mine[i] for i in range(13)]
    path = bench.written(tmp_path / "data", bench.V2, made)
    result = bench.run(path, tmp_path, server, floor)
    assert result.verdict is Verdict.DIVERGED
    assert not any(g.since for g in result.groups)
    assert "6 of the sampled samples hold other states than the rest" in result.headline
    assert result.repair is not None
    assert not result.repair.possible
    assert "mixed" in result.repair.text


def test_samples_between_two_makes_that_nobody_looked_at_are_not_guessed(
    tmp_path: Path, floor: bench.Floor
) -> None:
    """The capture holds prompts 0-3 and 9-12 only: 4 to 8 may be of either make."""
    held = [0, 1, 2, 3, 9, 10, 11, 12]
    whole = real.load(real.TINY, "sglang")
    keep = [list(whole.states)[i] for i in held]
    server = bench.served(tmp_path / "server", only=keep)
    path = bench.written(tmp_path / "data", bench.V2, parts(bench.FEEDS, (4, 2, 5), 6))
    result = bench.run(path, tmp_path, server, floor, repair=tmp_path / "out")
    assert result.verdict is Verdict.DIVERGED
    assert result.repair is not None
    assert not result.repair.possible
    assert "5 samples between hs_3 and hs_9 were not sampled" in result.repair.text
    assert not (tmp_path / "out").exists()


def test_one_sample_whose_experts_went_another_way_is_no_other_make(
    tmp_path: Path, server: Path, floor: bench.Floor
) -> None:
    """In a sample of five tokens the nearest boundary is not plainly nearest: it is with the others all the same."""

    def stirred(number: int, sample: Sample) -> Sample:
        if number != 2:
            return sample
        states = list(sample.states)
        draw = torch.Generator().manual_seed(1)
        wide = states[2].float()
        away = torch.randn(wide.shape, generator=draw)
        states[2] = (wide + 0.3 * away * wide.norm(dim=1, keepdim=True) / away.norm(dim=1, keepdim=True)).to(
            torch.bfloat16
        )
        return replace(sample, states=tuple(states))

    path = bench.dataset(tmp_path / "data", bench.V2, change=stirred)
    result = bench.run(path, tmp_path, server, floor)
    assert len(result.groups) == 1
    assert all(r.right for r in result.groups[0].readings)
