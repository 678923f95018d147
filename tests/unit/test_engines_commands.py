"""hsparity engines, doctor and inspect, as a user types them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from hsparity.cli import main


@pytest.fixture(autouse=True)
def _own_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = main.invoke(list(arguments))
    out, err = capsys.readouterr()
    return code, out, err


def test_list(capsys: pytest.CaptureFixture[str]) -> None:
    """With nothing installed the list has our own Transformers and what to type for the rest."""
    code, out, _ = run(capsys, "engines", "list")
    assert code == 0
    assert "hsparity's own environment" in out
    assert "hsparity engines install sglang==0.5.23" in out


def test_path(capsys: pytest.CaptureFixture[str]) -> None:
    """`engines path` prints the interpreter and nothing else; an absent engine exits 4."""
    assert run(capsys, "engines", "path", "hf") == (0, f"{sys.executable}\n", "")
    code, out, err = run(capsys, "engines", "path", "vllm")
    assert (code, out) == (4, "")
    assert "error[E301]: vLLM is not installed" in err


def test_release_without_lock(capsys: pytest.CaptureFixture[str]) -> None:
    """A release that hsparity cannot install is not offered for installation."""
    _, _, err = run(capsys, "engines", "path", "vllm@0.1")
    assert "engines install" not in err
    assert "hsparity installs 0.32.0" in err


def test_remove_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    """Removing what is not there says so."""
    code, _, err = run(capsys, "engines", "remove", "sglang")
    assert code == 4
    assert "E301" in err


def test_doctor(capsys: pytest.CaptureFixture[str]) -> None:
    """The doctor names each engine, its tried range, how to get it, and exits 0 with one of them usable."""
    code, out, _ = run(capsys, "doctor")
    assert code == 0
    for words in ("Transformers\n", "vLLM\n", "SGLang\n", "tried     0.31.0 to 0.32.0", "free at"):
        assert words in out
    assert "hsparity engines install vllm" in out


def test_inspect_unfinished(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """An unfinished capture says how far it came, why it stopped and how to go on."""
    (tmp_path / "journal.jsonl").write_text("{}\n{}\n")
    (tmp_path / "spec.json").write_text(json.dumps({"prompts": [1, 2, 3], "engine": "vllm", "sites": ["a"]}))
    (tmp_path / "probe.error").write_text(json.dumps({"code": "E304", "message": "hooks fell silent"}))
    code, out, _ = run(capsys, "inspect", str(tmp_path))
    assert code == 0
    assert "an unfinished capture, 2 of 3 prompts" in out
    assert "E304: hooks fell silent" in out
    assert "finished prompts are kept" in out


def test_inspect_others(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """A result, a plain folder, foreign JSON and an unknown folder are told apart; a missing path exits 2."""
    side = {"role": "ref", "path": "captures/a", "engine": "hf", "version": "5"}
    result = {
        "schema": "hsparity.comparison/1",
        "verdict": "diverged",
        "headline": "one layer off",
        "ref": side,
        "cand": {**side, "role": "cand"},
        "request": {"spelled": "--layers 2", "tokens": "all"},
        "floor": {"kind": "none"},
        "findings": [
            {"code": "HS101", "name": "layer-offset", "ruled_out": False},
            {"code": "HS201", "name": "final-norm-applied", "ruled_out": True},
        ],
    }
    (tmp_path / "result.json").write_text(json.dumps(result))
    _, out, _ = run(capsys, "inspect", str(tmp_path / "result.json"))
    assert "diverged: one layer off" in out
    assert "HS101 layer-offset" in out
    assert "HS201" not in out
    (tmp_path / "other.json").write_text('{"zeta": 1, "alpha": 2}')
    assert "keys      alpha, zeta" in run(capsys, "inspect", str(tmp_path / "other.json"))[1]
    assert "unknown, a folder with 2 entries" in run(capsys, "inspect", str(tmp_path))[1]
    plain = tmp_path / "plain"
    plain.mkdir()
    said = {"format": "hsparity.plain/1", "model": {"name": "m", "num_layers": 4}, "slots": [{"boundary": 3}]}
    (plain / "plain.json").write_text(json.dumps(said))
    (plain / "a.safetensors").write_bytes(b"")
    out = run(capsys, "inspect", str(plain))[1]
    assert "slots     1: 3" in out
    assert "prompts   1" in out
    assert run(capsys, "inspect", str(tmp_path / "none"))[0] == 2


def test_inspect_safetensors(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """A shard's header is listed without any library; a torn one is damaged, not a traceback."""
    header = json.dumps({"a": {"dtype": "BF16", "shape": [2, 3], "data_offsets": [0, 12]}}).encode()
    file = tmp_path / "x.safetensors"
    file.write_bytes(len(header).to_bytes(8, "little") + header)
    assert "BF16  [2, 3]" in run(capsys, "inspect", str(file))[1]
    file.write_bytes(header)
    assert "damaged" in run(capsys, "inspect", str(file))[1]


def test_without_torch(tmp_path: Path) -> None:
    """inspect, engines list and capture --help load no torch."""
    (tmp_path / "journal.jsonl").write_text("")
    code = (
        "import sys\nfrom hsparity.cli import main\n"
        f"for words in (['inspect', {str(tmp_path)!r}], ['engines', 'list'], ['capture', '--help']):\n"
        "    assert main.invoke(words) == 0\n"
        "assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)
