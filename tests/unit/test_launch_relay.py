"""What a launch shows: progress from the probe's events, and the telling end of an engine's log."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from hsparity.capture import estimate, launch
from hsparity.capture.checkpoint import Shape, read_shape
from hsparity.capture.relay import Relay, log_tail
from hsparity.engines import Interpreter
from hsprobe.schema import CaptureSpec, PromptSpec

LOG = """\
INFO 11-29 13:00:00 [engine.py:1] Initializing
Loading safetensors: 100%|██████████| 1/1 [00:00<00:00,  5.1it/s]
(EngineCore pid=7) Traceback (most recent call last):
(EngineCore pid=7)   File "core.py", line 10, in run
(EngineCore pid=7)     load()
(EngineCore pid=7) ValueError: head size 24 is not supported
Traceback (most recent call last):
  File "a.py", line 1, in <module>
    main()
  File "b.py", line 2, in main
    wait()
  File "c.py", line 3, in wait
    raise RuntimeError()
\x1b[31mRuntimeError: Engine core initialization failed. See root cause above.\x1b[0m

WARNING 11-29 13:00:01 leaked shared_memory objects
"""


def spec(**changes: object) -> CaptureSpec:
    prompts = (PromptSpec("a", tuple(range(10))), PromptSpec("b", tuple(range(30))))
    return CaptureSpec("vllm", "m", prompts, ("boundary.*", "final_norm"), **changes)  # type: ignore[arg-type]


def test_log_tail(tmp_path: Path) -> None:
    """Info lines, progress bars and colours go; the first exception is kept however long the rest is."""
    file = tmp_path / "engine.log"
    file.write_text(LOG)
    tail = log_tail(file, lines=6)
    assert tail[0] == "(EngineCore pid=7) ValueError: head size 24 is not supported"
    assert tail[-1] == "RuntimeError: Engine core initialization failed. See root cause above."
    assert not any("INFO" in line or "%|" in line or "\x1b" in line for line in tail)


def test_log_tail_of_this_run_only(tmp_path: Path) -> None:
    """What an earlier run left in the log is not this run's failure."""
    file = tmp_path / "engine.log"
    file.write_text("ValueError: before\n" + "RuntimeError: now\n")
    assert log_tail(file, start=len("ValueError: before\n")) == ("RuntimeError: now",)
    assert log_tail(tmp_path / "none.log") == ()


def test_log_of_noise(tmp_path: Path) -> None:
    """A log of info lines only is shown rather than nothing."""
    file = tmp_path / "engine.log"
    file.write_text("INFO one\nINFO two\n")
    assert log_tail(file) == ("INFO one", "INFO two")


def test_events(capsys: pytest.CaptureFixture[str]) -> None:
    """Events become lines; anything else on stdout is the engine's and goes to its log."""
    relay = Relay("out", 2)
    assert relay.event('{"event": "loading", "model": "m", "done": 0}\n')
    assert relay.event('{"event": "loaded", "seconds": 3.2, "layers": 8, "hidden": 64}\n')
    assert relay.event('{"event": "prompt", "done": 2, "of": 2, "bytes": 2048}\n')
    assert not relay.event('{"event": torn\n')
    assert not relay.event("hello\n")
    assert capsys.readouterr().err.splitlines() == [
        "out: loading m",
        "out: loaded in 3 s: 8 layers, hidden size 64",
        "out: prompt 2 of 2, 2 kB",
    ]


def test_estimate() -> None:
    """Sites x tokens x width x dtype: 10 sites, 10 + 30 prompt tokens and 4 decoded ones each, two bytes."""
    shape = Shape(8, 100, 0)
    total, peak = estimate.capture_bytes(spec(generate=5), shape)
    assert total == pytest.approx(10 * 48 * 100 * 2 * estimate.MARGIN, abs=1)
    assert peak - total == 10 * 34 * 100 * 2
    double, _ = estimate.capture_bytes(spec(generate=5, dtype="float32"), shape)
    assert double == pytest.approx(2 * total, abs=1)
    native, _ = estimate.capture_bytes(spec(generate=5, mechanism="native", native_ids=(2, 4)), shape)
    assert native == pytest.approx(total / 5, abs=1)


def test_shape(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A multimodal config's text model counts; a hub name is looked up in the hub's cache."""
    text = (
        '{"hidden_size": 1, "text_config": {"num_hidden_layers": 61, "hidden_size": 7168, "vocab_size": 9}}'
    )
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    cached = tmp_path / "models--org--name"
    (cached / "refs").mkdir(parents=True)
    (cached / "refs" / "main").write_text("abc")
    (cached / "snapshots" / "abc").mkdir(parents=True)
    assert read_shape("org/name") is None
    (cached / "snapshots" / "abc" / "config.json").write_text(text)
    assert read_shape("org/name") == Shape(61, 7168, 9)
    assert read_shape("org/name", "other") is None


def test_child_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Allow-lists that are set get hsprobe, shims add up, what binds a child to our own Python goes."""
    monkeypatch.setenv("VLLM_PLUGINS", "mine")
    monkeypatch.delenv("SGLANG_PLUGINS", raising=False)
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    monkeypatch.setenv("VIRTUAL_ENV", "/somewhere")
    monkeypatch.setenv("HSPROBE_SHIMS", "cpu-tensor-parallel,libcuda-stub")
    monkeypatch.setenv("PYTHONPATH", "/mine")
    found = Interpreter(
        "sglang", Path("/opt/e/bin/python"), "1", "managed", "cpu", {"A": "1"}, ("libcuda-stub",)
    )
    env = launch.child_environment(spec(), tmp_path, found, Path("/staged"), Path("/spec.json"))
    assert env["VLLM_PLUGINS"] == "mine,hsprobe"
    assert "SGLANG_PLUGINS" not in env
    assert env["HSPROBE_SHIMS"] == "libcuda-stub,cpu-tensor-parallel"
    assert env["PYTHONPATH"] == "/staged:/mine"
    assert env["PATH"].startswith("/opt/e/bin:")
    assert (env["A"], env["PYTHONSAFEPATH"]) == ("1", "1")
    assert not {"VIRTUAL_ENV", "HF_HUB_OFFLINE"} & set(env)


def test_local_model_is_offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A model folder needs no hub."""
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    local = CaptureSpec("hf", str(tmp_path), (), ())
    found = Interpreter("hf", Path(sys.executable), "1", "own", "cpu")
    assert launch.child_environment(local, tmp_path, found, tmp_path, tmp_path)["HF_HUB_OFFLINE"] == "1"


@pytest.mark.parametrize(
    ("code", "words"), [(1, "exit code 1"), (-11, "SIGSEGV"), (137, "memory ran out"), (200, "exit code 200")]
)
def test_exit(code: int, words: str) -> None:
    """Exit codes and signals are told apart."""
    assert words in launch.describe_exit(code)


def test_stubborn_group(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process group that ignores the request to end is killed, its children with it."""
    monkeypatch.setattr(launch, "GRACE", 0.3)
    child_code = (
        "import signal, subprocess, sys, time\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'])\n"
        "print('ready', flush=True)\ntime.sleep(60)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", child_code], stdout=subprocess.PIPE, start_new_session=True
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"ready\n"
        launch.end_group(child)
        # The pipe ends only when the grandchild, which holds it too, is gone.
        assert child.stdout.read() == b""
        assert child.returncode == -signal.SIGKILL
    launch.end_group(child)
