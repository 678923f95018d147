"""speculators 0.9 against a real vLLM server: what it files is what hsparity captures. It shares the one server start."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from hsparity.engines.child import clean_environment

from .conftest import Capture, tensors
from .speculators.server import speculators_python
from .test_vllm import PROMPTS

pytestmark = pytest.mark.engine

IDS = (2, 4, 6, 8)  # those of the shared dataset: three states for the draft, and the last one


@pytest.fixture(scope="session")
def captured(capture: Capture, tiny_llama: Path) -> Path:
    """The capture of test_vllm: asked for with its settings, it costs no start."""
    return capture(
        "vllm", model=tiny_llama, prompts=PROMPTS, mechanism="both", native_ids=(2, 4, 6), generate=4
    )


def ulps(one: torch.Tensor, other: torch.Tensor) -> int:
    """The largest distance of two bfloat16 tensors, in steps between neighbouring numbers."""

    def ordered(x: torch.Tensor) -> torch.Tensor:
        bits = x.contiguous().view(torch.int16).int()
        return torch.where(bits < 0, -(bits & 0x7FFF), bits)

    return int((ordered(one) - ordered(other)).abs().max())


def test_ulps() -> None:
    """Neighbours are one step apart, on both sides of zero."""
    one = torch.tensor([1.0, -1.0, 0.0], dtype=torch.bfloat16)
    up = torch.tensor([1.0078125, -1.0078125, -0.0], dtype=torch.bfloat16)
    assert ulps(one, up) == 1
    assert ulps(one, one) == 0


def test_slots(speculators_dataset: Path, captured: Path) -> None:
    """Id k is boundary k and the last slot is boundary L before the final norm, for every prompt."""
    names = {p.token_ids: p.id for p in PROMPTS}
    seen = set()
    for path in (speculators_dataset / "hidden_states").glob("hs_*.safetensors"):
        filed = load_file(path)
        tokens = tuple(filed["token_ids"].tolist())
        ours = tensors(captured, names[tokens])
        for slot, boundary in enumerate(IDS):
            expected = ours[f"boundary.{boundary:03d}"][: len(tokens)]
            assert ulps(filed["hidden_states"][:, slot], expected) <= 1, (tokens[:4], boundary)
        seen.add(tokens)
    assert seen == set(names)


def test_rows_belong_to_files(speculators_dataset: Path) -> None:
    """hs_<i> holds the tokens of arrow row i, as speculators' own loader reads it; the mask is as long."""
    rows = _rows(speculators_dataset)
    for index, row in enumerate(rows):
        filed = load_file(speculators_dataset / "hidden_states" / f"hs_{index}.safetensors")
        assert filed["token_ids"].tolist() == row["input_ids"]
        assert len(row["loss_mask"]) == row["seq_len"] == len(row["input_ids"])
    assert len(rows) == len(PROMPTS)


def test_connector_files(speculators_dataset: Path) -> None:
    """vLLM's own file of a prompt has the bits of the one that speculators moved, and its lock beside it."""
    moved = {
        tuple(f["token_ids"].tolist()): f["hidden_states"]
        for f in map(load_file, (speculators_dataset / "hidden_states").iterdir())
    }
    own = sorted((speculators_dataset.parent / "raw").glob("*.safetensors"))
    assert len(own) == len(PROMPTS)
    for path in own:
        found = load_file(path)
        assert ulps(found["hidden_states"], moved[tuple(found["token_ids"].tolist())]) <= 1
        assert path.with_name(f"{path.name}.lock").stat().st_size == 0


def _rows(folder: Path) -> list[dict[str, list[int]]]:
    script = (
        "import json, sys, datasets; d = datasets.load_from_disk(sys.argv[1]).with_format(None); "
        "print(json.dumps([dict(r) for r in d]))"
    )
    done = subprocess.run(
        [str(speculators_python()), "-c", script, str(folder)],
        env=clean_environment({"HF_HUB_OFFLINE": "1"}),
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return list(json.loads(done.stdout.splitlines()[-1]))
