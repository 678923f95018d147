"""The last state, as each trainer takes it: before the final norm in speculators, after it in SpecForge."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from hsparity.capture import foreign
from hsparity.model import Verdict
from tests.audit import bench
from tests.causes import real


def normed(state: torch.Tensor) -> torch.Tensor:
    """The model's final norm in fp32, rounded to the state's dtype: https://arxiv.org/abs/1910.07467 eq. 4."""
    model = real.load(real.TINY, "vllm").model
    rows = state.float()
    root = torch.rsqrt(rows.pow(2).mean(-1, keepdim=True) + model.eps)
    return (rows * root * torch.from_numpy(model.norm + model.plus_one)).to(state.dtype)


@pytest.mark.parametrize("form", [bench.V1, bench.V2])
def test_a_normed_state_where_the_trainer_norms_it_itself(
    tmp_path: Path, server: Path, floor: bench.Floor, form: str
) -> None:
    path = bench.dataset(tmp_path / "data", form, last=bench.NORMED)
    result = bench.run(path, tmp_path, server, floor)
    assert result.verdict is Verdict.DIVERGED
    assert bench.causes(result) == {"HS201"}
    assert [r.right for r in result.groups[0].readings] == [True, True, True, False]
    assert result.repair is not None
    assert not result.repair.possible
    assert "a norm divides every token by its own size, which is not in the file" in result.repair.text
    assert not any("--repair" in text for text in result.next)


def test_a_repair_that_cannot_be_is_not_written(tmp_path: Path, server: Path, floor: bench.Floor) -> None:
    path = bench.dataset(tmp_path / "data", bench.V1, last=bench.NORMED)
    result = bench.run(path, tmp_path, server, floor, repair=tmp_path / "out")
    assert result.repair is not None
    assert (result.repair.possible, result.repair.out, result.repair.written) == (False, "", 0)
    assert not (tmp_path / "out").exists()


def test_a_raw_state_where_the_trainer_takes_a_normed_one(
    tmp_path: Path, server: Path, floor: bench.Floor
) -> None:
    path = bench.dataset(tmp_path / "data", bench.FORGE, last=bench.LAST)
    result = bench.run(path, tmp_path, server, floor)
    assert result.verdict is Verdict.DIVERGED
    assert bench.causes(result) == {"HS202"}
    assert result.repair is not None
    assert result.repair.possible
    assert "hidden_state: the final norm applied" in result.repair.text
    assert any("--repair" in text for text in result.next)


def test_the_norm_is_applied_in_fp32_and_the_rest_is_kept_bit_for_bit(
    tmp_path: Path, server: Path, floor: bench.Floor
) -> None:
    path = bench.dataset(tmp_path / "data", bench.FORGE, last=bench.LAST)
    result = bench.run(path, tmp_path, server, floor, repair=tmp_path / "out")
    assert result.verdict is Verdict.DIVERGED  # of what was given, whatever was written
    assert result.repair is not None
    assert (result.repair.written, result.repair.left_out) == (13, 0)
    assert result.repair.verdict is Verdict.PARITY
    before, after = (foreign.open_dataset(p, str(p)) for p in (path, tmp_path / "out"))
    assert after.format == bench.FORGE
    for old, new in zip(before.records(), after.records(), strict=True):
        assert old.index == new.index
        mine, other = before.read(old), after.read(new)
        assert mine.token_ids is not None
        assert mine.loss_mask is not None
        assert (mine.token_ids == other.token_ids).all()
        assert (mine.loss_mask == other.loss_mask).all()
        assert all(torch.equal(a, b) for a, b in zip(mine.states[:3], other.states[:3], strict=True))
        assert torch.equal(normed(mine.states[3]), other.states[3])
    # The repaired dataset is no longer wrong, and repairing is not offered again.
    again = bench.run(tmp_path / "out", tmp_path / "again", server, floor)
    assert again.verdict is Verdict.PARITY
    assert again.repair is None


def test_a_last_state_that_is_fed_too_is_judged_on_its_own(tmp_path: Path, floor: bench.Floor) -> None:
    """The server feeds boundary 8, which speculators' last state is as well: that one is normed here."""
    server = bench.served(tmp_path / "server", (2, 4, 8))
    fine = bench.dataset(tmp_path / "fine", bench.V2, (2, 4, 8))
    assert bench.run(fine, tmp_path / "a", server, floor).verdict is Verdict.PARITY
    path = bench.dataset(tmp_path / "data", bench.V2, (2, 4, 8), last=bench.NORMED)
    result = bench.run(path, tmp_path / "b", server, floor)
    assert [r.right for r in result.groups[0].readings] == [True, True, True, False]
    assert result.verdict is Verdict.DIVERGED


def test_an_earlier_layer_in_place_of_the_last_state(
    tmp_path: Path, server: Path, floor: bench.Floor
) -> None:
    path = bench.dataset(tmp_path / "data", bench.V2, last=7)
    result = bench.run(path, tmp_path, server, floor)
    assert result.verdict is Verdict.DIVERGED
    assert result.groups[0].readings[3].boundary == 7
