"""What is exported reads back bit for bit and looks like what the trainers' own tools write."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pyarrow
import pytest
import torch
from safetensors.torch import load_file

from hsparity.capture import foreign, importing, slotnames
from hsparity.capture.read import open_source
from hsparity.capture.readers import pickled
from hsparity.capture.readers.base import Dataset, Sample
from hsparity.demo import show
from hsparity.errors import HsparityError
from tests.readers import asserts, exports
from tests.readers.exports import FORMATS, Made

UNNORMED = ("speculators-v1", "speculators-v2")
BOUNDARIES = (2, 4, 6)
PROMPTS = (Made(6), Made(9, prefill=5), Made(4))


@pytest.fixture(scope="module")
def captures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The demo's captures: two models of 8 layers, in every engine."""
    folder = tmp_path_factory.mktemp("demo")
    show.unpack(folder)
    return folder / show.CAPTURES


@pytest.fixture(scope="module")
def demo_exports(captures: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """vLLM's boundaries 2, 4 and 6 in every format."""
    folder = tmp_path_factory.mktemp("exports")
    for name in FORMATS:
        exports.exported(captures / "vllm", folder / name, name, "2,4,6")
    return {name: folder / name for name in FORMATS}


@pytest.mark.parametrize("name", FORMATS)
def test_an_export_reads_back_bit_for_bit(captures: Path, demo_exports: dict[str, Path], name: str) -> None:
    """One reader recognises it, and its ids, auxiliary states and mask are the capture's."""
    source = open_source(captures / "vllm")
    dataset = asserts.opened(demo_exports[name], name)
    records = dataset.records()
    assert [record.id for record in records] == [
        f"data_{i}" if name != "speculators-v2" else f"hs_{i}" for i in range(4)
    ]
    for record, prompt in zip(records, source.prompts, strict=True):
        sample = dataset.read(record)
        assert sample.token_ids is not None
        assert sample.loss_mask is not None
        assert sample.token_ids.tolist() == source.token_ids(prompt.id).tolist()
        assert sample.loss_mask.tolist() == [1] * prompt.tokens
        wanted = [source.block(prompt.id, f"boundary.{b:03d}", 0, prompt.rows) for b in (*BOUNDARIES, 8)]
        if name in UNNORMED:
            asserts.same(sample, wanted)
            continue
        asserts.same(Sample(None, sample.states[:-1]), wanted[:-1])
        norm = source.norm()
        assert norm is not None
        weight, eps, plus_one = norm
        assert not plus_one
        last = wanted[-1].double()
        normed = last / (last.square().mean(1, keepdim=True) + eps).sqrt() * torch.from_numpy(weight).double()
        # bf16 has 8 bits: half a unit in the last place, and what float32 adds to that.
        assert ((sample.states[-1].double() - normed).abs() <= normed.abs() * 2**-8 * 1.01).all()


def test_the_layer_ids_of_v1_are_its_own(demo_exports: dict[str, Path]) -> None:
    """Boundary k is id k - 1 there, the last state's included."""
    dataset = asserts.opened(demo_exports["speculators-v1"], "speculators-v1")
    slots = dataset.slots(dataset.read(dataset.records()[0]))
    assert [slot.native_id for slot in slots] == [1, 3, 5, 7]
    assert dataset.said().model == "tiny:deepseek-v3"


def kinds(content: Any) -> Any:
    """A file's content by key, dtype and rank."""
    if isinstance(content, dict):
        return {key: kinds(value) for key, value in content.items()}
    if isinstance(content, list):
        return [kinds(value) for value in content]
    return (
        (str(content.dtype), content.dim()) if isinstance(content, torch.Tensor) else type(content).__name__
    )


@pytest.mark.parametrize(
    ("name", "real", "file"),
    [
        ("speculators-v1", "speculators-v1", "data_0.pt"),
        ("speculators-v2", "speculators-v2", "hidden_states/hs_0.safetensors"),
        ("specforge", "specforge/plain", "rows_0-2000/data_0.ckpt"),
    ],
)
def test_a_sample_is_laid_out_as_the_real_one(
    demo_exports: dict[str, Path], name: str, real: str, file: str
) -> None:
    """Same keys, dtypes and ranks as the producer's own file of the same name."""
    load: Any = load_file if file.endswith(".safetensors") else pickled.load
    assert kinds(load(demo_exports[name] / file)) == kinds(load(asserts.REAL / real / file))


def test_the_rows_of_v2_are_as_datasets_saves_them(demo_exports: dict[str, Path]) -> None:
    """The schema with its metadata, the features and the state are those of the real dataset."""
    mine, real = demo_exports["speculators-v2"], asserts.REAL / "speculators-v2"
    streams = [pyarrow.ipc.open_stream((f / "data-00000-of-00001.arrow").read_bytes()) for f in (mine, real)]
    assert streams[0].schema.equals(streams[1].schema, check_metadata=True)
    infos = [json.loads((f / "dataset_info.json").read_text()) for f in (mine, real)]
    assert infos[0]["features"] == infos[1]["features"]
    states = [json.loads((f / "state.json").read_text()) for f in (mine, real)]
    for state in states:
        assert len(state.pop("_fingerprint")) == 16
    assert states[0] == states[1]
    assert streams[0].read_all().column("seq_len").to_pylist() == [11] * 4


def test_what_the_v1_trainer_looks_for_lies_beside_it(demo_exports: dict[str, Path]) -> None:
    """The configuration in the real one's words, the lengths, and the count of each token."""
    mine, real = demo_exports["speculators-v1"], asserts.REAL / "speculators-v1"
    config, other = (json.loads((f / "data_config.json").read_text()) for f in (mine, real))
    assert config["version"] == other["version"]
    for part in ("model", "data", "hidden_states", "format"):
        assert set(config[part]) <= set(other[part])
    assert "speculators_version" not in config
    assert json.loads((mine / "sample_lengths.json").read_text()) == {str(i): 11 for i in range(4)}


@pytest.mark.parametrize("name", UNNORMED)
def test_token_frequencies_count_what_is_learnt(tmp_path: Path, name: str) -> None:
    """As speculators counts them: tokens under the mask."""
    exports.exported(exports.capture(tmp_path / "c", PROMPTS), tmp_path / "out", name)
    learnt = [exports.ids_of(0, 6), exports.ids_of(1, 9)[5:], exports.ids_of(2, 4)]
    flat = [token for ids in learnt for token in ids]
    assert pickled.load(tmp_path / "out" / "token_freq.pt") == {token: flat.count(token) for token in flat}


@pytest.mark.parametrize("name", FORMATS)
def test_decoded_tokens_alone_are_learnt(tmp_path: Path, name: str) -> None:
    """0 on the prompt and 1 behind it where tokens were decoded, 1 everywhere else."""
    sites = [f"boundary.{b:03d}" for b in range(5)] + ["final_norm"]
    exports.capture(tmp_path / "c", PROMPTS, sites)
    made = exports.exported(tmp_path / "c", tmp_path / "out", name)
    assert made.masks == {"everywhere": 2, "decoded": 1}
    dataset = asserts.opened(tmp_path / "out", name)
    masks = [dataset.read(record).loss_mask for record in dataset.records()]
    assert [m.tolist() for m in masks if m is not None] == [[1] * 6, [0] * 5 + [1] * 4, [1] * 4]
    last = dataset.read(dataset.records()[1]).states[-1]
    key = "boundary.004" if name in UNNORMED else "final_norm"
    assert torch.equal(last, exports.states_of(1, key, PROMPTS[1]))


@pytest.mark.parametrize("name", UNNORMED)
def test_an_export_imports_again(tmp_path: Path, name: str) -> None:
    """As a capture it holds the states of the one that it came from; exported once more it is the same dataset."""
    exports.capture(tmp_path / "c", PROMPTS)
    exports.exported(tmp_path / "c", tmp_path / "out", name)
    dataset = foreign.open_dataset(tmp_path / "out", str(tmp_path / "out"))
    importing.import_dataset(dataset, tmp_path / "back")
    back = open_source(tmp_path / "back")
    for i, prompt in enumerate(back.prompts):
        for k, key in enumerate(("boundary.001", "boundary.002", "boundary.003", "boundary.004")):
            found = back.block(prompt.id, f"slot.{k:03d}", 0, prompt.rows)
            assert torch.equal(found, exports.states_of(i, key, PROMPTS[i]))
    exports.exported(tmp_path / "back", tmp_path / "again", name, None)
    again, first = (foreign.open_dataset(tmp_path / n, n) for n in ("again", "out"))
    for mine, other in zip(again.records(), first.records(), strict=True):
        asserts.same(again.read(mine), first.read(other).states)


def test_a_named_import_exports_by_its_boundaries(tmp_path: Path) -> None:
    """--slots and --model said which boundaries they are, so a list chooses among them; without L it is E102."""
    exports.capture(tmp_path / "c", PROMPTS)
    exports.exported(tmp_path / "c", tmp_path / "out", "speculators-v1")
    dataset = foreign.open_dataset(tmp_path / "out", str(tmp_path / "out"))
    names = slotnames.parse("b1,b2,b3,last-raw")
    importing.import_dataset(dataset, tmp_path / "bare", importing.Wish(names))
    with pytest.raises(HsparityError, match="how many layers") as error:
        exports.exported(tmp_path / "bare", tmp_path / "again", "speculators-v2", "1,3")
    assert error.value.code == "E102"
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text('{"num_hidden_layers": 4, "hidden_size": 8}')
    importing.import_dataset(dataset, tmp_path / "back", importing.Wish(names, str(tmp_path / "model")))
    exports.exported(tmp_path / "back", tmp_path / "again", "speculators-v2", "1,3")
    again = asserts.opened(tmp_path / "again", "speculators-v2")
    wanted = [exports.states_of(0, f"boundary.{k:03d}", PROMPTS[0]) for k in (1, 3, 4)]
    asserts.same(again.read(again.records()[0]), wanted)


@pytest.mark.parametrize("name", FORMATS)
def test_bad_samples_are_left_out_and_counted(tmp_path: Path, name: str) -> None:
    """Missing rows and NaN are E216; those behind them close the gap, and a second run says the same."""
    prompts = [Made(4), Made(5, rows=(0, 1, 3)), Made(6, nan=True), Made(7)]
    sites = [f"boundary.{b:03d}" for b in range(5)] + ["final_norm"]
    exports.capture(tmp_path / "c", prompts, sites)
    made = exports.exported(tmp_path / "c", tmp_path / "out", name)
    assert (made.count, made.tokens) == (2, 11)
    assert [(each.id, each.code) for each in made.skipped] == [("p1", "E216"), ("p2", "E216")]
    assert "3 rows of states for 5 tokens, the first at position 2" in made.skipped[0].message
    assert "1 of 6 rows are not finite, from row 1 on" in made.skipped[1].message
    dataset = asserts.opened(tmp_path / "out", name)
    lengths = [len(dataset.read(record).states[0]) for record in dataset.records()]
    assert lengths == [4, 7]
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "out").rglob("*")}
    assert exports.exported(tmp_path / "c", tmp_path / "out", name) == made
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "out").rglob("*")} == before


def test_rows_out_of_order_are_put_in_order(tmp_path: Path) -> None:
    """A row goes where its position says."""
    exports.capture(tmp_path / "c", [Made(4, rows=(2, 0, 3, 1))])
    exports.exported(tmp_path / "c", tmp_path / "out", "speculators-v1")
    dataset = asserts.opened(tmp_path / "out", "speculators-v1")
    found = dataset.read(dataset.records()[0])
    asserts.same(found, [exports.states_of(0, f"boundary.{b:03d}", Made(4)) for b in (1, 2, 3, 4)])


def test_nothing_to_write_is_e221_and_may_be_tried_again(tmp_path: Path) -> None:
    """No sample is fit to be written: the reasons are told, and the folder is not spoilt for another try."""
    exports.capture(tmp_path / "c", [Made(5, rows=(0, 1))])
    for _ in range(2):
        with pytest.raises(HsparityError) as error:
            exports.exported(tmp_path / "c", tmp_path / "out", "speculators-v1")
        assert error.value.code == "E221"
        assert "rows are missing" in error.value.notes[0]


def test_v2_without_pyarrow_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """E108 with the pip command, and the format that needs none."""
    exports.capture(tmp_path / "c", PROMPTS)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(HsparityError) as error:
        exports.exported(tmp_path / "c", tmp_path / "out", "speculators-v2")
    assert error.value.code == "E108"
    assert "pip install 'hsparity[arrow]'" in error.value.help


def test_formats_convert_where_the_last_state_agrees(tmp_path: Path) -> None:
    """speculators v1 becomes v2, by what its trainer takes the last state to be; its loss mask comes along."""
    exports.exported(exports.capture(tmp_path / "c", PROMPTS), tmp_path / "v1", "speculators-v1")
    made = exports.exported(tmp_path / "v1", tmp_path / "v2", "speculators-v2", None)
    assert made.masks == {"file": 3}
    dataset: Dataset = asserts.opened(tmp_path / "v2", "speculators-v2")
    sample = dataset.read(dataset.records()[1])
    assert sample.loss_mask is not None
    assert sample.loss_mask.tolist() == [0] * 5 + [1] * 4
    asserts.same(sample, [exports.states_of(1, f"boundary.{b:03d}", PROMPTS[1]) for b in (1, 2, 3, 4)])
