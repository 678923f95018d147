"""What goes wrong while capturing ends in a coded error, never in a capture that looks whole."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from hsprobe.__main__ import main
from hsprobe.drive import capture
from hsprobe.engines import hf_engine, hf_hooks
from hsprobe.protocol import ProbeError
from hsprobe.schema import CaptureManifest, CaptureSpec, PromptSpec
from hsprobe.verify import verify
from hsprobe.writer import file_sha256
from tests.integration.tiny_models import LAYERS, make_spec, save_llama


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_llama(tmp_path_factory.mktemp("llama"))


@pytest.fixture
def complete(llama: Path, tmp_path: Path) -> Path:
    quiet(make_spec(llama), tmp_path / "capture")
    return tmp_path / "capture"


def quiet(spec: CaptureSpec, out: Path) -> CaptureManifest:
    return capture(spec, out, lambda _event: None)


def probe(*arguments: object, **environment: str) -> subprocess.Popen[str]:
    """python -m hsprobe in its own process, offline."""
    return subprocess.Popen(
        [sys.executable, "-m", "hsprobe", *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "HF_HUB_OFFLINE": "1", **environment},
    )


def failure(spec: CaptureSpec, out: Path) -> ProbeError:
    with pytest.raises(ProbeError) as error:
        quiet(spec, out)
    assert not (out / "manifest.json").exists()
    return error.value


def test_kill_9_while_capturing_and_resuming_loses_no_finished_prompt(llama: Path, tmp_path: Path) -> None:
    """The resumed run leaves finished shards alone, does the rest, and equals an uninterrupted one."""
    spec = make_spec(llama, prompts=24, generate=2)
    (tmp_path / "asked.json").write_text(spec.to_json())
    out = tmp_path / "capture"
    running = probe("capture", "--spec", tmp_path / "asked.json", "--out", out)
    assert running.stdout is not None
    for line in running.stdout:
        event = json.loads(line)
        if event["event"] == "prompt" and event["done"] >= 3:
            break
    running.send_signal(signal.SIGKILL)
    running.communicate()
    assert not (out / "manifest.json").exists()
    finished = [json.loads(line) for line in (out / "journal.jsonl").read_text().splitlines()]
    assert 3 <= len(finished) < 24
    before = {s["path"]: (out / s["path"]).stat() for line in finished for s in line["shards"]}

    manifest = quiet(spec, out)
    assert [p.id for p in manifest.prompts] == [p.id for p in spec.prompts]
    for path, stat in before.items():
        assert ((out / path).stat().st_ino, (out / path).stat().st_mtime_ns) == (
            stat.st_ino,
            stat.st_mtime_ns,
        )
    list(verify(out))
    whole = quiet(spec, tmp_path / "whole")
    for one, other in zip(manifest.shards, whole.shards, strict=True):
        resumed, straight = load_file(out / one.path), load_file(tmp_path / "whole" / other.path)
        # `steps` counts the passes of one run, so it starts again on resume.
        assert all(torch.equal(resumed[key], straight[key]) for key in {*resumed, *straight} - {"steps"})
    assert manifest.warnings == whole.warnings


def test_the_command_writes_events_to_stdout_and_the_error_to_a_file(llama: Path, tmp_path: Path) -> None:
    """Exit 3, probe.error with the code, and not one line on stdout that is no event."""
    spec = make_spec(llama, sites=("boundary.009",))
    (tmp_path / "asked.json").write_text(spec.to_json())
    running = probe("capture", "--spec", tmp_path / "asked.json", "--out", tmp_path / "capture")
    stdout, stderr = running.communicate(timeout=100)
    assert running.returncode == 3
    assert [json.loads(line)["event"] for line in stdout.splitlines()] == ["loading"]
    recorded = json.loads((tmp_path / "capture" / "probe.error").read_text())
    assert recorded["code"] == "E306"
    assert f"0 to {LAYERS}" in recorded["message"]
    assert "E306" in stderr


def test_resuming_with_another_spec_is_e204(complete: Path, llama: Path) -> None:
    """Even a finished capture is not handed out for another question."""
    with pytest.raises(ProbeError) as error:
        quiet(make_spec(llama, generate=2), complete)
    assert error.value.code == "E204"
    assert "generate" in error.value.message


@pytest.mark.parametrize("how", ["truncated", "flipped", "gone"])
def test_check_finds_changed_shards(complete: Path, how: str, capsys: pytest.CaptureFixture[str]) -> None:
    """One byte is enough; the message names the file."""
    shard = complete / "shards" / "00001.safetensors"
    raw = bytearray(shard.read_bytes())
    raw[-3] ^= 1
    shard.write_bytes(raw[:-8] if how == "truncated" else raw)
    if how == "gone":
        shard.unlink()
    assert main(["check", str(complete)]) == 3
    stderr = capsys.readouterr().err
    assert "E206" in stderr
    assert "00001.safetensors" in stderr


def test_check_says_what_it_verified(complete: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Hashes, then each self-check with its numbers."""
    assert main(["check", str(complete)]) == 0
    stdout = capsys.readouterr().out
    assert stdout.startswith("4 files")
    assert "final-norm: " in stdout


@pytest.mark.parametrize(
    ("remove", "code"),
    [(("manifest.json",), "E207"), (("manifest.json", "journal.jsonl", "spec.json"), "E202")],
)
def test_check_tells_incomplete_from_no_capture(complete: Path, remove: tuple[str, ...], code: str) -> None:
    """Without a manifest it is unfinished; without anything it is no capture."""
    for name in remove:
        (complete / name).unlink()
    with pytest.raises(ProbeError) as error:
        list(verify(complete))
    assert error.value.code == code
    if code == "E207":
        assert "3 prompts" in error.value.message


def test_check_refuses_another_schema(complete: Path) -> None:
    """A future major version is not guessed at."""
    path = complete / "manifest.json"
    path.write_text(path.read_text().replace("hsparity.capture/1", "hsparity.capture/2"))
    with pytest.raises(ProbeError) as error:
        list(verify(complete))
    assert error.value.code == "E201"


def test_an_unknown_engine_is_e107_with_the_known_ones(llama: Path, tmp_path: Path) -> None:
    """Also when a misspelling would be a module elsewhere."""
    spec = make_spec(llama)
    error = failure(CaptureSpec("hff", spec.model, spec.prompts, spec.sites), tmp_path)
    assert error.code == "E107"
    assert "hf" in error.help


def test_a_model_that_is_not_there_is_e303_with_the_engines_words(tmp_path: Path) -> None:
    """What the engine said is kept."""
    error = failure(make_spec(tmp_path / "nowhere"), tmp_path / "capture")
    assert error.code == "E303"
    assert "while loading" in error.message


def test_a_token_outside_the_vocabulary_is_e105(llama: Path, tmp_path: Path) -> None:
    """Before any forward pass."""
    spec = make_spec(llama)
    error = failure(CaptureSpec("hf", spec.model, (PromptSpec("p", (1, 5000)),), spec.sites), tmp_path)
    assert error.code == "E105"
    assert "5000" in error.message


def test_a_full_disk_while_capturing_is_e205_and_resumable(llama: Path, tmp_path: Path) -> None:
    """The second prompt meets a full disk; the first is kept, and the same command finishes later."""
    out = tmp_path / "capture"
    shards = out / "shards"
    shards.mkdir(parents=True)

    def block(event: dict[str, Any]) -> None:
        if event["event"] == "loaded":  # after the writer has cleared old temporary files
            (shards / f"00001.safetensors.{os.getpid()}.tmp").symlink_to("/dev/full")

    with pytest.raises(ProbeError) as error:
        capture(make_spec(llama), out, block)
    assert error.value.code == "E205"
    assert not (out / "manifest.json").exists()
    assert [p.id for p in quiet(make_spec(llama), out).prompts] == ["p0", "p1", "p2"]
    list(verify(out))


Hook = Callable[..., None]


def off_by_one(stack: Any, site: Any, keep: Any) -> None:
    reader = stack.layers[site.index + 1] if site.index + 1 < len(stack.layers) else stack.norm
    hf_hooks._on_input(reader, keep)


def writes_nothing(stack: Any, site: Any, keep: Any) -> None:
    reader = stack.layers[site.index] if site.index < len(stack.layers) else stack.norm
    hf_hooks._on_input(reader, (lambda t: keep(torch.zeros_like(t))) if site.index == 2 else keep)


def silent(stack: Any, site: Any, keep: Any) -> None:
    if site.index != 3:
        hf_hooks._boundary(stack, site, keep)


def branch_only(stack: Any, site: Any, keep: Any) -> None:
    """The last boundary without its residual, the commonest misreading of an engine's layer output."""
    if site.index == len(stack.layers):
        hf_hooks._on_output(stack.layers[-1].mlp, keep)
    else:
        hf_hooks._boundary(stack, site, keep)


@pytest.mark.parametrize(
    "fault",
    [
        ("boundary", off_by_one, "E305", "embedding"),
        ("boundary", writes_nothing, "E305", "zero-rows"),
        ("boundary", silent, "E304", "boundary.003"),
        ("boundary", branch_only, "E305", "final-norm"),
        ("final_norm", lambda stack, _site, keep: hf_hooks._on_input(stack.norm, keep), "E305", "final-norm"),
    ],
)
def test_a_broken_probe_never_completes(
    llama: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: tuple[str, Hook, str, str]
) -> None:
    """Each misreading is stopped at the first prompt by the check that knows it, named with its numbers."""
    kind, hook, code, said = fault
    monkeypatch.setitem(hf_hooks._HOOKS, kind, hook)
    error = failure(make_spec(llama), tmp_path)
    assert error.code == code
    assert said in error.message
    assert not list((tmp_path / "shards").iterdir())


def test_rows_mapped_to_the_wrong_token_never_complete(
    llama: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Scheduling data that are off by one position disagree with the ids that were fed."""
    begin = hf_engine.StepRecorder.begin

    def shifted(self: Any, spans: Any, token_ids: torch.Tensor, positions: torch.Tensor) -> None:
        begin(self, spans, token_ids, positions + 1)

    monkeypatch.setattr(hf_engine.StepRecorder, "begin", shifted)
    error = failure(make_spec(llama), tmp_path)
    assert error.code == "E305"
    assert error.message.startswith("rows: prompt 'p0', position 1")


def test_nonfinite_states_are_captured_and_warned_of(llama: Path, tmp_path: Path) -> None:
    """NaN weights are the user's finding, not a failure of the probe."""
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(llama, dtype=torch.float32)
    with torch.no_grad():
        model.model.embed_tokens.weight[5] = float("nan")  # the second token of prompt p0
    model.save_pretrained(tmp_path / "model")
    manifest = quiet(make_spec(tmp_path / "model", prompts=1), tmp_path / "capture")
    assert any("NaN or Inf elements" in warning for warning in manifest.warnings)
    found = load_file(tmp_path / "capture" / manifest.shards[0].path)
    assert not torch.isfinite(found["boundary.000"][1]).any()
    assert file_sha256(tmp_path / "capture" / manifest.shards[0].path) == manifest.shards[0].sha256
