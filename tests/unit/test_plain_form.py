"""The plain form as a side of a comparison."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from hsparity.capture.read import open_source
from hsparity.compare import Query, compare
from hsparity.errors import HsparityError
from tests.causes.streams import Capture, capture, floors, plain

KEYS = ["boundary.002", "boundary.004", "final_norm"]
SLOTS = [{"boundary": 2}, {"label": "aux0"}, {"site": "final_norm"}]


@pytest.fixture(scope="module")
def made() -> Capture:
    return capture(1, count=2, length=20)


def test_a_plain_side_compares_like_a_capture(made: Capture, tmp_path: Path) -> None:
    """The same states give the same figures in either form."""
    ref = open_source(made.write(tmp_path / "ref"))
    other = capture(2, count=2, length=20)
    floor = floors(tmp_path, count=2, length=20)
    first = compare(ref, open_source(other.write(tmp_path / "cand")), floor, Query(boundaries="2,4"))
    slots = [{"boundary": 2}, {"boundary": 4}]
    second = compare(
        ref, open_source(plain(tmp_path / "p", other, slots, KEYS[:2])), floor, Query(boundaries="2,4")
    )
    assert [d.metrics for d in first.deltas if d.requested] == [
        d.metrics for d in second.deltas if d.requested
    ]
    assert first.verdict == second.verdict


def test_slots_side_by_side_are_slots(made: Capture, tmp_path: Path) -> None:
    """A concatenation of width k*H reads as k slots; one that is described as fewer says how many it holds."""
    folder = plain(tmp_path / "p", made, SLOTS, KEYS)
    apart = open_source(folder).block("p0", "slot.001", 0, 3).clone()
    for file in folder.glob("*.safetensors"):
        tensors = load_file(file)
        tensors["hidden_states"] = tensors["hidden_states"].flatten(1).contiguous()
        save_file(tensors, file)
    assert torch.equal(open_source(folder).block("p0", "slot.001", 0, 3), apart)
    about = json.loads((folder / "plain.json").read_text())
    (folder / "plain.json").write_text(json.dumps({**about, "slots": about["slots"][:1]}))
    with pytest.raises(HsparityError) as error:
        open_source(folder)
    assert error.value.code == "E209"
    assert f"{len(KEYS)} states of width" in error.value.notes[1]


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float16, torch.float32, torch.float64])
def test_every_dtype_of_the_plain_form_is_solved(made: Capture, tmp_path: Path, dtype: torch.dtype) -> None:
    """The solver reads what the reader reads; eight bits in the file are named."""
    ref = open_source(capture(1, count=2, length=20).write(tmp_path / "ref"))
    slots = [{"boundary": 2}, {"boundary": 4}]
    other = replace(capture(2, count=2, length=20), dtype=dtype)
    cand = open_source(plain(tmp_path / "p", other, slots, KEYS[:2]))
    result = compare(ref, cand, floors(tmp_path, count=2, length=20), Query(boundaries="2,4"))
    named = [f.name for f in result.findings if f.structural]
    assert named == (["stored-fp8"] if dtype == torch.float8_e4m3fn else [])
