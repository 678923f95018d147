"""Transformers tuples: files that transformers 5.24.0 filled, and hand-built ones for what it does not give."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from hsparity.capture.readers.base import AUX, LAST, Record
from tests.readers import asserts
from tests.readers.real.transformers_producer import ASKED, PROMPTS

REAL = asserts.REAL / "transformers-tuple"
ENTRIES, TOKENS, WIDTH = 4, 5, 8


def _raw(name: str) -> Any:
    return torch.load(REAL / name, weights_only=True)


def _states(batch: int = 1, seed: int = 0, tokens: int = TOKENS) -> tuple[torch.Tensor, ...]:
    return tuple(asserts.random_states(batch, tokens, WIDTH, seed=seed + k) for k in range(ENTRIES))


def _dict(batch: int = 1, **other: Any) -> dict[str, Any]:
    ids = torch.arange(batch * TOKENS).reshape(batch, TOKENS)
    return {"input_ids": ids, "hidden_states": _states(batch)} | other


def test_the_real_folder_holds_five_samples() -> None:
    dataset = asserts.opened(REAL, "transformers")
    found = [(r.id, r.index) for r in dataset.records()]
    assert found == [("asked", 0), ("batch[0]", 1), ("batch[1]", 2), ("numbered", 3), ("tuple", 4)]
    assert asserts.codes(dataset) == dict.fromkeys((name for name, _ in found), "")


def test_a_bare_tuple_has_no_ids() -> None:
    dataset = asserts.opened(REAL / "tuple.pt", "transformers")
    sample = dataset.read(dataset.records()[0])
    assert sample.token_ids is None
    asserts.same(sample, [s[0] for s in _raw("tuple.pt")])
    slots = dataset.slots(sample)
    assert [s.native_id for s in slots] == list(range(9))
    assert [s.role for s in slots] == [AUX] * 8 + [LAST]
    assert {s.normed for s in slots} == {None}


def test_numbered_tensors() -> None:
    dataset = asserts.opened(REAL / "numbered.safetensors", "transformers")
    sample = dataset.read(dataset.records()[0])
    assert sample.token_ids is not None
    assert sample.token_ids.tolist() == PROMPTS[0]
    held = load_file(REAL / "numbered.safetensors")
    asserts.same(sample, [held[f"hidden_states.{i}"][0] for i in range(9)])


def test_a_list_of_ids_leaves_none_elsewhere() -> None:
    """From 5.23 on entry i is boundary i and the list is one longer than in 5.17 to 5.22."""
    dataset = asserts.opened(REAL / "asked.pt", "transformers")
    sample = dataset.read(dataset.records()[0])
    whole = _raw("tuple.pt")
    asserts.same(sample, [whole[i][0] for i in ASKED])
    assert [(s.label, s.role) for s in dataset.slots(sample)] == [
        ("hidden_states[1]", AUX),
        ("hidden_states[3]", AUX),
        ("hidden_states[7]", AUX),
    ]


def test_padding_is_cut_by_the_mask() -> None:
    dataset = asserts.opened(REAL / "batch.pt", "transformers")
    raw = _raw("batch.pt")["hidden_states"]
    whole, padded = (dataset.read(r) for r in dataset.records())
    for sample, ids in zip((whole, padded), PROMPTS, strict=True):
        assert sample.token_ids is not None
        assert sample.token_ids.tolist() == ids
    asserts.same(whole, [s[0] for s in raw])
    asserts.same(padded, [s[1, 2:] for s in raw])


def test_what_the_files_do_not_say_is_said() -> None:
    said = asserts.opened(REAL / "tuple.pt", "transformers").said()
    assert said.producer == "hf"
    assert "whether the last entry is normed" in said.unknown
    assert any("after the final norm" in note for note in said.notes)


@pytest.mark.parametrize("key", ["hidden_states.{}", "hidden_states_{}"])
def test_numbered_tensors_without_a_batch_axis(tmp_path: Path, key: str) -> None:
    """Hand-built: eleven entries, so that text order would be wrong."""
    states = [asserts.random_states(TOKENS, WIDTH, seed=k) for k in range(11)]
    save_file({key.format(i): s for i, s in enumerate(states)}, tmp_path / "a.safetensors")
    dataset = asserts.opened(tmp_path, "transformers")
    asserts.same(dataset.read(dataset.records()[0]), states)


def test_a_choice_of_numbered_tensors_has_no_last(tmp_path: Path) -> None:
    """Hand-built: entry 28 may be any layer, as long as nothing says how many there were."""
    kept = {f"hidden_states.{i}": asserts.random_states(1, TOKENS, WIDTH, seed=i) for i in (2, 15, 28)}
    save_file(kept, tmp_path / "a.safetensors")
    dataset = asserts.opened(tmp_path, "transformers")
    slots = dataset.slots(dataset.read(dataset.records()[0]))
    assert [(s.native_id, s.role) for s in slots] == [(2, AUX), (15, AUX), (28, AUX)]


def test_a_list_in_a_dict(tmp_path: Path) -> None:
    """Hand-built: some callers make a list of it. Without a batch axis it is speculators' layout."""
    torch.save(_dict(hidden_states=list(_states())), tmp_path / "data_0.pt")
    dataset = asserts.opened(tmp_path, "transformers")
    asserts.same(dataset.read(dataset.records()[0]), [s[0] for s in _states()])
    torch.save(_dict(hidden_states=[s[0] for s in _states()]), tmp_path / "data_0.pt")
    assert asserts.recognised_by(tmp_path) == ["speculators-v1"]


def test_nan_is_kept(tmp_path: Path) -> None:
    states = _states()
    states[1][0, 2, 3] = float("nan")
    torch.save(states, tmp_path / "a.pt")
    dataset = asserts.opened(tmp_path, "transformers")
    asserts.same(dataset.read(dataset.records()[0]), [s[0] for s in states])


def test_a_batch_without_a_mask_is_e216(tmp_path: Path) -> None:
    """Hand-built: nothing says which rows are padding, in either sample."""
    torch.save(_dict(batch=2), tmp_path / "a.pt")
    dataset = asserts.opened(tmp_path, "transformers")
    assert asserts.codes(dataset) == {"a[0]": "E216", "a[1]": "E216"}
    assert "attention_mask" in "".join(asserts.fault(dataset, dataset.records()[0]).notes)


@pytest.mark.parametrize(
    "raw",
    [
        _dict(input_ids=torch.arange(TOKENS + 1)[None]),
        _dict(attention_mask=torch.zeros(1, TOKENS, dtype=torch.int64)),
        _dict(hidden_states=(*_states(), torch.zeros(1, TOKENS, WIDTH + 1, dtype=torch.bfloat16))),
        _dict(hidden_states=(*_states(), torch.zeros(1, TOKENS, WIDTH))),
        _dict(hidden_states=tuple(s.view(torch.uint16) for s in _states())),
        _dict(hidden_states="none"),
        {"weights": torch.zeros(3)},
        7,
    ],
    ids=["ids", "padding-alone", "width", "dtype", "uint16", "text", "other", "number"],
)
def test_wrong_content_is_e216_and_costs_that_sample_alone(tmp_path: Path, raw: Any) -> None:
    torch.save(_dict(), tmp_path / "a.pt")
    torch.save(raw, tmp_path / "b.pt")
    assert asserts.codes(asserts.opened(tmp_path, "transformers")) == {"a": "", "b": "E216"}


def test_damaged_files_and_code_cost_their_samples_alone(tmp_path: Path) -> None:
    for name in ("a", "cut", "empty"):
        torch.save(_dict(), tmp_path / f"{name}.pt")
    whole = (tmp_path / "cut.pt").read_bytes()
    (tmp_path / "cut.pt").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "empty.pt").write_bytes(b"")
    save_file({"hidden_states.0": _states()[0]}, tmp_path / "short.safetensors")
    whole = (tmp_path / "short.safetensors").read_bytes()
    (tmp_path / "short.safetensors").write_bytes(whole[:-5])
    trace = tmp_path / "trace"
    torch.save(_dict(output=asserts.Runs(trace)), tmp_path / "runs.pt")
    dataset = asserts.opened(tmp_path, "transformers")
    expected = {"a": "", "cut": "E206", "empty": "E206", "runs": "E217", "short": "E206"}
    assert asserts.codes(dataset) == expected
    assert not trace.exists()


def test_a_file_that_changed_since_it_was_listed_is_e216(tmp_path: Path) -> None:
    torch.save(_dict(), tmp_path / "a.pt")
    dataset = asserts.opened(tmp_path, "transformers")
    assert asserts.fault(dataset, Record("a[3]", 3, tmp_path / "a.pt", 3)).code == "E216"
