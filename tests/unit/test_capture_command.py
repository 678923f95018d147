"""hsparity capture around the engine: what it refuses to write into, and what it suggests next."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from hsparity.cli import suggest
from hsparity.cli.cmd_capture import COMMAND
from hsparity.errors import HsparityError
from hsprobe.schema import CaptureManifest, Prompt

TYPED = {"--model": "m", "--layers": "2,3", "--mechanism": "both", "--native-ids": "2", "--limit": 4}


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def made(name: str, engine: str, dtype: str = "bfloat16", digest: str = "d") -> Path:
    """A finished capture as far as its manifest says."""
    prompt = Prompt("a", 2, 2, 2, (), digest, ())
    manifest = CaptureManifest(
        "hsparity.capture/1", engine, "1", "m", "", "X", "", 4, 8, dtype, {}, {}, {}, (prompt,), (), "", "complete"
    )  # fmt: skip
    folder = Path("c") / name
    folder.mkdir(parents=True)
    (folder / "manifest.json").write_text(replace(manifest).to_json())
    return folder


def test_options_are_kept() -> None:
    """The other engine is asked for the same, under a folder that is free."""
    out = made("one", "vllm")
    Path("c/sglang").mkdir()
    words = "--model m --layers 2,3 --mechanism both --native-ids 2 --limit 4"
    assert suggest.after_capture(out, TYPED) == f"hsparity capture sglang {words} -o c/sglang-2"


def test_floor_halves() -> None:
    """After fp32 comes bf16; the two are never compared with each other, only a side with them."""
    out = made("fp32", "hf", "float32")
    typed = {**TYPED, "--dtype": "fp32"}
    bf16 = "hsparity capture hf --model m --layers 2,3 --limit 4 --dtype bfloat16 -o c/hf-bf16"
    assert suggest.after_capture(out, typed) == bf16
    half = made("hf-bf16", "hf")
    assert suggest.after_capture(half, TYPED).startswith("hsparity capture vllm")
    assert "--dtype" not in suggest.after_capture(out, typed)
    vllm = made("vllm", "vllm")
    for last in (out, half, vllm):
        assert suggest.after_capture(last, TYPED) == "hsparity compare c/hf-bf16 c/vllm --floor c/fp32"
    sglang = made("sglang", "sglang")
    floors = "--floor c/fp32 --floor c/hf-bf16"
    assert suggest.after_capture(vllm, TYPED) == f"hsparity compare c/sglang c/vllm {floors}"
    assert suggest.after_capture(sglang, TYPED) == f"hsparity compare c/vllm c/sglang {floors}"
    assert suggest.after_capture(half, TYPED) == f"hsparity compare c/sglang c/vllm {floors}"


def test_floor_of_other_prompts() -> None:
    """A floor of other prompts measures nothing here."""
    for name, dtype in (("fp32", "float32"), ("bf16", "bfloat16")):
        made(name, "hf", dtype, digest="other")
    made("sglang", "sglang")
    assert suggest.after_capture(made("vllm", "vllm"), TYPED) == "hsparity compare c/sglang c/vllm"


def test_foreign_folder() -> None:
    """A folder of other things is left as it is; one where an engine never came up is taken again."""
    Path("docs").mkdir()
    Path("docs/notes.md").write_text("mine")
    Path("begun").mkdir()
    Path("begun/engine.log").write_text("died")
    result = CliRunner().invoke(COMMAND, ["hf", "--model", "tiny:llama", "-o", "docs"])
    assert isinstance(result.exception, HsparityError)
    assert (result.exception.code, result.exception.notes) == ("E106", ("there: notes.md",))
    assert [p.name for p in Path("docs").iterdir()] == ["notes.md"]
    result = CliRunner().invoke(COMMAND, ["trtllm", "--model", "tiny:llama", "-o", "begun"])
    assert isinstance(result.exception, HsparityError)
    assert result.exception.code != "E106"
