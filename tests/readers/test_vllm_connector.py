"""vLLM's ExampleHiddenStatesConnector: against files of the engine, and hand-built ones for what goes wrong."""

from __future__ import annotations

import fcntl
import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from tests.readers import asserts, handmade

NAME = "vllm-connector"


def _folder(path: Path, count: int = 3) -> list[Path]:
    return [
        handmade.write(path / f"cmpl-{i}-0-0f3a9b2{i}.safetensors", handmade.extracted(i))
        for i in range(count)
    ]


def test_files_of_the_engine_come_back_bit_for_bit() -> None:
    folder = asserts.REAL / NAME
    dataset = asserts.opened(folder, NAME)
    records = dataset.records()
    assert len(records) == len(list(folder.glob("*.safetensors"))) > 0
    for record in records:
        raw = load_file(folder / f"{record.id}.safetensors")
        sample = dataset.read(record)
        assert sample.token_ids is not None
        assert sample.token_ids.tolist() == raw["token_ids"].tolist()
        asserts.same(sample, raw["hidden_states"].unbind(1))
        assert sample.loss_mask is None
        assert {(s.role, s.native_id, s.normed) for s in dataset.slots(sample)} == {("aux", None, None)}
    unknown = " ".join(dataset.said().unknown)
    for word in ("layer ids", "model", "normed", "last state", "version", "loss mask"):
        assert word in unknown


def test_samples_are_counted_in_the_order_of_their_names(tmp_path: Path) -> None:
    """Hand-built: a request id holds no number of a sample, and 10 comes after 9."""
    for i in (10, 9, 2):
        handmade.write(tmp_path / f"req-{i}.safetensors", handmade.extracted(i))
    dataset = asserts.opened(tmp_path, NAME)
    assert [(r.id, r.index) for r in dataset.records()] == [("req-2", 0), ("req-9", 1), ("req-10", 2)]


def test_a_single_file_is_read(tmp_path: Path) -> None:
    """Hand-built."""
    file = _folder(tmp_path, 1)[0]
    dataset = asserts.opened(file, NAME)
    (record,) = dataset.records()
    assert record.id == file.stem
    asserts.same(dataset.read(record), handmade.extracted(0)["hidden_states"].unbind(1))


def test_a_file_whose_lock_is_held_is_e218_until_it_is_free(tmp_path: Path) -> None:
    """Hand-built: the connector opens `.lock`, takes LOCK_EX, and closes it when the file is whole."""
    files = _folder(tmp_path)
    dataset = asserts.opened(tmp_path, NAME)
    with Path(f"{files[1]}.lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert list(asserts.codes(dataset).values()) == ["", "E218", ""]
    assert list(asserts.codes(dataset).values()) == ["", "", ""]


def test_the_plain_form_has_these_tensors_too_and_is_not_taken(tmp_path: Path) -> None:
    """Hand-built."""
    file = handmade.write(tmp_path / "0.safetensors", handmade.extracted(0))
    (tmp_path / "plain.json").write_text(json.dumps({"format": "hsparity.plain/1"}))
    assert NAME not in asserts.recognised_by(tmp_path)
    assert NAME not in asserts.recognised_by(file)


def test_speculators_names_and_scales_are_other_formats(tmp_path: Path) -> None:
    """Hand-built."""
    handmade.write(tmp_path / "a" / "hs_0.safetensors", handmade.extracted(0))
    handmade.write(tmp_path / "b" / "req-0.safetensors", handmade.quantised(0))
    assert asserts.recognised_by(tmp_path / "a") == ["speculators-v2"]
    assert asserts.recognised_by(tmp_path / "b") == ["hs-connectors-fp8"]


@pytest.mark.parametrize(
    "content",
    [
        {"x": torch.zeros(3)},
        {"hidden_states": torch.zeros(5, 8), "token_ids": torch.arange(5)},
        {"hidden_states": torch.zeros(5, 4, 8), "input_ids": torch.arange(5)},
        handmade.extracted() | {"positions": torch.arange(5)},
    ],
)
def test_other_tensors_are_not_taken(tmp_path: Path, content: dict[str, torch.Tensor]) -> None:
    """Hand-built: weights, and what scripts of users' own write."""
    handmade.write(tmp_path / "req-0.safetensors", content)
    assert NAME not in asserts.recognised_by(tmp_path)


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"hidden_states": torch.zeros(6, 4, 8)}, "another number of rows"),
        ({"hidden_states": torch.zeros(5, 32)}, "hidden_states"),
        ({"token_ids": torch.arange(5) - 3}, "token_ids out of range"),
        ({"hidden_states": torch.zeros(5, 4, 8, dtype=torch.uint16)}, "hidden_states"),
    ],
)
def test_a_sample_with_wrong_content_is_e216_and_stops_no_other(
    tmp_path: Path, changes: dict[str, torch.Tensor], text: str
) -> None:
    """Hand-built."""
    files = _folder(tmp_path)
    handmade.write(files[1], handmade.extracted(1) | changes)
    dataset = asserts.opened(tmp_path, NAME)
    assert list(asserts.codes(dataset).values()) == ["", "E216", ""]
    assert text in asserts.fault(dataset, dataset.records()[1]).message


def test_damaged_files_are_e206_and_nan_is_a_value(tmp_path: Path) -> None:
    """Hand-built: vLLM writes in place, so a killed server leaves half a file."""
    files = _folder(tmp_path)
    files[0].write_bytes(files[0].read_bytes()[:60])
    files[1].write_bytes(b"")
    whole = handmade.extracted(2)
    whole["hidden_states"][0, 0, 0] = float("nan")
    handmade.write(files[2], whole)
    dataset = asserts.opened(tmp_path, NAME)
    assert list(asserts.codes(dataset).values()) == ["E206", "E206", ""]
    asserts.same(dataset.read(dataset.records()[2]), whole["hidden_states"].unbind(1))
