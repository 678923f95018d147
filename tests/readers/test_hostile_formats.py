"""Content that breaks what is particular to one format: claims of size, names, counts, lines, columns; each with a code.

Hand-built throughout: no producer writes these.
"""

from __future__ import annotations

import json
import shutil
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pytest
import torch
from safetensors.torch import save_file

from hsparity import registry
from hsparity.capture.readers import parts
from hsparity.capture.readers.base import Dataset, Record, read_sample
from tests.readers import asserts, handmade

pytestmark = pytest.mark.usefixtures("bounded")
TOKENS, WIDTH = 4, 8


def _claim(path: Path, shape: list[int], dtype: str = "F32") -> None:
    """A safetensors file of a header alone."""
    entry = {"dtype": dtype, "shape": shape, "data_offsets": [0, 0]}
    text = json.dumps({f"hidden_states.{i}": entry for i in range(2)}).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text)


@pytest.mark.parametrize("kind", ["header", "unknown dtype", "pickle", "expanded"])
def test_a_claim_of_endless_samples_is_one_bad_sample(tmp_path: Path, kind: str) -> None:
    many = 10**12
    if kind in ("header", "unknown dtype"):
        shape, dtype = ([many, 0, 4], "F32") if kind == "header" else ([many, 4, 8], "F4")
        _claim(tmp_path / "x.safetensors", shape, dtype)
    else:
        state = torch.empty(many, 0, 4) if kind == "pickle" else torch.zeros(1, 1, 1).expand(many, 4, 8)
        torch.save((state,) * 3, tmp_path / "x.pt")
    dataset = asserts.opened(tmp_path, "transformers")
    (record,) = dataset.records()
    assert asserts.fault(dataset, record).code in ("E206", "E216")


@pytest.mark.parametrize("packed", [True, False])
def test_a_key_of_five_thousand_digits_is_no_layer(tmp_path: Path, packed: bool) -> None:
    """int() refuses as many."""
    content = {f"hidden_states.{n}": torch.ones(1, TOKENS, WIDTH) for n in ("0", "1", "1" * 5000)}
    torch.save(
        content | {"input_ids": torch.ones(1, TOKENS, dtype=torch.int64)}, tmp_path / "x.pt"
    ) if packed else (save_file(content, tmp_path / "x.safetensors"))
    dataset = asserts.opened(tmp_path, "transformers")
    assert len(read_sample(dataset, dataset.records()[0]).states) == 2


def _copy(tmp_path: Path, name: str) -> Path:
    return Path(shutil.copytree(asserts.REAL / name, tmp_path / name))


@pytest.mark.parametrize("rids", [5, torch.tensor([1, 2]), {"a": 1}, [[1], [2]], "ab"], ids=repr)
def test_dumper_request_names_of_another_kind_are_e216(tmp_path: Path, rids: Any) -> None:
    path = _copy(tmp_path, "sglang-dumper")
    for file in path.glob("**/*name=rids*"):
        torch.save(torch.load(file) | {"value": rids}, file)
    dataset = registry.readers()["sglang-dumper"].open(path, "x")
    assert isinstance(dataset, Dataset)
    assert set(asserts.codes(dataset).values()) == {"E216"}
    assert dataset.said().producer == "sglang"


def test_dumper_names_and_settings_of_another_kind_are_left_out(tmp_path: Path) -> None:
    path = _copy(tmp_path, "sglang-dumper")
    before = asserts.codes(asserts.opened(path, "sglang-dumper"))
    first = next(path.glob("**/*.pt"))
    shutil.copy(first, first.with_name("step=1___rank=0___dump_index=1___xname=foo.pt"))
    for file in path.glob("**/*name=input_ids*"):
        content = torch.load(file)
        content["meta"]["sglang_parallel_info"] = {1: 2, "tp_size": torch.ones(1)}
        torch.save(content, file)
    dataset = asserts.opened(path, "sglang-dumper")
    assert asserts.codes(dataset) == before
    assert not {1, "tp_size"} & set(dataset.said().settings)


def test_a_tensor_dump_with_a_key_that_is_no_name_is_read(tmp_path: Path) -> None:
    path = _copy(tmp_path, "sglang-tensor-dump")
    before = asserts.codes(asserts.opened(path, "sglang-tensor-dump"))
    for file in path.glob("**/*.pt"):
        torch.save(torch.load(file) | {1: torch.ones(3)}, file)
    assert asserts.codes(asserts.opened(path, "sglang-tensor-dump")) == before


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("seq_lens", torch.tensor([2**31 - 1]), "rows of request 0"),
        ("hidden", torch.zeros(1, 1).expand(TOKENS, 5 * 10**9), "claims"),
        ("hidden", torch.zeros(TOKENS, 8).to_sparse(), "layout"),
        ("positions", torch.zeros(1, dtype=torch.int64).expand(10**10), "claims"),
    ],
    ids=["lengths", "endless", "sparse", "positions"],
)
def test_a_pass_that_claims_too_much_is_e216(tmp_path: Path, name: str, value: Any, text: str) -> None:
    batch = {
        "input_ids": torch.arange(TOKENS),
        "positions": torch.arange(TOKENS),
        "seq_lens": torch.tensor([TOKENS]),
    }
    content = {f"model.forward_batch_info.{k}": v for k, v in batch.items()} | {
        "model.norm": torch.ones(TOKENS, 8)
    }
    key = "model.embed_tokens" if name == "hidden" else f"model.forward_batch_info.{name}"
    torch.save(content, tmp_path / "Pass00000.pt")
    torch.save(content | {key: value}, tmp_path / "Pass00001.pt")
    dataset = asserts.opened(tmp_path, "sglang-tensor-dump")
    assert list(asserts.codes(dataset).values()) == ["", "E216"]
    error = asserts.fault(dataset, dataset.records()[1])
    assert text in " ".join((error.message, *error.notes))


def test_an_endless_attention_mask_is_e216(tmp_path: Path) -> None:
    states = tuple(torch.zeros(1, TOKENS, WIDTH) for _ in range(3))
    mask = torch.ones(1, 1, dtype=torch.bool).expand(1, 10**11)
    content = {
        "hidden_states": states,
        "input_ids": torch.ones(1, TOKENS, dtype=torch.int64),
        "attention_mask": mask,
    }
    torch.save(content, tmp_path / "x.pt")
    dataset = asserts.opened(tmp_path, "transformers")
    assert "claims" in asserts.fault(dataset, dataset.records()[0]).notes[1]


def _response(**meta: Any) -> dict[str, Any]:
    rows = [[[0.5] * WIDTH] * 3, [0.25] * WIDTH]
    counts = {"prompt_tokens": 3, "completion_tokens": 2}
    return {
        "meta_info": {"hidden_states": rows} | counts | meta,
        "input_ids": [1, 2, 3],
        "output_ids": [4, 5],
    }


@pytest.mark.parametrize(
    "meta",
    [
        {"prompt_tokens": 10**30},
        {"prompt_tokens": 2**62},
        {"hidden_states": [[0.5] * WIDTH], "completion_tokens": 10**30},
        {"prompt_tokens": 10**400},
        {"hidden_states": [[[10**400] * WIDTH] * 3]},
    ],
    ids=["prompt", "prompt-int64", "completion", "no-float", "value"],
)
def test_counts_that_no_response_has_are_e216(tmp_path: Path, meta: dict[str, Any]) -> None:
    lines = [json.dumps(_response(**each)) for each in ({}, meta, {})]
    (tmp_path / "a.jsonl").write_text("\n".join(lines))
    dataset = asserts.opened(tmp_path, "sglang-response")
    assert list(asserts.codes(dataset).values()) == ["", "E216", ""]


GOOD = json.dumps(_response())


@pytest.mark.parametrize(
    ("lines", "codes"),
    [
        ([GOOD[:150], GOOD, GOOD], ["E206", "", ""]),
        ([GOOD, GOOD[:150], GOOD], ["", "E206", ""]),
        (["null", "5", "{}", "[1]", '"x"', GOOD, GOOD], ["E216"] * 5 + ["", ""]),
        (["[1]", GOOD, GOOD], ["E216", "", ""]),
        ([GOOD, "null", GOOD[:9]], ["", "E216", "E206"]),
        (["", GOOD, "", GOOD, ""], ["", ""]),
        (json.dumps(_response(), indent=1).splitlines(), [""]),
        (json.dumps([_response(), None, _response()], indent=1).splitlines(), ["", "E216", ""]),
        (["[", GOOD + ",", GOOD, "]"], ["", ""]),
        ([json.dumps([_response(), 5])], ["", "E216"]),
    ],
    ids=[
        "first-cut",
        "middle-cut",
        "odd-first",
        "list-first",
        "last-cut",
        "blank",
        "one",
        "list",
        "rows",
        "one-line",
    ],
)
def test_a_bad_line_is_one_bad_sample_wherever_it_is(
    tmp_path: Path, lines: list[str], codes: list[str]
) -> None:
    (tmp_path / "a.jsonl").write_text("\n".join(lines) + "\n")
    assert list(asserts.codes(asserts.opened(tmp_path, "sglang-response")).values()) == codes


ROWS = [handmade.ids_of(0), handmade.ids_of(1)]


def _lists(values: list[Any], kind: Any = None) -> Any:
    return pyarrow.array(values, kind)


# Columns in place of (or beside) loss_mask, and what becomes of the samples.
COLUMNS: dict[str, tuple[str, Any, str]] = {
    "twice": ("loss_mask", None, "E216"),
    "struct": ("loss_mask", _lists([{"a": 1}] * 2), "E216"),
    "text": ("loss_mask", _lists([["a"] * 5] * 2), "E216"),
    "map": ("loss_mask", _lists([[("a", 1)]] * 2, pyarrow.map_(pyarrow.string(), pyarrow.int64())), "E216"),
    "nested": ("loss_mask", _lists([[[1, 0, 1, 0, 1]]] * 2), "E216"),
    "nulls": ("loss_mask", _lists([[None] * 5] * 2, pyarrow.list_(pyarrow.int64())), "E216"),
    "fractions": ("loss_mask", _lists([[0.5] * 5] * 2), "E216"),
    "no list": ("loss_mask", pyarrow.nulls(2), ""),
    "ids with a null": ("input_ids", _lists([[None, *row[1:]] for row in ROWS]), "E216"),
}


@pytest.mark.parametrize("name", COLUMNS)
def test_a_column_of_another_kind_is_never_a_mask_of_ones(tmp_path: Path, name: str) -> None:
    """Arrow's null is NaN to NumPy, and NaN is not 0."""
    column, values, code = COLUMNS[name]
    handmade.arrow(tmp_path, ROWS)
    for i in range(2):
        handmade.write(tmp_path / "hidden_states" / f"hs_{i}.safetensors", handmade.extracted(i))
    (file,) = tmp_path.glob("*.arrow")
    table = pyarrow.ipc.open_stream(file.read_bytes()).read_all()
    if values is None:
        table = table.append_column(column, table.column(column))
    else:
        table = table.set_column(table.column_names.index(column), column, values)
    with pyarrow.OSFile(str(file), "wb") as out, pyarrow.ipc.new_stream(out, table.schema) as into:
        into.write_table(table)
    dataset = asserts.opened(tmp_path, "speculators-v2")
    assert set(asserts.codes(dataset).values()) == {code}
    if not code:
        assert read_sample(dataset, dataset.records()[0]).loss_mask is None


def test_a_mask_of_numbers_keeps_what_is_not_zero() -> None:
    record = Record("a", 0, Path("a"))
    for value in (
        [0, 1, 2],
        torch.tensor([0.0, 1.0, -1.0]),
        torch.tensor([False, True, True]),
        np.array([0, 3, 4]),
    ):
        found = parts.mask(record, value, 3)
        assert found is not None
        assert found.tolist() == [0, 1, 1]
