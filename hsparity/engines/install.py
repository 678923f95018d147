"""Make a managed environment from a lock: venv, pip, the libcuda stub where needed, then a real import."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

from ..errors import HsparityError
from . import environments, facts, machine, piprun
from .adopted import engine_environment
from .ask import ask
from .child import clean_environment
from .environments import Environment
from .locks import Lock
from .progress import InstallProgress, clock

MARGIN = 1.3  # of the environment's size: pip unpacks beside what it downloads
STUB_SOURCE = Path(__file__).parent / "libcuda_stub.c"


def install(lock: Lock, python: str | None = None) -> Environment:
    """Install a lock unless it is there already. Safe to run twice at once and after an interruption.

    Raises E308: no such Python, not enough disk, no C compiler, pip failed, or the engine cannot be imported.
    """
    progress = InstallProgress(lock.name, lock.seconds)
    base, version = base_python(lock, python)
    if not version.startswith(f"{lock.python}."):
        progress.say(f"the lock was made with Python {lock.python}, this is {version}: not tried")
    folder = environments.folder_for(lock, version)
    _writable(folder.parent)
    with environments.locked(folder, "another process is installing it; waiting", progress.say):
        there = environments.look(folder)
        if there.state == "complete":
            return there
        if folder.exists():
            progress.say(f"{folder.name} was interrupted; making it again")
            shutil.rmtree(folder)
        _check_before(lock, folder)
        progress.say(
            f"{len(lock.pins)} packages, about {clock(lock.seconds)}, {lock.gigabytes:g} GB in {folder}"
        )
        try:
            _make(lock, folder, base, version, progress)
        except HsparityError:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        made = environments.look(folder)
        size = machine.gigabytes(made.facts["bytes"])
        progress.say(f"ready after {clock(made.facts['seconds'])}, {size}")
        return made


def base_python(lock: Lock, python: str | None = None) -> tuple[Path, str]:
    """The interpreter to make an environment with, and its version.

    The one named, else one of the version that the lock was made with, else our own.
    """
    known = facts.facts(lock.engine)
    if python:
        path = Path(os.path.abspath(os.path.expanduser(python)))
        answer = ask(path, known)
        if answer.error:
            raise HsparityError("E308", f"{path} does not answer", answer.error, "name a Python interpreter")
        return path, answer.python
    own = Path(getattr(sys, "_base_executable", sys.executable))
    own_version = ".".join(str(part) for part in sys.version_info[:3])
    if not own_version.startswith(f"{lock.python}."):
        found = shutil.which(f"python{lock.python}")
        theirs = ask(Path(found), known) if found else None
        if found and theirs and theirs.python.startswith(f"{lock.python}."):
            return Path(found), theirs.python
    return own, own_version


def needs_stub(lock: Lock) -> bool:
    """SGLang's kernels link against the driver; without one a stub stands in."""
    return lock.engine == "sglang" and not machine.has_driver()


def need_bytes(lock: Lock) -> float:
    """Disk to ask for before starting."""
    return lock.gigabytes * machine.GIGABYTE * MARGIN


def _writable(root: Path) -> None:
    try:
        root.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise HsparityError(
            "E106",
            f"cannot write {root}",
            (str(error.strerror),),
            "XDG_CACHE_HOME names another cache folder",
        ) from error


def _check_before(lock: Lock, folder: Path) -> None:
    need, free = need_bytes(lock), machine.free_bytes(folder)
    if free < need:
        raise HsparityError(
            "E308",
            f"not enough disk for {lock.name}",
            (f"needed  {machine.gigabytes(need)}", f"free    {machine.gigabytes(free)} at {folder.parent}"),
            "free some, or set XDG_CACHE_HOME to a folder on a larger disk",
        )
    if needs_stub(lock) and machine.c_compiler() is None:
        raise HsparityError(
            "E308",
            "a C compiler is needed to install SGLang on a machine without a GPU driver",
            ("its kernels link against libcuda.so.1, for which a small stub is compiled",),
            "install gcc or clang (apt install gcc), or name one in CC",
        )


def _make(lock: Lock, folder: Path, base: Path, version: str, progress: InstallProgress) -> None:
    started = time.monotonic()
    folder.mkdir(parents=True)
    (folder / environments.INSTALLING).write_text(f"pid {os.getpid()}\n")
    stub = needs_stub(lock)
    if stub:
        compile_stub(folder / environments.STUB_FOLDER)
    progress("making a virtual environment", 0.0)
    _venv(base, folder)
    piprun.upgrade_pip(folder, lock)
    piprun.install_pins(folder, lock, progress)
    progress("importing it once", 0.95)
    env = engine_environment(lock.engine)
    if stub:
        env["LD_LIBRARY_PATH"] = str(folder / environments.STUB_FOLDER)
    known = facts.facts(lock.engine)
    answer = ask(folder / "bin" / "python", known, importing=True, env=env, timeout=600)
    if answer.error:
        raise HsparityError(
            "E308",
            f"{lock.name} was installed and cannot be imported",
            answer.error,
            "the lock and this machine do not fit; adopt an environment of yours: "
            f"hsparity engines add {lock.engine} --python PATH",
        )
    said = {
        "engine": lock.engine,
        "version": answer.version_of(known),
        "device": "cpu" if lock.device == "cpu" else machine.device(),
        "python": version,
        "bytes": _size(folder),
        "seconds": round(time.monotonic() - started, 1),
        "stub": stub,
        "versions": dict(answer.versions or {}),
    }
    progress.clear()
    environments.write_complete(folder, said)


def _venv(base: Path, folder: Path) -> None:
    done = subprocess.run(
        [str(base), "-m", "venv", str(folder)],
        env=clean_environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        tail = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()][-4:]
        raise HsparityError(
            "E308",
            f"{base} cannot make a virtual environment",
            tail,
            "on Debian and Ubuntu: apt install python3-venv; or name another interpreter with --python",
        )


def compile_stub(folder: Path) -> Path:
    """Compile the libcuda stub into `folder`. Raises E308 with the compiler's last lines."""
    compiler = machine.c_compiler() or "cc"
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / "libcuda.so.1"
    command = [compiler, "-shared", "-fPIC", "-o", str(target), str(STUB_SOURCE)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise HsparityError(
            "E308",
            "cannot compile the libcuda stub",
            done.stderr.splitlines()[-4:],
            "name another compiler in CC",
        )
    return target


def _size(folder: Path) -> int:
    """Bytes on disk, links not followed."""
    total = 0
    for root, _, names in os.walk(folder):
        total += sum(os.lstat(os.path.join(root, name)).st_size for name in names)
    return total
