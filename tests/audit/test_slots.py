"""Slots in the wrong order, one too many, twice the same, or no state at all."""

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


def slot_is(slot: int, made: bench.Change) -> bench.Change:
    """Sample i with one slot of `made(i, sample)`."""

    def change(number: int, sample: Sample) -> Sample:
        states = list(sample.states)
        states[slot] = made(number, sample).states[slot]
        return replace(sample, states=tuple(states))

    return change


def noise(number: int, sample: Sample) -> Sample:
    draw = torch.Generator().manual_seed(number)
    states = [(torch.randn(s.shape, generator=draw) * s.float().std()).to(s.dtype) for s in sample.states]
    return replace(sample, states=tuple(states))


def update(number: int, sample: Sample) -> Sample:
    """Slot k is what its layer adds, without the residual."""
    sites = list(real.load(real.TINY, "vllm").states.values())[number]
    made = [sites[bench.key(b)] - sites[bench.key(b - 1)] for b in (*bench.FEEDS, bench.LAST)]
    return replace(sample, states=tuple(torch.from_numpy(m).to(torch.bfloat16) for m in made))


def doubled(number: int, sample: Sample) -> Sample:
    return replace(sample, states=tuple((2 * s.float()).to(s.dtype) for s in sample.states))


@pytest.mark.parametrize("form", bench.FORMATS)
@pytest.mark.parametrize("aux", [(5, 2, 4), (4, 2, 5)])
def test_permuted_slots_are_put_in_order(
    tmp_path: Path, server: Path, floor: bench.Floor, form: str, aux: tuple[int, ...]
) -> None:
    path = bench.dataset(tmp_path / "data", form, aux, said=())
    result = bench.run(path, tmp_path, server, floor, repair=tmp_path / "out")
    assert result.verdict is Verdict.DIVERGED
    assert bench.causes(result) == {"HS105"}
    assert result.repair is not None
    assert result.repair.verdict is Verdict.PARITY
    assert result.repair.written == 13
    expected = bench.samples((*bench.FEEDS, bench.ENDS[form]))
    found = foreign.open_dataset(tmp_path / "out", "out")
    for record, sample in zip(found.records(), expected, strict=True):
        states = found.read(record).states
        assert all(torch.equal(a, b) for a, b in zip(states, sample.states, strict=True))


@pytest.mark.parametrize("aux", [(5, 2, 4), (2, 2, 5)])
def test_no_id_list_is_advised_for_slots_that_no_server_feeds(
    tmp_path: Path, server: Path, floor: bench.Floor, aux: tuple[int, ...]
) -> None:
    """Ascending and each once is how every engine hands them over."""
    path = bench.dataset(tmp_path / "data", bench.V2, aux)
    result = bench.run(path, tmp_path, server, floor)
    assert not any("write ids" in text for text in result.fix)
    assert not any("--ids" in text for text in result.next)


def test_a_slot_that_repeats_another(tmp_path: Path, server: Path, floor: bench.Floor) -> None:
    path = bench.dataset(tmp_path / "data", bench.V2, (2, 2, 5))
    result = bench.run(path, tmp_path, server, floor)
    assert result.verdict is Verdict.DIVERGED
    assert bench.causes(result) == {"HS106"}
    assert [r.right for r in result.groups[0].readings] == [True, False, True, True]
    assert result.repair is not None
    assert not result.repair.possible
    assert "boundary 4 is not in the file" in result.repair.text


@pytest.mark.parametrize("form", bench.FORMATS)
def test_a_slot_too_many_is_left_out(tmp_path: Path, server: Path, floor: bench.Floor, form: str) -> None:
    path = bench.dataset(tmp_path / "data", form, (2, 4, 5, 7))
    result = bench.run(path, tmp_path, server, floor, repair=tmp_path / "out")
    assert result.verdict is Verdict.DIVERGED
    assert "4 auxiliary slots, the server feeds 3" in result.headline
    assert bench.holds(result.groups[0].readings) == (2, 4, 5, 7, bench.ENDS[form])
    assert result.repair is not None
    assert result.repair.verdict is Verdict.PARITY
    assert "[3] left out" in result.repair.text or "[:, 3] left out" in result.repair.text
    again = bench.run(tmp_path / "out", tmp_path / "again", server, floor)
    assert again.verdict is Verdict.PARITY


def test_a_slot_too_many_in_front(tmp_path: Path, server: Path, floor: bench.Floor) -> None:
    path = bench.dataset(tmp_path / "data", bench.V2, (1, 2, 4, 5))
    result = bench.run(path, tmp_path, server, floor, repair=tmp_path / "out")
    assert result.repair is not None
    assert result.repair.verdict is Verdict.PARITY


def test_slots_too_few(tmp_path: Path, floor: bench.Floor) -> None:
    server = bench.served(tmp_path / "server", (2, 4, 5, 6, 7))
    result = bench.run(bench.dataset(tmp_path / "data", bench.V2), tmp_path, server, floor)
    assert result.verdict is Verdict.DIVERGED
    assert "3 auxiliary slots, the server feeds 5" in result.headline
    assert result.repair is not None
    assert "boundary 6 is not in the file" in result.repair.text


def test_a_last_slot_that_is_no_last_state_is_no_accusation(
    tmp_path: Path, server: Path, floor: bench.Floor
) -> None:
    """vLLM launched with --no-include-last-layer: its files look the same, one slot fewer."""
    made = [replace(s, states=s.states[:3]) for s in bench.samples((*bench.FEEDS, bench.LAST))]
    path = bench.written(tmp_path / "data", bench.V2, made)
    result = bench.run(path, tmp_path, server, floor)
    assert result.verdict is Verdict.INCONCLUSIVE
    assert "--slots ?,?,?" in result.headline
    told = bench.run(path, tmp_path, server, floor, slots="?,?,?", work=tmp_path / "told")
    assert told.verdict is Verdict.PARITY


def test_noise(tmp_path: Path, server: Path, floor: bench.Floor) -> None:
    path = bench.dataset(tmp_path / "data", bench.V2, change=slot_is(1, noise))
    result = bench.run(path, tmp_path, server, floor)
    reading = result.groups[0].readings[1]
    assert result.verdict is Verdict.DIVERGED
    assert (reading.holds, reading.boundary, reading.right) == ("", None, False)
    assert [r.right for r in result.groups[0].readings] == [True, False, True, True]
    assert result.repair is not None
    assert not result.repair.possible


def test_the_residual_is_missing(tmp_path: Path, server: Path, floor: bench.Floor) -> None:
    path = bench.dataset(tmp_path / "data", bench.V2, change=slot_is(1, update))
    result = bench.run(path, tmp_path, server, floor)
    assert result.verdict is Verdict.DIVERGED
    assert bench.causes(result) == {"HS204"}
    assert result.groups[0].readings[1].holds == ""
    assert result.repair is not None
    assert not result.repair.possible
    assert "HS204 residual-missing" in result.repair.text


def test_a_constant_factor(tmp_path: Path, server: Path, floor: bench.Floor) -> None:
    path = bench.dataset(tmp_path / "data", bench.V2, change=slot_is(1, doubled))
    result = bench.run(path, tmp_path, server, floor)
    assert result.verdict is Verdict.DIVERGED
    assert bench.causes(result) == {"HS207"}


def test_rows_of_the_next_token(tmp_path: Path, server: Path, floor: bench.Floor) -> None:
    """Trainers shift ids against states; a dataset that is stored shifted is not what the server feeds."""

    def shifted(number: int, sample: Sample) -> Sample:
        return replace(sample, states=tuple(s.roll(1, 0) for s in sample.states))

    path = bench.dataset(tmp_path / "data", bench.V2, change=shifted)
    result = bench.run(path, tmp_path, server, floor)
    assert result.verdict is Verdict.DIVERGED
    assert bench.causes(result)
    assert result.repair is not None
    assert not result.repair.possible
