"""SGLang's dumper: against files of SGLang 0.5.23, and copies of them made worse."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from hsparity.capture.readers.base import AUX
from hsparity.capture.readers.sglang_dumper import label_of, tags_of
from tests.readers import asserts
from tests.readers.real.sglang_producer import CHUNK, LONG, PROMPTS

REAL = asserts.REAL / "sglang-dumper"
LABELS = (
    "model.embed_tokens.output",
    "model.layers.3.output",
    "model.layers.4.input_layernorm.output.1",
    "model.norm.output.1",
)
DECODED = ([131], [20])  # one token each went in again in the second pass


def _file(folder: Path, step: int, name: str) -> Path:
    (found,) = folder.glob(f"run/step={step}___*name={name}___*.pt")
    return found


def _value(step: int, name: str) -> torch.Tensor:
    value = torch.load(_file(REAL, step, name), weights_only=True)["value"]
    assert isinstance(value, torch.Tensor)
    return value


def _rewrite(path: Path, **change: Any) -> None:
    torch.save(torch.load(path, weights_only=True) | change, path)


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    return Path(shutil.copytree(REAL, tmp_path / "dump"))


def test_rows_go_to_their_requests_pass_after_pass() -> None:
    """Two prompts in one batch: their prefill rows, then a decoded row each, joined by rid."""
    dataset = asserts.opened(REAL, "sglang-dumper")
    records = dataset.records()
    assert len(records) == 4
    begin = 0
    for i in range(2):
        sample = dataset.read(records[i])
        assert sample.token_ids is not None
        assert sample.token_ids.tolist() == PROMPTS[i] + DECODED[i]
        assert (sample.prefill, sample.positions) == (len(PROMPTS[i]), None)
        end = begin + len(PROMPTS[i])
        names = [f"non_intrusive__{label}" for label in LABELS]
        asserts.same(sample, [torch.cat([_value(0, n)[begin:end], _value(1, n)[i : i + 1]]) for n in names])
        begin = end


def test_slots_are_named_by_their_module_and_are_as_wide_as_the_stream() -> None:
    """qkv_proj's output, twice as wide, is none; what the slots are is left open."""
    dataset = asserts.opened(REAL, "sglang-dumper")
    slots = dataset.slots(dataset.read(dataset.records()[0]))
    assert tuple(s.label for s in slots) == LABELS
    assert {(s.role, s.native_id, s.normed, s.site) for s in slots} == {(AUX, None, None, "")}
    assert _value(0, "non_intrusive__model.layers.3.self_attn.qkv_proj.output").shape[1] == 512


def test_chunks_of_one_prompt_are_joined() -> None:
    dataset = asserts.opened(REAL, "sglang-dumper")
    sample = dataset.read(dataset.records()[2])
    assert sample.token_ids is not None
    assert sample.token_ids.tolist() == LONG
    assert (sample.prefill, sample.warnings) == (len(LONG), ())
    name = "non_intrusive__model.norm.output.1"
    assert torch.equal(sample.states[-1][CHUNK:], _value(4, name))


def test_a_cached_prefix_leaves_neither_rows_nor_ids() -> None:
    dataset = asserts.opened(REAL, "sglang-dumper")
    sample = dataset.read(dataset.records()[3])
    assert sample.token_ids is None
    assert sample.positions is not None
    assert sample.positions.tolist() == [18, 19, 20]
    assert "positions 0 to 17 were not computed here" in sample.warnings[0]


def test_a_layer_s_output_is_its_branch_and_the_next_norm_s_second_output_the_stream() -> None:
    """By Transformers' states of the same prompt."""
    dataset = asserts.opened(REAL, "sglang-dumper")
    sample = dataset.read(dataset.records()[0])
    embedding, branch, stream, last = (state[: len(PROMPTS[0])] for state in sample.states)
    states = torch.load(asserts.REAL / "transformers-tuple" / "tuple.pt", weights_only=True)
    assert torch.equal(embedding, states[0][0])
    assert asserts.apart(stream, states[4][0]) < 0.02
    assert asserts.apart(branch, states[4][0]) > 0.5
    assert asserts.apart(last, states[8][0]) > 0.5  # Transformers' last is normed
    assert any("branch alone" in note for note in dataset.said().notes)


def test_what_the_files_say_and_do_not_say() -> None:
    said = asserts.opened(REAL, "sglang-dumper").said()
    assert (said.producer, said.model, said.version) == ("sglang", "", "")
    assert "which slot is which layer's state" in said.unknown
    assert said.settings["tp_size"] == 1
    assert said.settings["tokenizer_path"] == "tiny-llama"


def test_the_folder_of_one_experiment_is_enough() -> None:
    dataset = asserts.opened(REAL / "run", "sglang-dumper")
    assert set(asserts.codes(dataset).values()) == {""}
    assert all(record.id.startswith("step") for record in dataset.records())


def test_names_without_rids_join_nothing(copy: Path) -> None:
    """A pass's request that begins at position 0 is a sample; whose later rows are, nothing says."""
    for path in copy.glob("run/*name=rids*"):
        path.unlink()
    dataset = asserts.opened(copy, "sglang-dumper")
    found = [r.id for r in dataset.records()]
    assert found == ["run/step0/0", "run/step0/1", "run/step3/0"]
    assert [len(dataset.read(r).states[0]) for r in dataset.records()] == [7, 5, CHUNK]
    assert any("rows of 4 requests" in note for note in dataset.said().notes)


def test_other_ranks_are_not_read_and_said(copy: Path) -> None:
    for path in list(copy.glob("run/step=0___rank=0*")):
        shutil.copy(path, path.with_name(path.name.replace("rank=0", "rank=1", 1)))
    dataset = asserts.opened(copy, "sglang-dumper")
    assert len(dataset.records()) == 4
    assert any("files of other ranks are not read" in note for note in dataset.said().notes)


def test_layers_are_in_the_label_where_the_name_leaves_them_out() -> None:
    """Hand-built names: a value of the user's own, and a module that all layers share."""
    tags = tags_of(
        "step=0___rank=0___dump_index=5___name=attn_out___recompute_status=disabled___layer_id=3.pt"
    )
    assert (tags["name"], tags["layer_id"]) == ("attn_out", "3")
    assert label_of(tags["name"], tags["layer_id"]) == "attn_out (layer_id 3)"
    assert label_of("non_intrusive__model.layers.3.mlp.output", "3") == "model.layers.3.mlp.output"
    assert label_of("non_intrusive__model.layers.0.rotary_emb.output.0", "3").endswith("(layer_id 3)")


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:300])


def _empty(path: Path) -> None:
    path.write_bytes(b"")


def _runs(path: Path) -> None:
    torch.save({"value": asserts.Runs(path.parent / "trace"), "meta": {}}, path)


def _shorter(path: Path) -> None:
    _rewrite(path, value=torch.tensor([6, 5]))


def _floats(path: Path) -> None:
    _rewrite(path, value=torch.tensor([7.0, 5.0]))


def _no_value(path: Path) -> None:
    torch.save({"meta": {}}, path)


@pytest.mark.parametrize(
    ("damage", "name", "code"),
    [
        (_cut, "non_intrusive__model.layers.3.output", "E206"),
        (_empty, "non_intrusive__model.layers.3.output", "E206"),
        (_runs, "non_intrusive__model.layers.3.output", "E217"),
        (_no_value, "non_intrusive__model.layers.3.output", "E216"),
        (_cut, "positions", "E206"),
        (_shorter, "seq_lens", "E216"),
        (_floats, "seq_lens", "E216"),
        (Path.unlink, "input_ids", "E216"),
    ],
)
def test_a_bad_file_costs_the_requests_of_its_pass(copy: Path, damage: Any, name: str, code: str) -> None:
    damage(_file(copy, 3, name))
    dataset = asserts.opened(copy, "sglang-dumper")
    found = asserts.codes(dataset)
    assert [c for i, c in found.items() if i.startswith("run/step3")] == [code]
    assert [c for i, c in found.items() if i.startswith(("run/step0", "run/step7"))] == ["", "", ""]
    assert not (copy / "run" / "trace").exists()


def test_a_pass_with_other_values_ends_the_sample_with_a_warning(copy: Path) -> None:
    _file(copy, 1, "non_intrusive__model.layers.3.output").unlink()
    dataset = asserts.opened(copy, "sglang-dumper")
    sample = dataset.read(dataset.records()[0])
    assert len(sample.states[0]) == len(PROMPTS[0])
    assert sample.warnings == ("rows from position 7 on are left out: other values were dumped",)


def test_the_default_mode_dumps_no_states(copy: Path) -> None:
    """DUMPER_NON_INTRUSIVE_MODE=core: ids and positions alone."""
    for path in copy.glob("run/*non_intrusive__*"):
        path.unlink()
    dataset = asserts.opened(copy, "sglang-dumper")
    assert set(asserts.codes(dataset).values()) == {"E216"}
    assert "DUMPER_NON_INTRUSIVE_MODE=all" in "".join(asserts.fault(dataset, dataset.records()[0]).notes)


def test_states_that_no_float_dtype_holds_are_no_slots(copy: Path) -> None:
    """uint16 stands for nothing here; NaN does."""
    path = _file(copy, 3, "non_intrusive__model.layers.3.output")
    value = _value(3, "non_intrusive__model.layers.3.output")
    _rewrite(path, value=value.view(torch.uint16))
    norm = _value(3, "non_intrusive__model.norm.output.1").clone()
    norm[0, 0] = float("nan")
    _rewrite(_file(copy, 3, "non_intrusive__model.norm.output.1"), value=norm)
    dataset = asserts.opened(copy, "sglang-dumper")
    sample = dataset.read(dataset.records()[2])
    assert "model.layers.3.output" not in [s.label for s in dataset.slots(sample)]
    assert bool(sample.states[-1][0, 0].isnan())
