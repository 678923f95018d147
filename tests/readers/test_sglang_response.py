"""SGLang responses: against answers of SGLang 0.5.23, and hand-built ones for what those do not show."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from hsparity.capture.readers.base import AUX, LAST
from hsparity.capture.readers.sglang_response import SglangResponse
from tests.readers import asserts
from tests.readers.real.sglang_producer import CHUNK, LONG, PROMPTS

REAL = asserts.REAL / "sglang-response"
WIDTH = 4
PROMPT, OUTPUT = [5, 6, 7], [8, 9]  # of the hand-built ones


def _real(name: str) -> Any:
    return json.loads((REAL / f"{name}.json").read_text())


def _rows_of(answer: dict[str, Any]) -> torch.Tensor:
    """All rows of a real answer, in the bf16 that the model computed."""
    first, *steps = answer["meta_info"]["hidden_states"]
    return torch.tensor([*first, *steps]).to(torch.bfloat16)


def _opened(path: Path, claimed: int | None = None) -> SglangResponse:
    dataset = asserts.opened(path, "sglang-response")
    assert isinstance(dataset, SglangResponse)
    dataset.claimed = claimed
    return dataset


def _answer(width: int = WIDTH, rows: Any = None, **meta: Any) -> dict[str, Any]:
    """Hand-built: three prompt tokens, two made, the second of which never goes in."""
    values = asserts.random_states(4, width).tolist()
    info = {
        "prompt_tokens": 3,
        "completion_tokens": 2,
        "cached_tokens": 0,
        "hidden_states": [values[:3], values[3]] if rows is None else rows,
    }
    return {"input_ids": PROMPT, "output_ids": OUTPUT, "meta_info": info | meta}


def _write(path: Path, *answers: Any) -> Path:
    path.write_text("".join(f"{json.dumps(a)}\n" for a in answers))
    return path


def test_rows_of_prompt_and_steps_with_their_ids() -> None:
    """The prompt's ids come from its logprobs, which this request asked for."""
    dataset = _opened(REAL / "two.json")
    assert [r.id for r in dataset.records()] == ["two[0]", "two[1]"]
    for record, answer, prompt in zip(dataset.records(), _real("two"), PROMPTS, strict=True):
        sample = dataset.read(record)
        assert sample.token_ids is not None
        assert sample.token_ids.tolist() == prompt + answer["output_ids"][:2]
        assert (sample.prefill, sample.positions, sample.warnings) == (len(prompt), None, ())
        asserts.same(sample, [_rows_of(answer)])
        assert sample.states[0].shape == (len(prompt) + 2, 256)


def test_they_are_the_states_after_the_final_norm() -> None:
    """By Transformers' states of the same prompt; the file says nothing of it."""
    dataset = _opened(REAL / "two.json")
    sample = dataset.read(dataset.records()[0])
    states = torch.load(asserts.REAL / "transformers-tuple" / "tuple.pt", weights_only=True)
    assert asserts.apart(sample.states[0][: len(PROMPTS[0])], states[8][0]) < 0.02
    assert [(s.label, s.role, s.normed) for s in dataset.slots(sample)] == [("hidden_states", AUX, None)]


def test_the_last_chunk_alone_is_laid_at_the_end_of_the_prompt() -> None:
    dataset = _opened(REAL / "chunked.json")
    sample = dataset.read(dataset.records()[0])
    assert sample.token_ids is None
    assert sample.positions is not None
    assert sample.positions.tolist() == list(range(CHUNK, len(LONG) + 2))
    assert "the first 16 of 20 prompt tokens have no row" in sample.warnings[0]
    assert "only the last prefill chunk comes back" in sample.warnings[0]
    assert "no prompt ids" in sample.warnings[1]
    asserts.same(sample, [_rows_of(_real("chunked"))])


def test_a_cached_prefix_is_told_from_a_chunk() -> None:
    dataset = _opened(REAL / "cached.json")
    sample = dataset.read(dataset.records()[0])
    assert sample.positions is not None
    assert sample.positions.tolist() == [18, 19, 20, 21, 22]
    assert "18 tokens came from the prefix cache" in sample.warnings[0]


def test_a_folder_of_answers() -> None:
    dataset = _opened(REAL)
    found = [(r.id, r.index) for r in dataset.records()]
    assert found == [("cached", 0), ("chunked", 1), ("two[0]", 2), ("two[1]", 3)]
    assert set(asserts.codes(dataset).values()) == {""}


def test_what_the_files_do_not_say_is_said() -> None:
    dataset = _opened(REAL)
    said = dataset.said()
    assert said.producer == "sglang"
    assert "whether a row is one state or several side by side" in said.unknown
    assert "whether the state is normed" in said.unknown
    dataset.claimed = 3
    assert dataset.said().unknown == ("layer ids", "model", "version")


@pytest.mark.parametrize(("claimed", "slots", "role"), [(None, 1, AUX), (0, 1, LAST), (3, 3, AUX)])
def test_auxiliary_states_are_split_only_where_the_user_says_how_many(
    tmp_path: Path, claimed: int | None, slots: int, role: str
) -> None:
    """Hand-built: SGLang's auxiliary states side by side, [rows, 3H]."""
    dataset = _opened(_write(tmp_path / "aux.jsonl", _answer(3 * WIDTH)), claimed)
    sample = dataset.read(dataset.records()[0])
    wide = asserts.random_states(4, 3 * WIDTH)
    asserts.same(sample, wide.split(3 * WIDTH // slots, dim=1))
    assert [s.role for s in dataset.slots(sample)] == [role] * slots


def test_a_claim_that_does_not_divide_the_width_is_e216(tmp_path: Path) -> None:
    dataset = _opened(_write(tmp_path / "aux.jsonl", _answer(3 * WIDTH)), 5)
    assert asserts.fault(dataset, dataset.records()[0]).code == "E216"


def test_numbers_that_bfloat16_does_not_hold_stay_float32(tmp_path: Path) -> None:
    """Hand-built: of a model in float32; one such value is enough."""
    values = asserts.random_states(4, WIDTH).float()
    values[1, 2] = 1.0000001
    answer = _answer(rows=[values[:3].tolist(), values[3].tolist()])
    dataset = _opened(_write(tmp_path / "a.jsonl", answer))
    asserts.same(dataset.read(dataset.records()[0]), [values])


def test_null_is_nan(tmp_path: Path) -> None:
    """Hand-built: the server's JSON has null for NaN, Python's has NaN."""
    answer = _answer()
    answer["meta_info"]["hidden_states"][0][1][2] = None
    answer["meta_info"]["hidden_states"][1][0] = float("nan")
    dataset = _opened(_write(tmp_path / "a.jsonl", answer))
    state = dataset.read(dataset.records()[0]).states[0]
    assert state.dtype == torch.bfloat16
    assert state.isnan().nonzero().tolist() == [[1, 2], [3, 0]]


@pytest.mark.parametrize(
    "spelled",
    [
        {"prompt_token_ids": PROMPT, "output_token_ids": OUTPUT},
        {"request": {"input_ids": PROMPT}, "output_ids": OUTPUT},
        {"input_ids": PROMPT, "logged": True},
    ],
    ids=["token-ids", "request", "output-logprobs"],
)
def test_where_ids_are_found(tmp_path: Path, spelled: dict[str, Any]) -> None:
    """Hand-built: answers that their writers kept together with the question, in several ways."""
    answer = {"meta_info": _answer()["meta_info"]} | spelled
    if answer.pop("logged", False):
        answer["meta_info"]["output_token_logprobs"] = [[-1.5, i, None] for i in OUTPUT]
    dataset = _opened(_write(tmp_path / "a.jsonl", answer))
    sample = dataset.read(dataset.records()[0])
    assert sample.token_ids is not None
    assert sample.token_ids.tolist() == PROMPT + OUTPUT[:1]


def test_rows_whose_ids_are_not_there_are_left_out(tmp_path: Path) -> None:
    """Hand-built: the prompt's ids alone, as a client that knows only its question keeps them."""
    answer = _answer()
    del answer["output_ids"]
    dataset = _opened(_write(tmp_path / "a.jsonl", answer))
    sample = dataset.read(dataset.records()[0])
    assert sample.token_ids is not None
    assert sample.token_ids.tolist() == PROMPT
    assert sample.states[0].shape == (3, WIDTH)
    assert sample.warnings == ("1 rows are left out: the ids of their tokens are not here",)


def test_a_part_of_the_prompt_s_logprobs_is_no_prompt(tmp_path: Path) -> None:
    """Hand-built: logprob_start_len 1."""
    answer = _answer(input_token_logprobs=[[-1.0, i, None] for i in PROMPT[1:]])
    del answer["input_ids"]
    dataset = _opened(_write(tmp_path / "a.jsonl", answer))
    assert dataset.read(dataset.records()[0]).token_ids is None


def test_the_newest_row_alone(tmp_path: Path) -> None:
    """Hand-built: return_hidden_states "last" keeps the row of the last step, for the token before the last."""
    row = asserts.random_states(1, WIDTH)
    dataset = _opened(_write(tmp_path / "a.jsonl", _answer(rows=[row[0].tolist()])))
    sample = dataset.read(dataset.records()[0])
    assert sample.positions is not None
    assert sample.positions.tolist() == [3]
    asserts.same(sample, [row])


def test_one_object_over_several_lines(tmp_path: Path) -> None:
    for indent in (0, 2):
        (tmp_path / "a.json").write_text(json.dumps(_answer(), indent=indent))
        assert asserts.codes(_opened(tmp_path)) == {"a": ""}


def test_other_json_is_not_taken_for_answers(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(json.dumps({"text": "x", "meta_info": {"prompt_tokens": 3}}))
    (tmp_path / "b.json").write_text(json.dumps({"hidden_states": {"layer_ids": [2, 4]}}))
    assert asserts.recognised_by(tmp_path) == []


BLOCK = asserts.random_states(3, WIDTH).tolist()


@pytest.mark.parametrize(
    "answer",
    [
        _answer(rows=[]),
        _answer(rows=[[]]),
        _answer(rows=[BLOCK, BLOCK]),
        _answer(rows=[BLOCK, BLOCK[0][:-1]]),
        _answer(rows=[[BLOCK[0], BLOCK[0][:-1]]]),
        _answer(rows=[[["a"] * WIDTH] * 3]),
        _answer(rows=[[BLOCK]]),
        _answer(rows="none"),
        _answer(prompt_tokens=2),
        _answer(rows=[BLOCK[0]], completion_tokens=None),
        _answer() | {"input_ids": [1, 2]},
        _answer() | {"input_ids": [1.5, 2.5, 3.5]},
        {"text": "no states"},
        {"meta_info": {"hidden_states": None}},
        [1, 2],
    ],
    ids=[
        "no-rows", "empty-block", "two-blocks", "widths", "ragged", "text", "too-deep", "a-word", "more-rows-than-tokens",
        "no-position", "other-prompt", "float-ids", "no-meta", "null", "a-list",
    ],
)  # fmt: skip
def test_wrong_content_is_e216_and_costs_that_answer_alone(tmp_path: Path, answer: Any) -> None:
    path = _write(tmp_path / "a.jsonl", _answer(), answer, _answer())
    assert asserts.codes(_opened(path)) == {"a[0]": "", "a[1]": "E216", "a[2]": ""}


def test_damaged_files_cost_their_answers_alone(tmp_path: Path) -> None:
    whole = json.dumps(_answer())
    (tmp_path / "cut.jsonl").write_text(f"{whole}\n{whole[:-20]}")
    (tmp_path / "empty.json").write_bytes(b"")
    (tmp_path / "half.json").write_text(whole[:-20])
    (tmp_path / "list.json").write_text(f"[{whole}, {whole[:-20]}")
    (tmp_path / "nothing.json").write_text("[]")
    (tmp_path / "latin.json").write_bytes(b'{"text": "\xff"}')
    (tmp_path / "deep.json").write_text("[" * 100_000)
    (tmp_path / "whole.json").write_text(f"[{whole}, {whole}]")
    expected = {"cut[0]": "", "cut[1]": "E206", "empty": "E206", "half": "E206", "list": "E206"}
    expected |= {"nothing": "E216", "latin": "E206", "deep": "E206", "whole[0]": "", "whole[1]": ""}
    assert asserts.codes(_opened(tmp_path)) == expected
