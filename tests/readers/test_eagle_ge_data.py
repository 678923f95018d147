"""EAGLE-1/2 ge_data. Hand-built: its scripts need a GPU and are no package; eagle/ge_data/ge_data_all_vicuna.py has
the keys."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from hsparity.capture.readers.base import LAST
from tests.readers import asserts

NAME = "eagle-ge-data"
TOKENS, WIDTH = 6, 8


def _raw(number: int = 0) -> dict[str, Any]:
    states = asserts.random_states(TOKENS, WIDTH, dtype=torch.float16, seed=number)
    mask = torch.tensor([0, 0, 1, 1, 1, 0])
    return {"input_ids": torch.arange(TOKENS) + number, "hidden_state": states, "loss_mask": mask}


def _save(path: Path, content: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    torch.save(content, path)
    return path


def test_a_sample_is_its_ids_one_state_and_the_mask(tmp_path: Path) -> None:
    """Hand-built; a folder and one file of it."""
    file = _save(tmp_path / "data_4.ckpt", _raw(4))
    for path in (tmp_path, file):
        dataset = asserts.opened(path, NAME)
        (record,) = dataset.records()
        assert (record.id, record.index) == ("data_4", 4)
        sample = dataset.read(record)
        asserts.same(sample, [_raw(4)["hidden_state"]])
        assert sample.token_ids is not None
        assert sample.token_ids.tolist() == _raw(4)["input_ids"].tolist()
        assert sample.loss_mask is not None
        assert sample.loss_mask.tolist() == [0, 0, 1, 1, 1, 0]
        (slot,) = dataset.slots(sample)
        assert (slot.label, slot.role, slot.native_id, slot.normed) == ("hidden_state", LAST, None, None)
        said = dataset.said()
        assert said.unknown == ("the model", "whether the state is normed")
        assert "after the final norm" in said.notes[0]


def test_folders_of_several_jobs_are_counted_on(tmp_path: Path) -> None:
    """Hand-built: every job numbers its folder from 0; job 10 comes after job 2."""
    for name in ("0/data_0", "0/data_1", "10/data_0", "2/data_0", "2/data_1"):
        _save(tmp_path / f"{name}.ckpt", _raw())
    records = asserts.opened(tmp_path, NAME).records()
    assert [r.id for r in records] == ["0/data_0", "0/data_1", "2/data_0", "2/data_1", "10/data_0"]
    assert [r.index for r in records] == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"hidden_state": ...}, "lacks hidden_state"),
        ({"hidden_state": torch.zeros(TOKENS + 1, WIDTH)}, "another number of rows"),
        ({"hidden_state": torch.zeros(TOKENS)}, "hidden_state"),
        ({"hidden_state": torch.zeros(TOKENS, WIDTH, dtype=torch.uint16)}, "hidden_state"),
        ({"input_ids": "text"}, "input_ids"),
        ({"loss_mask": torch.ones(2)}, "loss_mask has another length"),
    ],
)
def test_a_sample_with_wrong_content_is_e216_and_stops_no_other(
    tmp_path: Path, changes: dict[str, Any], text: str
) -> None:
    """Hand-built."""
    raw = {k: v for k, v in (_raw(1) | changes).items() if v is not ...}
    for i, content in enumerate((_raw(), raw, _raw(2))):
        _save(tmp_path / f"data_{i}.ckpt", content)
    dataset = asserts.opened(tmp_path, NAME)
    assert list(asserts.codes(dataset).values()) == ["", "E216", ""]
    assert text in asserts.fault(dataset, dataset.records()[1]).message


def test_damaged_unsafe_and_nan(tmp_path: Path) -> None:
    """Hand-built."""
    trace, folder = tmp_path / "ran", tmp_path / "set"
    nan = _raw()
    nan["hidden_state"][1, 1] = float("nan")
    for i, content in enumerate((_raw(), _raw(1), _raw(2), _raw() | {"x": asserts.Runs(trace)}, nan)):
        _save(folder / f"data_{i}.ckpt", content)
    (folder / "data_1.ckpt").write_bytes((folder / "data_1.ckpt").read_bytes()[:100])
    (folder / "data_2.ckpt").write_bytes(b"")
    dataset = asserts.opened(folder, NAME)
    assert list(asserts.codes(dataset).values()) == ["", "E206", "E206", "E217", ""]
    assert not trace.exists()
    asserts.same(dataset.read(dataset.records()[4]), [nan["hidden_state"]])
