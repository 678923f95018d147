"""hs-connectors FP8: against its own reader's values, and hand-built files for what goes wrong."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest
import torch

from hsparity.capture.readers.base import LAST
from tests.readers import asserts, handmade

NAME = "hs-connectors-fp8"


def _sha256(states: torch.Tensor) -> str:
    return hashlib.sha256(states.contiguous().view(torch.uint8).numpy().tobytes()).hexdigest()


def test_values_are_those_of_hs_connectors_own_reader_bit_for_bit() -> None:
    """hs-connectors-fp8.read.json holds digests of what FP8Transfer of hs-connectors 0.9 gives back for these files."""
    dataset = asserts.opened(asserts.REAL / NAME, NAME)
    own = json.loads((asserts.REAL / f"{NAME}.read.json").read_text())
    records = dataset.records()
    assert [r.id for r in records] == list(own)
    for record in records:
        sample = dataset.read(record)
        states = torch.stack(sample.states, 1)
        assert str(states.dtype) == own[record.id]["dtype"]
        assert list(states.shape) == own[record.id]["shape"]
        assert _sha256(states) == own[record.id]["sha256"]
        assert sample.loss_mask is not None
        assert dataset.slots(sample)[-1].role == LAST
    said = dataset.said()
    assert said.settings["stored_dtype"] == "float8_e4m3fn"
    assert said.unknown == ("layer ids", "the model", "whether the last state is normed")


@pytest.mark.parametrize("number", range(3))
def test_a_value_is_fp8_times_scale_in_bfloat16(tmp_path: Path, number: int) -> None:
    """Hand-built: as the engine leaves it, named by request, with no dataset."""
    raw = handmade.quantised(number)
    file = handmade.write(tmp_path / f"cmpl-{number}-0f3a9b2c.safetensors", raw)
    expected = raw["hidden_states"].to(torch.bfloat16) * raw["hidden_states_scales"].to(torch.bfloat16)
    for path in (tmp_path, file):
        dataset = asserts.opened(path, NAME)
        (record,) = dataset.records()
        sample = dataset.read(record)
        asserts.same(sample, expected.unbind(1))
        assert sample.loss_mask is None
        # Nothing but speculators' names says that the last id was appended.
        assert {s.role for s in dataset.slots(sample)} == {"aux"}
        assert "the loss mask" in dataset.said().unknown


def test_rows_of_the_dataset_beside_are_checked_and_give_masks(tmp_path: Path) -> None:
    """Hand-built."""
    handmade.arrow(tmp_path, [handmade.ids_of(0), handmade.ids_of(1)])
    handmade.write(tmp_path / "hidden_states" / "hs_0.safetensors", handmade.quantised(0))
    handmade.write(tmp_path / "hidden_states" / "hs_1.safetensors", handmade.quantised(0))
    dataset = asserts.opened(tmp_path, NAME)
    mask = dataset.read(dataset.records()[0]).loss_mask
    assert mask is not None
    assert mask.tolist() == handmade.mask_of(handmade.ids_of(0))
    assert asserts.fault(dataset, dataset.records()[1]).code == "E216"


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"hidden_states_scales": torch.ones(5)}, "hidden_states_scales"),
        ({"hidden_states_scales": torch.ones(5, 4, 1)}, "hidden_states_scales"),
        ({"hidden_states_scales": torch.ones(4, 1, 1)}, "hidden_states_scales"),
        ({"hidden_states_scales": torch.ones(5, 1, 1, dtype=torch.float16)}, "hidden_states_scales"),
        ({"hidden_states": torch.zeros(5, 4, 8).to(torch.float8_e5m2)}, "hidden_states"),
        ({"hidden_states": torch.zeros(5, 4, 8, dtype=torch.uint8)}, "hidden_states"),
        ({"hidden_states": torch.zeros(5, 4, 8)}, "hidden_states"),
        ({"hidden_states": torch.zeros(5, 32).to(torch.float8_e4m3fn)}, "hidden_states"),
        ({"token_ids": torch.arange(6)}, "another number of rows"),
    ],
)
def test_a_sample_with_wrong_content_is_e216_and_stops_no_other(
    tmp_path: Path, changes: dict[str, torch.Tensor], text: str
) -> None:
    """Hand-built."""
    for i in range(3):
        raw = handmade.quantised(i) | (changes if i == 1 else {})
        handmade.write(tmp_path / f"hs_{i}.safetensors", raw)
    dataset = asserts.opened(tmp_path, NAME)
    assert list(asserts.codes(dataset).values()) == ["", "E216", ""]
    assert text in asserts.fault(dataset, dataset.records()[1]).message


def test_a_file_without_scales_is_e216(tmp_path: Path) -> None:
    """Hand-built: float8 without its scales is no state."""
    handmade.write(tmp_path / "hs_0.safetensors", handmade.quantised(0))
    lone = handmade.quantised(1)
    del lone["hidden_states_scales"]
    handmade.write(tmp_path / "hs_1.safetensors", lone)
    from hsparity import registry

    dataset = registry.readers()[NAME].open(tmp_path, str(tmp_path))
    assert "lacks hidden_states_scales" in asserts.fault(dataset, dataset.records()[1]).message  # type: ignore[union-attr, arg-type]


def test_nan_stays_nan_and_damaged_files_are_e206(tmp_path: Path) -> None:
    """Hand-built: a NaN makes the whole token's scale NaN."""
    raw = handmade.quantised(0)
    raw["hidden_states_scales"][2] = float("nan")
    handmade.write(tmp_path / "hs_0.safetensors", raw)
    whole = handmade.write(tmp_path / "hs_1.safetensors", handmade.quantised(1)).read_bytes()
    (tmp_path / "hs_1.safetensors").write_bytes(whole[:-1])
    (tmp_path / "hs_2.safetensors").write_bytes(b"")
    dataset = asserts.opened(tmp_path, NAME)
    assert list(asserts.codes(dataset).values()) == ["", "E206", "E206"]
    states = dataset.read(dataset.records()[0]).states
    assert [bool(torch.isnan(states[0][i]).all()) for i in range(5)] == [False, False, True, False, False]
