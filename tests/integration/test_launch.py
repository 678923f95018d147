"""Captures launched as users launch them: finished, resumed, interrupted, killed, refused."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from hsparity.capture import launch
from hsparity.capture.read import open_source
from hsparity.engines import Interpreter, resolve
from hsparity.errors import HsparityError
from hsprobe.schema import CaptureManifest
from tests.integration.tiny_models import make_spec, save_llama

PROMPTS = 120


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_llama(tmp_path_factory.mktemp("llama"))


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Enough prompts that a signal arrives before the last one."""
    file = tmp_path_factory.mktemp("prompts") / "ids.jsonl"
    file.write_text("".join(f"{[(7 * i + t) % 120 + 1 for t in range(24)]}\n" for i in range(PROMPTS)))
    return file


@pytest.fixture(scope="module")
def finished(llama: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("captures") / "hf"
    return launch.run_capture(make_spec(llama), out, resolve("hf"))


def test_finished_is_not_run_again(finished: Path, llama: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The same spec into a finished folder starts nothing."""
    log = (finished / launch.LOG).stat()
    launch.run_capture(make_spec(llama), finished, resolve("hf"))
    assert "already complete" in capsys.readouterr().err
    assert (finished / launch.LOG).stat() == log


def test_changed_spec(finished: Path, llama: Path) -> None:
    """Another spec into a finished folder is refused before an engine starts, and says what changed."""
    started = time.monotonic()
    with pytest.raises(HsparityError) as caught:
        launch.run_capture(make_spec(llama, dtype="bfloat16"), finished, resolve("hf"))
    assert caught.value.code == "E204"
    assert caught.value.notes == ("dtype: 'float32' there, 'bfloat16' now",)
    assert time.monotonic() - started < 1


def test_moved(finished: Path, tmp_path: Path) -> None:
    """A capture that was moved opens, verifies and holds no path of where it was made."""
    moved = tmp_path / "elsewhere"
    shutil.copytree(finished, moved)
    source = open_source(moved)
    source.verify()
    assert len(source.prompts) == 3
    for name in ("manifest.json", "journal.jsonl"):
        assert str(finished) not in (moved / name).read_text()


def test_probe_never_started(llama: Path, tmp_path: Path) -> None:
    """An interpreter that lacks the engine ends in E302 with what its log says."""
    spec = make_spec(llama)
    lacking = Interpreter("vllm", Path(sys.executable), "0.32.0", "adopted", "cpu")
    with pytest.raises(HsparityError) as caught:
        launch.run_capture(
            type(spec)("vllm", spec.model, spec.prompts, spec.sites), tmp_path / "out", lacking
        )
    assert caught.value.code == "E302"
    assert "No module named 'vllm'" in "\n".join(caught.value.notes)
    assert caught.value.exit_code == 4


def test_engine_dies_while_loading(llama: Path, tmp_path: Path) -> None:
    """Damaged weights end in E303 with the exception and where the whole log is."""
    model = tmp_path / "model"
    shutil.copytree(llama, model)
    weights = model / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:1000])
    with pytest.raises(HsparityError) as caught:
        launch.run_capture(make_spec(model), tmp_path / "out", resolve("hf"))
    assert caught.value.code == "E303"
    assert str(tmp_path / "out" / launch.LOG) in caught.value.help
    assert not (tmp_path / "out" / "manifest.json").exists()


def test_not_writable(llama: Path, tmp_path: Path) -> None:
    """A folder that cannot be made is E106, exit 2."""
    (tmp_path / "file").write_text("")
    with pytest.raises(HsparityError) as caught:
        launch.run_capture(make_spec(llama), tmp_path / "file" / "out", resolve("hf"))
    assert (caught.value.code, caught.value.exit_code) == ("E106", 2)


def test_does_not_fit(tmp_path: Path) -> None:
    """A capture larger than the disk is refused from the model's config alone, with need and free."""
    config = {"num_hidden_layers": 10**6, "hidden_size": 10**9}
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(HsparityError) as caught:
        launch.run_capture(make_spec(tmp_path), tmp_path / "out", resolve("hf"))
    assert caught.value.code == "E205"
    assert [note.split()[0] for note in caught.value.notes] == ["needed", "free"]


class Running:
    """`hsparity capture` in its own process, past its first committed prompt."""

    def __init__(self, model: Path, prompts: Path, out: Path) -> None:
        self.out = out
        self.command = [sys.executable, "-m", "hsparity", "capture", "hf", "--model", str(model)]
        self.command += ["--prompts", str(prompts), "-o", str(out)]
        self.process = subprocess.Popen(
            self.command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
        )
        deadline = time.monotonic() + 180
        while self.journaled() < 2:
            assert self.process.poll() is None, self.process.communicate()
            assert time.monotonic() < deadline
            time.sleep(0.02)

    def journaled(self) -> int:
        file = self.out / "journal.jsonl"
        return file.read_bytes().count(b"\n") if file.exists() else 0

    def engines(self) -> list[int]:
        """Processes that carry this capture in their environment: the engine and whatever it started."""
        found = []
        for entry in Path("/proc").iterdir():
            try:
                environment = (entry / "environ").read_bytes().split(b"\0") if entry.name.isdigit() else []
                state = (entry / "stat").read_text().rpartition(")")[2].split()[0] if environment else "Z"
            except OSError:
                continue
            if f"HSPROBE_OUT={self.out}".encode() in environment and state != "Z":
                found.append(int(entry.name))
        return found

    def gone(self) -> bool:
        deadline = time.monotonic() + 15
        while self.engines() and time.monotonic() < deadline:
            time.sleep(0.05)
        return not self.engines()

    def resume(self) -> subprocess.CompletedProcess[str]:
        return subprocess.run(self.command, capture_output=True, text=True, timeout=300, check=False)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_stopped_and_resumed(llama: Path, many: Path, tmp_path: Path, number: signal.Signals) -> None:
    """Ctrl-C, a termination and kill -9 leave no process behind and lose no finished prompt."""
    run = Running(llama, many, tmp_path / "out")
    assert run.engines()
    run.process.send_signal(number)
    _, error = run.process.communicate(timeout=60)
    assert run.process.returncode == (-9 if number == signal.SIGKILL else 130), error
    assert run.gone()
    kept = (run.out / "journal.jsonl").read_bytes()
    kept = kept[: kept.rfind(b"\n") + 1]
    lines = kept.count(b"\n")
    assert 2 <= lines < PROMPTS
    done = run.resume()
    assert done.returncode == 0, done.stderr
    assert f"resuming: {lines} of {PROMPTS} prompts" in done.stderr
    assert (run.out / "journal.jsonl").read_bytes().startswith(kept)
    manifest = CaptureManifest.from_json((run.out / "manifest.json").read_text())
    assert len(manifest.prompts) == PROMPTS
    assert done.stdout.splitlines()[-1].startswith("next  hsparity capture vllm --model")


def test_engine_killed(llama: Path, many: Path, tmp_path: Path) -> None:
    """An engine that is killed under us is E303, exit 4, and names the signal."""
    run = Running(llama, many, tmp_path / "out")
    for pid in run.engines():
        os.kill(pid, signal.SIGKILL)
    _, error = run.process.communicate(timeout=60)
    assert run.process.returncode == 4
    assert "error[E303]: Transformers died: SIGKILL, which often means that memory ran out" in error
    assert "engine.log" in error
