"""A dataset that holds what the server feeds, whatever its format and its numbers."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from hsparity.audit.result import Audit
from hsparity.model import Verdict
from tests.audit import bench


def healthy(result: Audit) -> None:
    assert result.verdict is Verdict.PARITY
    assert result.headline.startswith("These are the states sglang feeds the draft: boundaries ")
    assert not bench.causes(result)
    assert result.fix == ()
    assert result.repair is None
    assert result.integrity.troubles == ()
    assert result.integrity.change == ""
    assert all(r.right for r in result.groups[0].readings)
    assert len(result.groups) == 1
    assert result.sampled == 13
    assert result.tokens == 149


@pytest.mark.parametrize("form", bench.FORMATS)
def test_the_same_boundaries_in_every_format(
    tmp_path: Path, server: Path, floor: bench.Floor, form: str
) -> None:
    result = bench.run(bench.dataset(tmp_path / "data", form), tmp_path, server, floor)
    healthy(result)
    assert bench.holds(result.groups[0].readings) == (*bench.FEEDS, bench.ENDS[form])
    assert "boundaries 2, 4, 5, within the noise floor" in result.headline


@pytest.mark.parametrize("aux", [(1, 3, 7), (3, 6, 7), (2, 4, 8)])
def test_other_boundaries_that_the_server_feeds_too(
    tmp_path: Path, floor: bench.Floor, aux: tuple[int, ...]
) -> None:
    server = bench.served(tmp_path / "server", aux)
    healthy(bench.run(bench.dataset(tmp_path / "data", bench.FORGE, aux), tmp_path, server, floor))


def test_other_ids_for_the_same_tensors_are_not_the_cause(
    tmp_path: Path, server: Path, floor: bench.Floor
) -> None:
    result = bench.run(bench.dataset(tmp_path / "data", bench.V1), tmp_path, server, floor)
    healthy(result)
    assert "same tensors, different numbering: 1, 3, 4 to" in result.numbering
    assert "2, 4, 5 to sglang are both boundaries 2, 4, 5: not your cause" in result.numbering


def test_one_id_list_read_alike_by_both_is_no_different_numbering(tmp_path: Path, floor: bench.Floor) -> None:
    """A server that adds one to ids, as SGLang's DeepSeek did from 0.5.5 to 0.5.12: built by giving it what that rule
    produces."""
    server = bench.served(tmp_path / "server", (3, 5, 6), ids=(2, 4, 5))
    result = bench.run(bench.dataset(tmp_path / "data", bench.V1, (3, 5, 6)), tmp_path, server, floor)
    healthy(result)
    assert result.numbering.startswith("same ids, same tensors: 2, 4, 5 are boundaries 3, 5, 6 to ")


@pytest.mark.parametrize("form", [bench.V2, bench.FORGE])
def test_a_format_without_ids_says_nothing_of_numbering(
    tmp_path: Path, server: Path, floor: bench.Floor, form: str
) -> None:
    result = bench.run(bench.dataset(tmp_path / "data", form), tmp_path, server, floor)
    assert result.numbering == ""


def test_ids_of_slots_come_from_the_user_where_the_files_have_none(
    tmp_path: Path, server: Path, floor: bench.Floor
) -> None:
    path = bench.dataset(tmp_path / "data", bench.V2)
    result = bench.run(path, tmp_path, server, floor, slots="1,3,4,last")
    healthy(result)
    assert "same tensors, different numbering: 1, 3, 4 to" in result.numbering


def test_boundaries_are_named_where_the_server_has_no_native_path(
    tmp_path: Path, hooks: Path, floor: bench.Floor
) -> None:
    path = bench.dataset(tmp_path / "data")
    result = bench.run(path, tmp_path, hooks, floor, boundaries=bench.FEEDS)
    assert result.verdict is Verdict.PARITY
    assert all(r.right for r in result.groups[0].readings)


def test_vllms_own_states_are_at_parity_with_no_floor_as_well(tmp_path: Path, server: Path) -> None:
    """Without a yardstick numbers that differ are no verdict; bit equality is one."""
    path = bench.written(
        tmp_path / "own", bench.V2, bench.samples((*bench.FEEDS, bench.LAST), engine="sglang")
    )
    assert bench.run(path, tmp_path, server).verdict is Verdict.PARITY
    other = bench.run(bench.dataset(tmp_path / "other", bench.V2), tmp_path / "b", server)
    assert other.verdict is Verdict.INCONCLUSIVE
    assert not bench.causes(other)


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
def test_a_dataset_kept_in_another_dtype(
    tmp_path: Path, server: Path, floor: bench.Floor, dtype: torch.dtype
) -> None:
    """What fits float16 loses nothing by it."""

    def kept(number: int, sample: bench.Sample) -> bench.Sample:
        return bench.replace(sample, states=tuple(s.to(dtype) for s in sample.states))

    result = bench.run(bench.dataset(tmp_path / "data", bench.V2, change=kept), tmp_path, server, floor)
    assert result.verdict is Verdict.PARITY, result.headline
    assert result.integrity.dtype == str(dtype).removeprefix("torch.")


def test_a_few_tokens_are_no_ground_for_a_cause(tmp_path: Path, server: Path, floor: bench.Floor) -> None:
    made = bench.samples((*bench.FEEDS, bench.LAST))[2:3]
    result = bench.run(bench.written(tmp_path / "data", bench.V2, made), tmp_path, server, floor)
    assert result.tokens == 5
    assert result.verdict is not Verdict.DIVERGED
    assert not bench.causes(result)
