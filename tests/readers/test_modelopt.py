"""ModelOpt's dumps. Hand-built: ModelOpt's scripts need a GPU engine; the keys are those that its scripts save."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from hsparity.capture.readers.base import AUX, LAST
from tests.readers import asserts

TOKENS, WIDTH, AUXES = 6, 8, 3


def _sample(seed: int = 0, tokens: int = TOKENS, **other: Any) -> dict[str, Any]:
    return {
        "input_ids": torch.arange(tokens) + seed,
        "hidden_states": asserts.random_states(tokens, WIDTH, seed=seed),
        "aux_hidden_states": asserts.random_states(tokens, AUXES * WIDTH, seed=seed + 50),
        "loss_mask": torch.tensor([0, 0] + [1] * (tokens - 2)),
        "conversation_id": f"conv-{seed}",
    } | other


def _folder(path: Path, **samples: Any) -> Path:
    for name, sample in samples.items():
        torch.save(sample, path / f"{name}.pt")
    return path


def _parts(raw: dict[str, Any], key: str = "aux_hidden_states") -> list[torch.Tensor]:
    return [*raw[key].split(WIDTH, dim=1), raw["hidden_states"]]


def test_samples_come_back_bit_for_bit(tmp_path: Path) -> None:
    """Hand-built: aux states by the width of the last, ids, mask and roles."""
    raws = {"b9c1": _sample(1), "0f22": _sample(2, tokens=9)}
    dataset = asserts.opened(_folder(tmp_path, **raws), "modelopt")
    assert sorted(r.id for r in dataset.records()) == sorted(raws)
    for record in dataset.records():
        raw, sample = raws[record.id], dataset.read(record)
        asserts.same(sample, _parts(raw))
        assert sample.token_ids is not None
        assert sample.loss_mask is not None
        assert sample.token_ids.tolist() == raw["input_ids"].tolist()
        assert sample.loss_mask.tolist() == raw["loss_mask"].tolist()
        slots = dataset.slots(sample)
        assert [s.label for s in slots] == [
            *(f"aux_hidden_states[{i}]" for i in range(AUXES)),
            "hidden_states",
        ]
        assert [s.role for s in slots] == [AUX] * AUXES + [LAST]
        assert {(s.normed, s.native_id) for s in slots} == {(None, None)}


def test_what_the_files_do_not_say_is_said(tmp_path: Path) -> None:
    said = asserts.opened(_folder(tmp_path, a=_sample()), "modelopt").said()
    assert said.producer == "modelopt"
    assert "layer ids" in said.unknown
    assert any("hidden_states_prenorm" in phrase for phrase in said.unknown)


@pytest.mark.parametrize(("flag", "normed"), [(True, False), (False, None)])
def test_only_the_flag_says_that_the_last_state_is_not_normed(
    tmp_path: Path, flag: bool, normed: bool | None
) -> None:
    """Hand-built: its absence and its default say nothing, for the dump through vLLM never writes it."""
    dataset = asserts.opened(_folder(tmp_path, a=_sample(hidden_states_prenorm=flag)), "modelopt")
    assert dataset.slots(dataset.read(dataset.records()[0]))[-1].normed is normed


def test_dumps_without_a_mask_and_with_the_older_name(tmp_path: Path) -> None:
    """Hand-built: the first scripts saved no loss_mask; through TensorRT-LLM the aux states bore another name."""
    raw = _sample()
    raw["hidden_state_features"] = raw.pop("aux_hidden_states")
    del raw["loss_mask"]
    dataset = asserts.opened(_folder(tmp_path, a=raw), "modelopt")
    sample = dataset.read(dataset.records()[0])
    asserts.same(sample, _parts(raw, "hidden_state_features"))
    assert sample.loss_mask is None


def test_a_single_file(tmp_path: Path) -> None:
    raw = _sample()
    dataset = asserts.opened(_folder(tmp_path, a=raw) / "a.pt", "modelopt")
    (record,) = dataset.records()
    asserts.same(dataset.read(record), _parts(raw))


def test_nan_is_kept(tmp_path: Path) -> None:
    raw = _sample()
    raw["hidden_states"][2, 3] = float("nan")
    dataset = asserts.opened(_folder(tmp_path, a=raw), "modelopt")
    asserts.same(dataset.read(dataset.records()[0]), _parts(raw))


@pytest.mark.parametrize(
    "change",
    [
        {"aux_hidden_states": torch.zeros(TOKENS, 2 * WIDTH + 1, dtype=torch.bfloat16)},
        {"aux_hidden_states": torch.zeros(TOKENS - 1, 2 * WIDTH, dtype=torch.bfloat16)},
        {"aux_hidden_states": torch.zeros(TOKENS, 2 * WIDTH, dtype=torch.float64)},
        {"hidden_states": torch.zeros(TOKENS, WIDTH, dtype=torch.uint16)},
        {"input_ids": torch.arange(TOKENS + 1)},
        {"loss_mask": torch.ones(TOKENS + 1)},
        {"input_ids": torch.full((TOKENS,), -1)},
    ],
    ids=["width", "rows", "dtype", "uint16", "ids", "mask", "negative-ids"],
)
def test_wrong_content_is_e216_and_costs_that_sample_alone(tmp_path: Path, change: dict[str, Any]) -> None:
    dataset = asserts.opened(_folder(tmp_path, a=_sample(), b=_sample() | change), "modelopt")
    assert asserts.codes(dataset) == {"a": "", "b": "E216"}


def test_damaged_files_and_code_cost_their_samples_alone(tmp_path: Path) -> None:
    folder = _folder(
        tmp_path, a=_sample(), cut=_sample(), empty=_sample(), lacks={"input_ids": torch.arange(3)}
    )
    whole = (folder / "cut.pt").read_bytes()
    (folder / "cut.pt").write_bytes(whole[: len(whole) // 2])
    (folder / "empty.pt").write_bytes(b"")
    trace = tmp_path / "trace"
    torch.save(_sample(model=asserts.Runs(trace)), folder / "runs.pt")
    dataset = asserts.opened(folder, "modelopt")
    expected = {"a": "", "cut": "E206", "empty": "E206", "lacks": "E216", "runs": "E217"}
    assert asserts.codes(dataset) == expected
    assert not trace.exists()
