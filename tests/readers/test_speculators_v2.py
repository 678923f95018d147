"""speculators v2: against a folder that speculators 0.9 made, and hand-built ones for what goes wrong."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from hsparity.capture.readers.base import LAST, Dataset
from tests.readers import asserts, handmade

NAME = "speculators-v2"


def _dataset(path: Path, count: int = 3, files: int = 1) -> Path:
    """Hand-built: files 0 … count-1 beside an Arrow dataset of as many rows."""
    handmade.arrow(path, [handmade.ids_of(i) for i in range(count)], files)
    for i in range(count):
        handmade.write(path / "hidden_states" / f"hs_{i}.safetensors", handmade.extracted(i))
    return path


def _hs(path: Path, number: int) -> Path:
    return path / "hidden_states" / f"hs_{number}.safetensors"


def _mask(dataset: Dataset, number: int) -> list[int] | None:
    mask = dataset.read(dataset.records()[number]).loss_mask
    return None if mask is None else mask.tolist()


def test_a_folder_of_speculators_0_9_comes_back_bit_for_bit_with_its_masks() -> None:
    folder = asserts.REAL / NAME
    dataset = asserts.opened(folder, NAME)
    records = dataset.records()
    assert [r.index for r in records] == list(range(len(records)))
    assert len(records) == 4
    for record in records:
        raw = load_file(_hs(folder, record.index))
        sample = dataset.read(record)
        assert sample.token_ids is not None
        assert sample.token_ids.tolist() == raw["token_ids"].tolist()
        asserts.same(sample, raw["hidden_states"].unbind(1))
        assert sample.loss_mask is not None
        assert set(sample.loss_mask.tolist()) == {0, 1}
        slots = dataset.slots(sample)
        assert [s.role for s in slots] == ["aux"] * 3 + [LAST]
        assert {(s.native_id, s.normed) for s in slots} == {(None, None)}
    said = dataset.said()
    assert said.unknown == ("layer ids", "the model", "whether the last state is normed")
    assert (said.producer, said.version, said.model) == ("speculators", "0.5 or later", "")


@pytest.mark.parametrize("files", [1, 2, 3])
def test_masks_come_from_the_row_of_the_files_number(tmp_path: Path, files: int) -> None:
    """Hand-built: the rows lie in several Arrow files, each in chunks of two."""
    dataset = asserts.opened(_dataset(tmp_path, 5, files), NAME)
    for i, record in enumerate(dataset.records()):
        sample = dataset.read(record)
        asserts.same(sample, handmade.extracted(i)["hidden_states"].unbind(1))
        assert _mask(dataset, i) == handmade.mask_of(handmade.ids_of(i))


def test_the_folder_of_states_or_one_file_finds_the_dataset_above(tmp_path: Path) -> None:
    """Hand-built."""
    _dataset(tmp_path)
    folder = asserts.opened(tmp_path / "hidden_states", NAME)
    assert _mask(folder, 2) == [0, 1, 0, 1, 0]
    one = asserts.opened(_hs(tmp_path, 2), NAME)
    (record,) = one.records()
    assert (record.id, record.index) == ("hs_2", 2)
    assert _mask(one, 0) == [0, 1, 0, 1, 0]


def test_without_a_dataset_the_states_are_read_and_the_mask_is_unknown(tmp_path: Path) -> None:
    """Hand-built: --hidden-states-path puts the states anywhere."""
    handmade.write(tmp_path / "hs_7.safetensors", handmade.extracted(7))
    dataset = asserts.opened(tmp_path, NAME)
    assert _mask(dataset, 0) is None
    assert dataset.said().unknown[-1] == "the loss mask (no Arrow dataset lies beside the states)"


def test_without_pyarrow_the_mask_is_unknown_and_the_command_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Hand-built: pyarrow comes with an extra."""
    dataset = asserts.opened(_dataset(tmp_path), NAME)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    assert _mask(dataset, 0) is None
    assert "pip install 'hsparity[arrow]'" in dataset.said().unknown[-1]


def test_tokens_that_are_not_the_rows_are_told_by_place_or_length(tmp_path: Path) -> None:
    """Hand-built: a dataset prepared again in another order, and a chat that the server tokenised anew."""
    _dataset(tmp_path)
    handmade.write(_hs(tmp_path, 1), handmade.extracted(2))
    handmade.write(_hs(tmp_path, 2), handmade.extracted(2, tokens=4))
    dataset = asserts.opened(tmp_path, NAME)
    assert list(asserts.codes(dataset).values()) == ["", "E216", "E216"]
    other = asserts.fault(dataset, dataset.records()[1])
    assert "first at position 0" in other.message
    assert "5 ids in row 1, 100 at position 0" in other.notes[0]
    assert "5 token_ids in the file, 200 at position 0" in other.notes[1]
    shorter = asserts.fault(dataset, dataset.records()[2])
    assert "in length only" in shorter.message
    assert "5 ids in row 2" in shorter.notes[0]
    assert "4 token_ids in the file" in shorter.notes[1]


def test_a_file_without_a_row_is_e216(tmp_path: Path) -> None:
    """Hand-built: states left from a larger dataset."""
    _dataset(tmp_path, 2)
    handmade.write(_hs(tmp_path, 5), handmade.extracted(5))
    dataset = asserts.opened(tmp_path, NAME)
    assert asserts.codes(dataset) == {"hs_0": "", "hs_1": "", "hs_5": "E216"}
    assert "no row 5" in asserts.fault(dataset, dataset.records()[2]).message


@pytest.mark.parametrize(
    ("state", "text"),
    [
        ({"_data_files": [{"filename": "../../elsewhere.arrow"}]}, "'../../elsewhere.arrow'"),
        ({"_data_files": [{"filename": "/etc/passwd"}]}, "'/etc/passwd'"),
        ({"_data_files": [], "_indices_data_files": [{"filename": "i.arrow"}]}, "another order"),
        ({"_data_files": []}, "lists no _data_files"),
        ({"_data_files": [3]}, "int"),
        ({"_split": None}, "lists no _data_files"),
        ([3], "lists no _data_files"),
    ],
)
def test_a_state_json_that_leads_elsewhere_costs_the_masks_alone(
    tmp_path: Path, state: object, text: str
) -> None:
    """Hand-built: names from inside a file are never followed out of their folder."""
    _dataset(tmp_path)
    handmade.arrow(tmp_path, [handmade.ids_of(i) for i in range(3)], state=state)
    dataset = asserts.opened(tmp_path, NAME)
    assert _mask(dataset, 0) is None
    assert text in dataset.said().unknown[-1]


@pytest.mark.parametrize("kept", [0, 40, -200])
def test_a_damaged_arrow_file_costs_the_masks_alone(tmp_path: Path, kept: int) -> None:
    """Hand-built."""
    _dataset(tmp_path)
    file = tmp_path / "data-00000-of-00001.arrow"
    file.write_bytes(file.read_bytes()[:kept])
    dataset = asserts.opened(tmp_path, NAME)
    assert set(asserts.codes(dataset).values()) == {""}
    assert _mask(dataset, 0) is None
    assert dataset.said().unknown[-1].startswith("the loss mask (")


def test_a_row_whose_offsets_lead_out_of_the_file_is_e206(tmp_path: Path) -> None:
    """Hand-built: offsets of the first chunk are 0, 5, 10; the 10 becomes two thousand million."""
    _dataset(tmp_path)
    file = tmp_path / "data-00000-of-00001.arrow"
    offsets = [n.to_bytes(4, "little") for n in (0, 5, 10, 2_000_000_000)]
    whole = file.read_bytes()
    assert whole.count(b"".join(offsets[:3])) > 0
    file.write_bytes(whole.replace(b"".join(offsets[:3]), b"".join((*offsets[:2], offsets[3]))))
    dataset = asserts.opened(tmp_path, NAME)
    assert list(asserts.codes(dataset).values()) == ["", "E206", ""]


def test_two_datasets_in_one_folder_are_not_chosen_between(tmp_path: Path) -> None:
    """Hand-built."""
    _dataset(tmp_path)
    handmade.arrow(tmp_path / "old", [[1, 2]])
    dataset = asserts.opened(tmp_path, NAME)
    assert _mask(dataset, 0) is None
    assert "2 Arrow datasets" in dataset.said().unknown[-1]


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"hidden_states": torch.zeros(5, 8)}, "hidden_states"),
        ({"hidden_states": torch.zeros(1, 5, 4, 8)}, "hidden_states"),
        ({"hidden_states": torch.zeros(4, 4, 8)}, "another number of rows"),
        ({"hidden_states": torch.zeros(5, 4, 8, dtype=torch.int64)}, "hidden_states"),
        ({"hidden_states": torch.zeros(5, 4, 8).to(torch.float8_e4m3fn)}, "hidden_states"),
        ({"token_ids": torch.zeros(5)}, "token_ids"),
        ({"token_ids": torch.zeros(5, 1, dtype=torch.int64)}, "token_ids"),
        (handmade.quantised(1), "hidden_states"),
    ],
)
def test_a_sample_with_wrong_content_is_e216_and_stops_no_other(
    tmp_path: Path, changes: dict[str, torch.Tensor], text: str
) -> None:
    """Hand-built; only the first sample decides what the format is."""
    _dataset(tmp_path)
    handmade.write(_hs(tmp_path, 1), handmade.extracted(1) | changes)
    from hsparity import registry

    dataset = registry.readers()[NAME].open(tmp_path, str(tmp_path))
    assert isinstance(dataset, Dataset)
    assert asserts.codes(dataset) == {"hs_0": "", "hs_1": "E216", "hs_2": ""}
    assert text in asserts.fault(dataset, dataset.records()[1]).message


def test_a_folder_of_bf16_and_fp8_files_is_two_formats(tmp_path: Path) -> None:
    """Hand-built: a dataset that was begun with one connector and finished with the other."""
    _dataset(tmp_path)
    handmade.write(_hs(tmp_path, 1), handmade.quantised(1))
    assert asserts.recognised_by(tmp_path) == ["hs-connectors-fp8", NAME]


def test_bf16_saved_as_uint16_is_told_with_the_way_back(tmp_path: Path) -> None:
    """Hand-built."""
    _dataset(tmp_path)
    whole = handmade.extracted(1)
    handmade.write(_hs(tmp_path, 1), whole | {"hidden_states": whole["hidden_states"].view(torch.uint16)})
    dataset = asserts.opened(tmp_path, NAME)
    error = asserts.fault(dataset, dataset.records()[1])
    assert (error.code, "view(torch.bfloat16)" in error.notes[1]) == ("E216", True)


def test_a_lacking_tensor_is_e216(tmp_path: Path) -> None:
    """Hand-built."""
    _dataset(tmp_path)
    handmade.write(_hs(tmp_path, 1), {"hidden_states": torch.zeros(5, 4, 8)})
    dataset = asserts.opened(tmp_path, NAME)
    assert "lacks token_ids" in asserts.fault(dataset, dataset.records()[1]).message


def test_damaged_files_are_e206_and_stop_no_other(tmp_path: Path) -> None:
    """Hand-built: shutil.move over file systems copies, and a copy can break off under the final name."""
    _dataset(tmp_path, 4)
    whole = _hs(tmp_path, 0).read_bytes()
    _hs(tmp_path, 0).write_bytes(whole[:-7])
    _hs(tmp_path, 1).write_bytes(b"")
    _hs(tmp_path, 2).write_bytes(b"PK\x03\x04 no safetensors at all")
    dataset = asserts.opened(tmp_path, NAME)
    assert list(asserts.codes(dataset).values()) == ["E206", "E206", "E206", ""]


def test_nan_and_a_missing_number_are_read_past(tmp_path: Path) -> None:
    """Hand-built."""
    _dataset(tmp_path)
    whole = handmade.extracted(1)
    whole["hidden_states"][2, 1, 3] = float("nan")
    handmade.write(_hs(tmp_path, 1), whole)
    _hs(tmp_path, 0).unlink()
    dataset = asserts.opened(tmp_path, NAME)
    assert [r.index for r in dataset.records()] == [1, 2]
    asserts.same(dataset.read(dataset.records()[0]), whole["hidden_states"].unbind(1))


def test_one_token_is_a_sample(tmp_path: Path) -> None:
    """Hand-built: [1, n, H] has slots, not a leading axis."""
    handmade.write(tmp_path / "hs_0.safetensors", handmade.extracted(0, tokens=1))
    dataset = asserts.opened(tmp_path, NAME)
    assert len(dataset.read(dataset.records()[0]).states) == handmade.SLOTS
