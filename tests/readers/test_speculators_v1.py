"""speculators v0 and v1: against files of speculators 0.4.0's own code, and hand-built ones for what it never writes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from hsparity.capture.readers.base import LAST
from tests.readers import asserts

REAL = asserts.REAL / "speculators-v1"
TOKENS, WIDTH = 5, 8


def _v1(number: int = 0, count: int = 4, tokens: int = TOKENS) -> dict[str, Any]:
    states = [asserts.random_states(tokens, WIDTH, seed=10 * number + k) for k in range(count)]
    mask = torch.tensor([0] + [1] * (tokens - 1))
    return {"input_ids": torch.arange(tokens) + number, "hidden_states": states, "loss_mask": mask}


def _v0(number: int = 0) -> dict[str, Any]:
    fused = asserts.random_states(TOKENS, 3 * WIDTH, seed=number)
    target = asserts.random_states(TOKENS, WIDTH, seed=99)
    mask = torch.ones(TOKENS, dtype=torch.int64)
    return {"input_ids": torch.arange(TOKENS), "hidden_state": fused, "target": target, "loss_mask": mask}


def _folder(path: Path, *samples: Any, ids: Any = (2, 4, 5, 7)) -> Path:
    path.mkdir(parents=True, exist_ok=True)
    for i, sample in enumerate(samples):
        torch.save(sample, path / f"data_{i}.pt")
    torch.save(torch.ones(16, dtype=torch.int64), path / "token_freq.pt")
    if ids is not None:
        config = {"version": "2.0", "speculators_version": "0.4.0", "model": {"target_model_path": "m/x"}}
        (path / "data_config.json").write_text(json.dumps(config | {"hidden_states": {"layer_ids": ids}}))
    return path


def test_files_of_speculators_0_4_come_back_bit_for_bit_with_their_ids() -> None:
    dataset = asserts.opened(REAL, "speculators-v1")
    said = dataset.said()
    assert (said.producer, said.version, said.model) == ("speculators", "0.4.0", "tiny-llama")
    assert said.unknown == ("whether the last state is normed",)
    lengths = json.loads((REAL / "sample_lengths.json").read_text())
    records = dataset.records()
    assert [r.id for r in records] == ["data_0", "data_1", "data_2", "data_3"]
    for record in records:
        raw = torch.load(REAL / f"{record.id}.pt", weights_only=True)
        sample = dataset.read(record)
        assert sample.token_ids is not None
        assert sample.token_ids.tolist() == raw["input_ids"].tolist()
        assert len(sample.token_ids) == lengths[str(record.index)]
        asserts.same(sample, raw["hidden_states"])
        assert sample.loss_mask is not None
        assert sample.loss_mask.tolist() == raw["loss_mask"].tolist()
        assert sample.warnings == ()
        slots = dataset.slots(sample)
        assert [s.native_id for s in slots] == [2, 4, 5, 7]
        assert [s.role for s in slots] == ["aux", "aux", "aux", LAST]
        assert {s.normed for s in slots} == {None}


def test_a_single_file_is_read_with_the_config_beside_it() -> None:
    dataset = asserts.opened(REAL / "data_2.pt", "speculators-v1")
    (record,) = dataset.records()
    assert (record.id, record.index) == ("data_2", 2)
    assert [s.native_id for s in dataset.slots(dataset.read(record))] == [2, 4, 5, 7]


def test_v0_splits_its_fused_states_by_the_width_of_the_target(tmp_path: Path) -> None:
    """Hand-built: no release of speculators writes v0 any more; 0.3.0's standardize_data_v0 documents the keys."""
    raw = _v0()
    dataset = asserts.opened(_folder(tmp_path, raw, ids=None), "speculators-v1")
    sample = dataset.read(dataset.records()[0])
    fused = raw["hidden_state"]
    asserts.same(sample, [*(fused[:, k * WIDTH : (k + 1) * WIDTH] for k in range(3)), raw["target"]])
    assert [s.label for s in dataset.slots(sample)] == [*(f"hidden_state[{k}]" for k in range(3)), "target"]
    said = dataset.said()
    assert said.version == ""
    assert said.unknown[0] == "layer ids (no data_config.json)"
    assert "which version wrote it" in said.unknown


@pytest.mark.parametrize(
    ("config", "unknown"),
    [
        (None, "layer ids (no data_config.json)"),
        ("{", "layer ids (data_config.json cannot be read)"),
        ("[1]", "layer ids (data_config.json cannot be read)"),
        ('{"hidden_states": {"layer_ids": [2, "x"]}}', "layer ids (data_config.json lists none)"),
        ('{"hidden_states": 3, "model": []}', "layer ids (data_config.json lists none)"),
    ],
)
def test_what_the_config_does_not_say_is_unknown(tmp_path: Path, config: str | None, unknown: str) -> None:
    """Hand-built: a config as it looks after a broken run or copy."""
    folder = _folder(tmp_path, _v1(), ids=None)
    if config is not None:
        (folder / "data_config.json").write_text(config)
    dataset = asserts.opened(folder, "speculators-v1")
    said = dataset.said()
    assert said.unknown == (unknown, "whether the last state is normed", "the model")
    assert said.version == "0.3 or 0.4"
    assert [s.native_id for s in dataset.slots(dataset.read(dataset.records()[0]))] == [None] * 4


def test_ids_come_in_the_order_of_the_layers_whatever_the_config_lists(tmp_path: Path) -> None:
    """Hand-built: custom_worker.py keeps the ids as a set and stores the states as layers pass."""
    dataset = asserts.opened(_folder(tmp_path, _v1(), ids=[30, 2, 58, 60, 2]), "speculators-v1")
    assert [s.native_id for s in dataset.slots(dataset.read(dataset.records()[0]))] == [2, 30, 58, 60]


def test_a_config_of_other_files_names_no_slot_and_is_told(tmp_path: Path) -> None:
    """Hand-built: data_config.json is written at the end of every run, also of one with other ids."""
    dataset = asserts.opened(_folder(tmp_path, _v1(count=4), _v1(1, count=3)), "speculators-v1")
    whole, short = (dataset.read(r) for r in dataset.records())
    assert whole.warnings == ()
    assert short.warnings == ("data_config.json lists 4 layers (2, 4, 5, 7), it holds 3 states",)
    assert [s.native_id for s in dataset.slots(short)] == [None] * 3


def test_nan_is_a_value_like_any_other(tmp_path: Path) -> None:
    """Hand-built: speculators does not look for NaN before it writes."""
    raw = _v1()
    raw["hidden_states"][1][2, 3] = float("nan")
    dataset = asserts.opened(_folder(tmp_path, raw), "speculators-v1")
    asserts.same(dataset.read(dataset.records()[0]), raw["hidden_states"])


def _changed(**changes: Any) -> dict[str, Any]:
    raw = _v1() | changes
    return {key: value for key, value in raw.items() if value is not ...}


@pytest.mark.parametrize(
    ("sample", "text"),
    [
        (_changed(hidden_states=[]), "hidden_states"),
        (_changed(hidden_states=...), "lacks hidden_states"),
        (_changed(input_ids=...), "lacks input_ids"),
        (_changed(input_ids=torch.arange(TOKENS + 1)), "another number of rows"),
        (_changed(input_ids=torch.arange(TOKENS).float()), "input_ids"),
        (_changed(input_ids=torch.arange(TOKENS) - 1), "input_ids out of range"),
        (_changed(loss_mask=torch.ones(TOKENS - 1)), "loss_mask has another length"),
        (_changed(loss_mask="all"), "loss_mask"),
        (_changed(hidden_states=torch.zeros(TOKENS, 4, WIDTH)), "hidden_states"),
        (_changed(hidden_states=[torch.zeros(TOKENS, 8), torch.zeros(TOKENS, 9)]), "hidden_states"),
        (_changed(hidden_states=[torch.zeros(TOKENS, 8).view(torch.int32)]), "hidden_states"),
        ([1, 2], "no table of tensors"),
        (_v0(), "another layout than the first file"),
    ],
)
def test_a_sample_with_wrong_content_is_e216_and_stops_no_other(
    tmp_path: Path, sample: Any, text: str
) -> None:
    """Hand-built: what scripts of users' own have been seen to write."""
    dataset = asserts.opened(_folder(tmp_path, _v1(), sample, _v1(2)), "speculators-v1")
    assert asserts.codes(dataset) == {"data_0": "", "data_1": "E216", "data_2": ""}
    assert text in asserts.fault(dataset, dataset.records()[1]).message


def test_a_wrong_first_file_hides_no_dataset(tmp_path: Path) -> None:
    """Hand-built."""
    dataset = asserts.opened(_folder(tmp_path, {"input_ids": torch.arange(3)}, _v1(1)), "speculators-v1")
    assert asserts.codes(dataset) == {"data_0": "E216", "data_1": ""}


def test_bf16_saved_as_uint16_is_told_with_the_way_back(tmp_path: Path) -> None:
    """Hand-built: numpy has no bfloat16, so scripts save its bits."""
    bits = [h.view(torch.uint16) for h in _v1()["hidden_states"]]
    dataset = asserts.opened(_folder(tmp_path, _v1(), _changed(hidden_states=bits)), "speculators-v1")
    error = asserts.fault(dataset, dataset.records()[1])
    assert error.code == "E216"
    assert "view(torch.bfloat16)" in error.notes[1]


def test_damaged_and_unsafe_files_have_codes_and_stop_no_other(tmp_path: Path) -> None:
    """Hand-built: a copy that broke off, an empty file, and one that would run a command."""
    trace = tmp_path / "ran"
    folder = _folder(tmp_path / "set", _v1(), _v1(1), _v1(2), _v1() | {"x": asserts.Runs(trace)}, _v1(4))
    whole = (folder / "data_1.pt").read_bytes()
    (folder / "data_1.pt").write_bytes(whole[: len(whole) // 2])
    (folder / "data_2.pt").write_bytes(b"")
    dataset = asserts.opened(folder, "speculators-v1")
    found = asserts.codes(dataset)
    assert list(found.values()) == ["", "E206", "E206", "E217", ""]
    assert not trace.exists()


def test_folders_that_number_alike_keep_their_samples_apart(tmp_path: Path) -> None:
    """Hand-built: speculators' loader walks all folders below its path."""
    _folder(tmp_path / "a", _v1(), _v1(1), ids=None)
    _folder(tmp_path / "b", _v1(2), ids=None)
    records = asserts.opened(tmp_path, "speculators-v1").records()
    assert [(r.id, r.index) for r in records] == [("a/data_0", 0), ("a/data_1", 1), ("b/data_0", 2)]


def test_mask_and_ids_are_plain_arrays() -> None:
    dataset = asserts.opened(REAL, "speculators-v1")
    sample = dataset.read(dataset.records()[0])
    assert sample.token_ids is not None
    assert sample.token_ids.dtype == np.int64
    assert sample.loss_mask is not None
    assert sample.loss_mask.dtype == np.uint8
