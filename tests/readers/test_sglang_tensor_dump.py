"""SGLang's tensor dump: against files of SGLang 0.5.23, and copies of them made worse."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from hsparity.capture.readers.base import AUX
from tests.readers import asserts
from tests.readers.real.sglang_producer import PROMPTS

REAL = asserts.REAL / "sglang-tensor-dump"
(RANK,) = (path.name for path in REAL.iterdir())
TOP = "model.forward_batch_info"


def _pass(number: int, folder: Path = REAL / RANK) -> dict[str, Any]:
    content = torch.load(folder / f"Pass{number:05d}.pt", weights_only=True)
    assert isinstance(content, dict)
    return content


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    return Path(shutil.copytree(REAL, tmp_path / "dump"))


def test_rows_go_to_their_requests() -> None:
    dataset = asserts.opened(REAL, "sglang-tensor-dump")
    assert [r.id for r in dataset.records()] == ["Pass00000/0", "Pass00000/1"]
    raw, begin = _pass(0), 0
    for record, ids in zip(dataset.records(), PROMPTS, strict=True):
        sample = dataset.read(record)
        assert sample.token_ids is not None
        assert sample.token_ids.tolist() == ids
        rows = slice(begin, begin + len(ids))
        held = {s.label: state for s, state in zip(dataset.slots(sample), sample.states, strict=True)}
        assert torch.equal(held["model.embed_tokens"], raw["model.embed_tokens"][rows])
        assert torch.equal(held["model.norm[1]"], raw["model.norm"][1][rows])
        assert torch.equal(
            held["model.layers.7.input_layernorm[1]"], raw["model.layers.7.input_layernorm"][1][rows]
        )
        begin += len(ids)


def test_slots_are_leaf_outputs_as_wide_as_the_stream() -> None:
    dataset = asserts.opened(REAL, "sglang-tensor-dump")
    slots = dataset.slots(dataset.read(dataset.records()[0]))
    labels = [s.label for s in slots]
    assert len(labels) == 18
    assert "model.layers.0.mlp.gate_up_proj" not in labels
    assert {(s.role, s.native_id, s.normed) for s in slots} == {(AUX, None, None)}


def test_the_top_module_s_output_lies_in_the_next_file() -> None:
    """Pass 1 decodes two tokens, and its `model` has the twelve rows of pass 0, which the reader leaves alone."""
    held = _pass(1)
    assert len(held[f"{TOP}.input_ids"]) == 2
    assert torch.equal(held["model"], _pass(0)["model.norm"][0])
    assert "model" not in _pass(0)


def test_what_the_leaf_outputs_are() -> None:
    """By Transformers' states of the same prompt: a norm's second output is the stream, down_proj's the branch."""
    dataset = asserts.opened(REAL, "sglang-tensor-dump")
    sample = dataset.read(dataset.records()[0])
    held = {s.label: state for s, state in zip(dataset.slots(sample), sample.states, strict=True)}
    states = torch.load(asserts.REAL / "transformers-tuple" / "tuple.pt", weights_only=True)
    assert asserts.apart(held["model.layers.7.input_layernorm[1]"], states[7][0]) < 0.02
    assert asserts.apart(held["model.norm[0]"], states[8][0]) < 0.02
    assert asserts.apart(held["model.norm[1]"], states[8][0]) > 0.5
    assert asserts.apart(held["model.layers.7.mlp.down_proj"], states[8][0]) > 0.5


def test_what_the_files_do_not_say_is_said() -> None:
    said = asserts.opened(REAL, "sglang-tensor-dump").said()
    assert said.producer == "sglang"
    assert "which slot is which layer's state" in said.unknown
    assert any("rows of 2 requests that begin past position 0" in note for note in said.notes)


def test_a_single_file() -> None:
    dataset = asserts.opened(REAL / RANK / "Pass00000.pt", "sglang-tensor-dump")
    assert asserts.codes(dataset) == {"Pass00000/0": "", "Pass00000/1": ""}


def test_other_ranks_are_not_read_and_said(copy: Path) -> None:
    shutil.copytree(copy / RANK, copy / RANK.replace("TP0_PP0_Rank0", "TP1_PP0_Rank1"))
    dataset = asserts.opened(copy, "sglang-tensor-dump")
    assert [r.id for r in dataset.records()] == [f"{RANK}/Pass00000/0", f"{RANK}/Pass00000/1"]
    assert any("2 files of other ranks" in note for note in dataset.said().notes)


def _changed(folder: Path, number: int, **change: Any) -> None:
    """Hand-built: pass 0 with other values, as another pass."""
    content = _pass(0) | {f"{TOP}.{key}": value for key, value in change.items()}
    torch.save({k: v for k, v in content.items() if v is not None}, folder / f"Pass{number:05d}.pt")


def test_bad_files_cost_their_passes_alone(copy: Path) -> None:
    folder = copy / RANK
    whole = (folder / "Pass00000.pt").read_bytes()
    (folder / "Pass00002.pt").write_bytes(whole[: len(whole) // 2])
    (folder / "Pass00003.pt").write_bytes(b"")
    torch.save(_pass(0) | {"model.odd": asserts.Runs(copy / "trace")}, folder / "Pass00004.pt")
    _changed(folder, 5, seq_lens=torch.tensor([6, 6]))
    _changed(folder, 6, positions=None)
    torch.save([1, 2], folder / "Pass00007.pt")
    _changed(folder, 8, input_ids=torch.arange(11))
    _changed(folder, 9, positions=torch.zeros(12))
    expected = {"Pass00002": "E206", "Pass00003": "E206", "Pass00004": "E217"}
    expected |= {f"Pass0000{k}": "E216" for k in range(5, 10)}
    found = asserts.codes(asserts.opened(copy, "sglang-tensor-dump"))
    assert found == {"Pass00000/0": "", "Pass00000/1": ""} | expected
    assert not (copy / "trace").exists()


def test_padding_after_the_last_request_is_cut(copy: Path) -> None:
    """Hand-built: rows that data parallelism or a graph adds belong to nobody."""
    _changed(copy / RANK, 0, seq_lens=torch.tensor([7]))
    dataset = asserts.opened(copy / RANK / "Pass00000.pt", "sglang-tensor-dump")
    (record,) = dataset.records()
    sample = dataset.read(record)
    assert len(sample.states[0]) == len(PROMPTS[0])
    assert sample.warnings == ("5 rows after the last request are left out as padding",)


def test_a_dump_without_any_hint_of_the_hidden_size_is_e216(copy: Path) -> None:
    """Hand-built: --debug-tensor-dump-layers of a model whose modules bear other names."""
    path = copy / RANK / "Pass00000.pt"
    kept = {k: v for k, v in _pass(0).items() if k.endswith(("qkv_proj", "o_proj")) or TOP in k}
    torch.save(kept, path)
    dataset = asserts.opened(path, "sglang-tensor-dump")
    error = asserts.fault(dataset, dataset.records()[0])
    assert error.code == "E216"
    assert "widths 256, 512" in "".join(error.notes)


def test_nan_is_kept_and_other_dtypes_are_counted(copy: Path) -> None:
    path = copy / RANK / "Pass00000.pt"
    content = _pass(0)
    content["model.embed_tokens"] = content["model.embed_tokens"].clone()
    content["model.embed_tokens"][0, 0] = float("nan")
    content["model.layers.0.mlp.down_proj"] = content["model.layers.0.mlp.down_proj"].float()
    torch.save(content, path)
    dataset = asserts.opened(path, "sglang-tensor-dump")
    sample = dataset.read(dataset.records()[0])
    assert bool(sample.states[0][0, 0].isnan())
    assert sample.warnings == ("1 values of another dtype are left out",)
