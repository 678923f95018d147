"""hsparity replay: the page, the JSON, the exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from hsparity.cli.main import invoke
from hsparity.replay.result import from_json
from tests.replay.makes import SITES, Tensors, changed, taken


@pytest.fixture(scope="module")
def faulty(deepseek: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A capture whose layer 1 ran a larger down projection."""

    def change(tensors: Tensors) -> None:
        name = "model.layers.1.mlp.shared_experts.down_proj.weight"
        tensors[name] = (tensors[name].float() * 1.2).to(torch.bfloat16)

    folder = tmp_path_factory.mktemp("faulty")
    return taken(changed(deepseek, folder / "model", change), folder / "capture", sites=SITES)


def test_the_page_names_side_layer_and_part(
    deepseek: Path, healthy: Path, faulty: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Exit 1; the result in the file is the one on the page."""
    file = tmp_path / "replay.json"
    command = [
        "replay",
        str(healthy),
        str(faulty),
        "--model",
        str(deepseek),
        "--layers",
        "0-1",
        "--json",
        str(file),
    ]
    assert invoke(command) == 1
    page = capsys.readouterr().out
    assert f"DIVERGED  {faulty} adds error in layer 1, by its mlp" in " ".join(page.split()).replace(
        "DIVERGED ", "DIVERGED  "
    )
    rows = [line.split() for line in page.splitlines()]
    assert [r[-1] for r in rows if r[:1] == ["0"]] == ["within"]
    assert [r[-2:] for r in rows if r[:1] == ["1"]] == [["beyond:", "MLP"]]
    assert all(
        len(line) <= 80
        for line in page.splitlines()
        if not line.startswith(("ref", "cand", "DIVERGED", "/", " "))
    )
    assert from_json(file.read_text()).verdict.value == "diverged"


def test_a_healthy_capture_alone_exits_0(healthy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """--boundaries 2 is layer 1; --quiet is one line; the JSON on stdout is the whole output."""
    assert invoke(["replay", str(healthy), "--boundaries", "2", "-q"]) == 0
    assert capsys.readouterr().out.startswith("PARITY  no layer adds more than its dtype costs: 1 replayed")
    assert invoke(["replay", str(healthy), "--layers", "1", "--json", "-"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert {a["layer"] for a in result["added"]} == {1}


def test_a_checkpoint_that_is_not_here_is_a_usage_error(
    healthy: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """E107 with the place that was looked at."""
    assert invoke(["replay", str(healthy), "--model", "/nowhere/at/all"]) == 2
    assert "E107" in capsys.readouterr().err
