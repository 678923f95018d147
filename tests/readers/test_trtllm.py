"""TensorRT-LLM's saved states. Hand-built: TensorRT-LLM does not install here; the keys are those that
tensorrt_llm/_torch/speculative/save_hidden_state.py writes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from hsparity.capture.readers.base import AUX, LAST
from tests.readers import asserts

TOKENS, WIDTH, AUXES = 5, 8, 3


def _request(number: int, tokens: int = TOKENS, aux: str = "aux_hidden_states") -> dict[str, Any]:
    return {
        "id": number,
        "input_ids": torch.arange(tokens) + 10 * number,
        "hidden_state": asserts.random_states(tokens, WIDTH, seed=number),
        aux: asserts.random_states(tokens, AUXES * WIDTH, seed=number + 50),
    }


def _parts(raw: dict[str, Any], aux: str = "aux_hidden_states") -> list[torch.Tensor]:
    return [*raw[aux].split(WIDTH, dim=1), raw["hidden_state"]]


def test_one_request_to_a_file(tmp_path: Path) -> None:
    """Hand-built: as write_interval 1 leaves them; the number of the file is that of the request."""
    for number in (1, 2, 11):
        torch.save([_request(number)], tmp_path / f"dp_0_{number}.pt")
    dataset = asserts.opened(tmp_path, "trtllm")
    assert [(r.id, r.index) for r in dataset.records()] == [("dp_0_1", 1), ("dp_0_2", 2), ("dp_0_11", 11)]
    for record in dataset.records():
        raw, sample = _request(record.index), dataset.read(record)
        asserts.same(sample, _parts(raw))
        assert sample.token_ids is not None
        assert sample.token_ids.tolist() == raw["input_ids"].tolist()
        assert [s.role for s in dataset.slots(sample)] == [AUX] * AUXES + [LAST]
        assert {(s.normed, s.native_id) for s in dataset.slots(sample)} == {(None, None)}


def test_several_requests_to_a_file(tmp_path: Path) -> None:
    """Hand-built: as write_interval 3 leaves them."""
    torch.save([_request(n, tokens=n + 3) for n in (1, 2, 3)], tmp_path / "hs_3.pt")
    torch.save([_request(n) for n in (4, 5)], tmp_path / "hs_6.pt")
    dataset = asserts.opened(tmp_path, "trtllm")
    ids = [(r.id, r.index) for r in dataset.records()]
    assert ids == [("hs_3[0]", 1), ("hs_3[1]", 2), ("hs_3[2]", 3), ("hs_6[0]", 4), ("hs_6[1]", 5)]
    asserts.same(dataset.read(dataset.records()[1]), _parts(_request(2, tokens=5)))


def test_two_prefixes_that_count_alike_are_two_samples(tmp_path: Path) -> None:
    for prefix in ("dp_0", "dp_1"):
        torch.save([_request(1)], tmp_path / f"{prefix}_1.pt")
    records = asserts.opened(tmp_path, "trtllm").records()
    assert [(r.id, r.index) for r in records] == [("dp_0_1", 0), ("dp_1_1", 1)]


def test_older_name_no_aux_and_the_last_state_held_twice(tmp_path: Path) -> None:
    """Hand-built: with -1 among the layers asked for, the aux states end with the last state once more."""
    older = "hidden_state_features"
    twice = _request(2)
    twice["aux_hidden_states"] = torch.cat([twice["aux_hidden_states"], twice["hidden_state"]], dim=1)
    alone = _request(3)
    del alone["aux_hidden_states"]
    for number, raw in ((1, _request(1, aux=older)), (2, twice), (3, alone)):
        torch.save([raw], tmp_path / f"hs_{number}.pt")
    dataset = asserts.opened(tmp_path, "trtllm")
    one, two, three = (dataset.read(r) for r in dataset.records())
    asserts.same(one, _parts(_request(1, aux=older), older))
    asserts.same(two, _parts(_request(2)))
    assert dataset.slots(two)[-1].label == "hidden_state and aux_hidden_states[3]"
    asserts.same(three, [alone["hidden_state"]])
    assert [s.role for s in dataset.slots(three)] == [LAST]


def test_what_the_files_do_not_say_is_said(tmp_path: Path) -> None:
    torch.save([_request(1)], tmp_path / "hs_1.pt")
    said = asserts.opened(tmp_path / "hs_1.pt", "trtllm").said()
    assert said.producer == "tensorrt-llm"
    assert said.unknown == ("layer ids", "whether the last state is normed", "model", "version")


def test_nan_is_kept(tmp_path: Path) -> None:
    raw = _request(1)
    raw["hidden_state"][0, 0] = float("nan")
    torch.save([raw], tmp_path / "hs_1.pt")
    dataset = asserts.opened(tmp_path, "trtllm")
    asserts.same(dataset.read(dataset.records()[0]), _parts(raw))


@pytest.mark.parametrize(
    "change",
    [
        {"aux_hidden_states": torch.zeros(TOKENS, WIDTH + 1, dtype=torch.bfloat16)},
        {"hidden_state": torch.zeros(TOKENS + 1, WIDTH, dtype=torch.bfloat16)},
        {"hidden_state": torch.zeros(TOKENS, WIDTH, dtype=torch.uint16)},
        {"input_ids": torch.rand(TOKENS)},
    ],
    ids=["width", "rows", "uint16", "ids"],
)
def test_wrong_content_is_e216_and_costs_that_sample_alone(tmp_path: Path, change: dict[str, Any]) -> None:
    torch.save([_request(1), _request(2) | change], tmp_path / "hs_2.pt")
    assert asserts.codes(asserts.opened(tmp_path, "trtllm")) == {"hs_2[0]": "", "hs_2[1]": "E216"}


def test_damaged_files_and_code_cost_their_samples_alone(tmp_path: Path) -> None:
    for number in (1, 2, 3):
        torch.save([_request(number)], tmp_path / f"hs_{number}.pt")
    whole = (tmp_path / "hs_2.pt").read_bytes()
    (tmp_path / "hs_2.pt").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "hs_3.pt").write_bytes(b"")
    torch.save([], tmp_path / "hs_4.pt")
    trace = tmp_path / "trace"
    torch.save([_request(5) | {"sampling": asserts.Runs(trace)}], tmp_path / "hs_5.pt")
    found = asserts.codes(asserts.opened(tmp_path, "trtllm"))
    assert found == {"hs_1": "", "hs_2": "E206", "hs_3": "E206", "hs_4": "E216", "hs_5": "E217"}
    assert not trace.exists()
