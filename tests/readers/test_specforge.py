"""SpecForge's offline files: against what its own saving code wrote, and hand-built ones for the rest."""

from __future__ import annotations

import gzip
import io
from pathlib import Path
from typing import Any

import pytest
import torch

from hsparity import registry
from hsparity.capture.readers.base import LAST
from tests.readers import asserts

NAME = "specforge"
TOKENS, WIDTH = 6, 8


def _eagle3(number: int = 0, tokens: int = TOKENS) -> dict[str, Any]:
    return {
        "input_ids": torch.arange(tokens) + number,
        "loss_mask": torch.tensor([k % 2 for k in range(tokens)]),
        "aux_hidden_state": asserts.random_states(1, tokens, 3 * WIDTH, seed=number),
        "hidden_state": asserts.random_states(1, tokens, WIDTH, seed=number + 50),
    }


def _dspark() -> dict[str, Any]:
    raw = _eagle3()
    aux, last = raw.pop("aux_hidden_state"), raw.pop("hidden_state")
    return raw | {"hidden_states": aux, "target_last_hidden_states": last}


def _dflash(number: int = 0) -> dict[str, Any]:
    raw = _eagle3(number)
    del raw["hidden_state"]
    return {("hidden_states" if k == "aux_hidden_state" else k): v for k, v in raw.items()}


def _save(path: Path, content: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    out = io.BytesIO()
    torch.save(content, out)
    path.write_bytes(gzip.compress(out.getvalue(), 1) if path.suffix == ".gz" else out.getvalue())
    return path


def _parts(raw: dict[str, Any]) -> list[torch.Tensor]:
    aux = raw["aux_hidden_state"][0]
    return [*(aux[:, k * WIDTH : (k + 1) * WIDTH] for k in range(3)), raw["hidden_state"][0]]


@pytest.mark.parametrize("folder", [asserts.REAL / NAME / "plain", asserts.REAL / NAME / "compressed"])
def test_files_of_specforge_0_2_come_back_bit_for_bit(folder: Path) -> None:
    dataset = asserts.opened(folder, NAME)
    records = dataset.records()
    assert [r.id for r in records] == ["data_0", "data_1", "data_2", "data_3"]
    for record in records:
        packed = record.path.suffix == ".gz"
        file: Any = io.BytesIO(gzip.decompress(record.path.read_bytes())) if packed else record.path
        raw = torch.load(file, weights_only=True)
        sample = dataset.read(record)
        assert sample.token_ids is not None
        assert sample.token_ids.tolist() == raw["input_ids"].tolist()
        width = raw["hidden_state"].shape[-1]
        asserts.same(sample, [*raw["aux_hidden_state"][0].split(width, -1), raw["hidden_state"][0]])
        assert sample.loss_mask is not None
        assert sample.loss_mask.tolist() == raw["loss_mask"].tolist()
        slots = dataset.slots(sample)
        assert [s.role for s in slots] == ["aux"] * 3 + [LAST]
        assert {(s.native_id, s.normed) for s in slots} == {(None, None)}
    said = dataset.said()
    assert said.unknown == ("layer ids", "the model", "whether the last state is normed")
    assert (said.producer, said.version) == ("specforge", "0.1 or 0.2")


def test_groups_gz_and_holes_are_one_dataset_in_number_order(tmp_path: Path) -> None:
    """Hand-built: two groups of files, one compressed, and a number left out for a NaN."""
    names = ["rows_0-2000/data_2.ckpt", "rows_0-2000/data_10.ckpt.gz", "rows_2000-4000/data_2001.ckpt"]
    for name, i in zip(names, (2, 10, 2001), strict=True):
        _save(tmp_path / name, _eagle3(i))
    dataset = asserts.opened(tmp_path, NAME)
    records = dataset.records()
    assert [(r.id, r.index) for r in records] == [("data_2", 2), ("data_10", 10), ("data_2001", 2001)]
    for record in records:
        asserts.same(dataset.read(record), _parts(_eagle3(record.index)))
    assert any("Numbers may be missing" in note for note in dataset.said().notes)


@pytest.mark.parametrize("name", ["data_7.ckpt", "data_7.ckpt.gz"])
def test_a_single_file_is_read(tmp_path: Path, name: str) -> None:
    """Hand-built."""
    dataset = asserts.opened(_save(tmp_path / name, _eagle3(7)), NAME)
    (record,) = dataset.records()
    assert (record.id, record.index) == ("data_7", 7)
    asserts.same(dataset.read(record), _parts(_eagle3(7)))


def test_a_number_written_twice_is_two_samples(tmp_path: Path) -> None:
    """Hand-built: a run with --compress over the files of one without; SpecForge trains on both."""
    _save(tmp_path / "rows_0-2000/data_0.ckpt", _eagle3(0))
    _save(tmp_path / "rows_0-2000/data_0.ckpt.gz", _eagle3(0))
    records = asserts.opened(tmp_path, NAME).records()
    assert len({r.id for r in records}) == 2
    assert [r.index for r in records] == [0, 0]


def test_one_token_is_a_sample(tmp_path: Path) -> None:
    """Hand-built: [1, 1, 3H] has a leading axis, not slots."""
    dataset = asserts.opened(_save(tmp_path / "data_0.ckpt", _eagle3(tokens=1)), NAME)
    asserts.same(dataset.read(dataset.records()[0]), _parts(_eagle3(tokens=1)))


def test_dspark_names_its_states_otherwise(tmp_path: Path) -> None:
    """Hand-built: specforge/algorithms/dspark/providers.py."""
    dataset = asserts.opened(_save(tmp_path / "data_0.ckpt", _dspark()), NAME)
    sample = dataset.read(dataset.records()[0])
    asserts.same(sample, _parts(_eagle3()))
    labels = [s.label for s in dataset.slots(sample)]
    assert labels == [*(f"hidden_states[{k}]" for k in range(3)), "target_last_hidden_states"]


def test_dflash_holds_no_width_and_asks_for_the_slots(tmp_path: Path) -> None:
    """Hand-built: specforge/algorithms/dflash/providers.py keeps no last state."""
    _save(tmp_path / "data_0.ckpt", _dflash())
    dataset = asserts.opened(tmp_path, NAME)
    error = asserts.fault(dataset, dataset.records()[0])
    assert (error.code, "--slots" in error.help) == ("E216", True)
    assert "whether the last state is normed" not in dataset.said().unknown
    dataset.claimed = 3  # type: ignore[attr-defined]
    sample = dataset.read(dataset.records()[0])
    asserts.same(sample, _parts(_eagle3())[:3])
    assert {s.role for s in dataset.slots(sample)} == {"aux"}
    dataset.claimed = 5  # type: ignore[attr-defined]
    assert "another width" in asserts.fault(dataset, dataset.records()[0]).message


def test_nan_is_a_value_like_any_other(tmp_path: Path) -> None:
    """Hand-built: SpecForge 0.1.0 looked for NaN in one of the two only."""
    raw = _eagle3()
    raw["aux_hidden_state"][0, 3, 2] = float("nan")
    dataset = asserts.opened(_save(tmp_path / "data_0.ckpt", raw), NAME)
    asserts.same(dataset.read(dataset.records()[0]), _parts(raw))


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"hidden_state": ...}, "lacks hidden_state"),
        ({"aux_hidden_state": ...}, "lacks aux_hidden_state"),
        ({"input_ids": ...}, "lacks input_ids"),
        ({"input_ids": torch.arange(TOKENS + 2)}, "another number of rows"),
        ({"aux_hidden_state": torch.zeros(1, TOKENS, 3 * WIDTH + 1)}, "another width"),
        ({"aux_hidden_state": torch.zeros(1, TOKENS - 1, 3 * WIDTH)}, "another number of rows"),
        ({"aux_hidden_state": torch.zeros(2, TOKENS, 3 * WIDTH)}, "another number of rows"),
        ({"hidden_state": torch.zeros(1, TOKENS, WIDTH, dtype=torch.int64)}, "hidden_state"),
        ({"loss_mask": torch.ones(TOKENS + 1)}, "loss_mask has another length"),
        ({"hidden_state": None}, "hidden_state"),
        (_dflash() | {"hidden_state": ..., "aux_hidden_state": ...}, "another layout than the first"),
    ],
)
def test_a_sample_with_wrong_content_is_e216_and_stops_no_other(
    tmp_path: Path, changes: dict[str, Any], text: str
) -> None:
    """Hand-built."""
    raw = {k: v for k, v in (_eagle3(1) | changes).items() if v is not ...}
    for i, content in enumerate((_eagle3(), raw, _eagle3(2))):
        _save(tmp_path / f"rows_0-2000/data_{i}.ckpt", content)
    dataset = asserts.opened(tmp_path, NAME)
    assert list(asserts.codes(dataset).values()) == ["", "E216", ""]
    assert text in asserts.fault(dataset, dataset.records()[1]).message


def test_bf16_saved_as_uint16_is_told_with_the_way_back(tmp_path: Path) -> None:
    """Hand-built."""
    raw = _eagle3()
    raw["aux_hidden_state"] = raw["aux_hidden_state"].view(torch.uint16)
    dataset = asserts.opened(_save(tmp_path / "data_0.ckpt", raw), NAME)
    error = asserts.fault(dataset, dataset.records()[0])
    assert (error.code, "view(torch.bfloat16)" in error.notes[1]) == ("E216", True)


def test_damaged_and_unsafe_files_have_codes_and_stop_no_other(tmp_path: Path) -> None:
    """Hand-built: halves, nothing, no gzip, code, and a gzip that unpacks to a thousand times its size."""
    trace, folder = tmp_path / "ran", tmp_path / "set" / "rows_0-2000"
    for i in range(4):
        _save(folder / f"data_{i}.ckpt", _eagle3(i))
        _save(folder / f"data_{i + 4}.ckpt.gz", _eagle3(i + 4))
    for name in ("data_1.ckpt", "data_5.ckpt.gz"):
        whole = (folder / name).read_bytes()
        (folder / name).write_bytes(whole[: len(whole) // 2])
    (folder / "data_2.ckpt").write_bytes(b"")
    (folder / "data_6.ckpt.gz").write_bytes((folder / "data_0.ckpt").read_bytes())
    _save(folder / "data_3.ckpt", _eagle3() | {"hook": asserts.Runs(trace)})
    with gzip.open(folder / "data_7.ckpt.gz", "wb", 9) as bomb:
        for _ in range(80):
            bomb.write(bytes(1 << 20))
    dataset = asserts.opened(tmp_path / "set", NAME)
    found = list(asserts.codes(dataset).values())
    assert found == ["", "E206", "E206", "E217", "", "E206", "E206", "E216"]
    assert not trace.exists()


def test_ge_data_has_the_same_names_and_is_not_taken(tmp_path: Path) -> None:
    """Hand-built."""
    raw = {"input_ids": torch.arange(4), "hidden_state": torch.zeros(4, 8), "loss_mask": torch.ones(4)}
    _save(tmp_path / "data_0.ckpt", raw)
    assert NAME not in asserts.recognised_by(tmp_path)


def test_a_folder_that_holds_none_says_what_it_may(tmp_path: Path) -> None:
    """--format names a format of an empty folder: nothing is raised before a sample is asked for."""
    dataset = registry.readers()[NAME].open(tmp_path, str(tmp_path))
    assert dataset.records() == ()  # type: ignore[union-attr]
    assert dataset.said().producer == "specforge"  # type: ignore[union-attr]
