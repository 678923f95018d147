"""Managed and adopted interpreters on disk, in a cache and a config folder of the test's own."""

from __future__ import annotations

import json
import multiprocessing
import os
import subprocess
import sys
from pathlib import Path

import pytest

from hsparity.engines import adopted, environments, install, locks, machine, piprun, progress, resolve
from hsparity.errors import HsparityError


@pytest.fixture(autouse=True)
def _own_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))


@pytest.fixture
def lock() -> locks.Lock:
    return locks.choose("vllm", machine.device())


def make(lock: locks.Lock, python: str = "3.11.7") -> Path:
    """A folder as an installation leaves it just before complete.json."""
    folder = environments.folder_for(lock, python)
    (folder / "bin").mkdir(parents=True)
    (folder / "bin" / "python").symlink_to(sys.executable)
    (folder / environments.INSTALLING).write_text("pid 1\n")
    return folder


def complete(folder: Path, lock: locks.Lock, python: str = "3.11.7") -> None:
    said = {"engine": lock.engine, "version": lock.version, "device": lock.device, "python": python}
    environments.write_complete(folder, {**said, "bytes": 1, "seconds": 1, "stub": False})


def test_interrupted(lock: locks.Lock) -> None:
    """An environment without complete.json is interrupted: never resolved, and named in the error."""
    folder = make(lock)
    assert environments.look(folder).state == "interrupted"
    assert environments.installed("vllm") is None
    with pytest.raises(HsparityError) as caught:
        resolve("vllm")
    assert caught.value.code == "E301"
    assert folder.name in caught.value.render()
    assert "hsparity engines install vllm\n" in caught.value.render()


def test_complete(lock: locks.Lock) -> None:
    """complete.json makes an environment one that resolves, and takes the marker away."""
    folder = make(lock)
    complete(folder, lock)
    assert not (folder / environments.INSTALLING).exists()
    assert environments.look(folder).state == "complete"
    found = resolve("vllm")
    assert (found.python, found.version, found.origin, found.shims) == (
        folder / "bin" / "python",
        lock.version,
        "managed",
        (),
    )
    assert resolve(f"vllm@{lock.version}") == found


def test_damaged_complete(lock: locks.Lock) -> None:
    """A torn complete.json counts as interrupted."""
    folder = make(lock)
    (folder / environments.COMPLETE).write_text('{"engine": "vl')
    assert environments.look(folder).state == "interrupted"


def test_outdated(lock: locks.Lock) -> None:
    """An environment of another lock text or interpreter is outdated and not resolved."""
    folder = make(lock)
    complete(folder, lock, python="3.11.8")
    assert environments.look(folder).state == "outdated"
    assert environments.installed("vllm") is None


def test_remove(lock: locks.Lock) -> None:
    """Removing deletes the folder; an interpreter behind its link stays."""
    folder = make(lock)
    complete(folder, lock)
    environments.remove(folder)
    assert environments.all_environments() == []
    assert Path(sys.executable).exists()


def _hold(
    folder: Path, ready: multiprocessing.synchronize.Event, done: multiprocessing.synchronize.Event
) -> None:
    with environments.locked(folder, "waiting", print):
        ready.set()
        done.wait(30)


def test_concurrent_installs(lock: locks.Lock) -> None:
    """While another process installs, the folder reads as installing and the second one waits, saying so."""
    folder = make(lock)
    context = multiprocessing.get_context("spawn")
    ready, done = context.Event(), context.Event()
    other = context.Process(target=_hold, args=(folder, ready, done))
    other.start()
    assert ready.wait(60)
    assert environments.look(folder).state == "installing"
    said: list[str] = []

    def say(text: str) -> None:
        said.append(text)
        done.set()

    with environments.locked(folder, "another process is installing it", say):
        assert said == ["another process is installing it"]
    other.join(30)
    assert environments.look(folder).state == "interrupted"


def test_disk_check(lock: locks.Lock) -> None:
    """An environment larger than the disk is refused before anything is made, with need and free."""
    huge = locks.parse(lock.name, lock.text.replace("#: gigabytes", "#: gigabytes 9000000\n# "))
    with pytest.raises(HsparityError) as caught:
        install.install(huge)
    assert caught.value.code == "E308"
    assert [note.split()[0] for note in caught.value.notes] == ["needed", "free"]
    assert environments.all_environments() == []


def test_no_compiler(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Without a C compiler SGLang's CPU installation says so before it downloads."""
    if machine.has_driver():
        pytest.skip("a machine with a driver needs no stub")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("CC", "")
    with pytest.raises(HsparityError) as caught:
        install.install(locks.choose("sglang", "cpu"))
    assert caught.value.code == "E308"
    assert "C compiler" in caught.value.message


def test_stub(tmp_path: Path) -> None:
    """The stub loads as libcuda.so.1 and answers every call with CUDA_ERROR_NO_DEVICE."""
    path = install.compile_stub(tmp_path)
    code = (
        f"import ctypes; c = ctypes.CDLL({str(path)!r}); print(c.cuInit(0), c.cuPointerGetAttribute(0, 0, 0))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["100", "100"]


def test_stub_is_only_for_its_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """A managed SGLang with a stub has it on LD_LIBRARY_PATH, before the user's own, and names the shims."""
    if machine.has_driver():
        pytest.skip("a stub would hide this machine's driver")
    monkeypatch.setenv("LD_LIBRARY_PATH", "/opt/mine")
    lock = locks.choose("sglang", "cpu")
    folder = make(lock)
    said = {"engine": "sglang", "version": lock.version, "device": "cpu", "python": "3.11.7"}
    environments.write_complete(folder, {**said, "bytes": 1, "seconds": 1, "stub": True})
    found = resolve("sglang")
    assert found.env["LD_LIBRARY_PATH"] == f"{folder / 'stub'}:/opt/mine"
    assert found.env["SGLANG_USE_CPU_ENGINE"] == "1"
    assert found.shims == ("libcuda-stub", "mla-absorb")


def test_adopt() -> None:
    """Our own interpreter can be adopted for hf: asked, imported, remembered, resolved and forgotten."""
    answer = adopted.add("hf@mine", sys.executable)
    assert answer.python == ".".join(map(str, sys.version_info[:3]))
    found = resolve("hf@mine")
    assert (found.python, found.origin) == (Path(os.path.abspath(sys.executable)), "adopted")
    assert found.version == (answer.versions or {})["transformers"]
    assert resolve("hf").origin == "own"
    assert adopted.forget("hf@mine")
    assert not adopted.forget("hf@mine")
    with pytest.raises(HsparityError):
        resolve("hf@mine")


@pytest.mark.parametrize(
    ("name", "python"), [("vllm", sys.executable), ("hf", "/nowhere/python"), ("hf", "/bin/true")]
)
def test_adopt_refuses(name: str, python: str) -> None:
    """A Python without the engine, one that is not there and what is no Python are not remembered."""
    with pytest.raises(HsparityError) as caught:
        adopted.add(name, python)
    assert caught.value.code == "E308"
    assert adopted.adopted() == {}


def test_adopted_has_gone(tmp_path: Path) -> None:
    """An adopted interpreter that vanished is an error that says how to forget it, not a silent fallback."""
    file = machine.config_folder() / "engines.json"
    file.parent.mkdir(parents=True)
    file.write_text(json.dumps({"engines": {"hf": {"python": str(tmp_path / "gone")}}}))
    with pytest.raises(HsparityError) as caught:
        resolve("hf")
    assert caught.value.code == "E301"
    assert "hsparity engines remove hf" in caught.value.help


def test_damaged_config() -> None:
    """A damaged engines.json is a coded error."""
    file = machine.config_folder() / "engines.json"
    file.parent.mkdir(parents=True)
    file.write_text('{"engines": []}')
    with pytest.raises(HsparityError) as caught:
        adopted.adopted()
    assert caught.value.code == "E104"


@pytest.mark.parametrize(
    ("log", "words"),
    [
        ("ERROR: No matching distribution found for torch==2.13.0+cpu", "PIP_EXTRA_INDEX_URL=ADDRESS"),
        ("ERROR: Could not install: [Errno 28] No space left on device", "disk filled up"),
        ("WARNING: Retrying after NewConnectionError('x')\nERROR: No matching", "cannot reach"),
        ("ERROR: something else", "something else"),
    ],
)
def test_pip_failures(lock: locks.Lock, log: str, words: str) -> None:
    """What pip says last becomes E308 with what to do."""
    error = piprun.explain(log.splitlines(), lock, environments.folder_for(lock, "3.11.7"))
    assert error.code == "E308"
    assert words in error.render()


def test_time_left() -> None:
    """At first the typical time counts, then this run's own pace; it never reaches zero before the end."""
    shown = progress.InstallProgress("x", 100.0)
    assert shown.left(0.0, 10.0) == pytest.approx(90.0)
    assert shown.left(0.5, 200.0) == pytest.approx(200.0)
    assert shown.left(0.1, 500.0) > 1000
    assert shown.left(0.0, 500.0) > 0
    assert progress.clock(150) == "2 min 30 s"
