"""Managed environments: one folder per lock and interpreter version, complete only with complete.json."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from . import locks, machine
from .locks import Lock

COMPLETE = "complete.json"  # written last, atomically
INSTALLING = "installing"  # written first: a folder with this and without complete.json was interrupted
STUB_FOLDER = "stub"


@dataclass(frozen=True)
class Environment:
    """One managed environment. `state`: complete, installing (by another process), interrupted, outdated."""

    folder: Path
    state: str
    lock: Lock | None  # None when no lock that ships made it
    facts: dict[str, Any]  # complete.json: engine, version, device, python, bytes, seconds, stub

    @property
    def python(self) -> Path:
        return self.folder / "bin" / "python"

    @property
    def stub(self) -> Path | None:
        """The folder of the libcuda stub, when this environment was made with one."""
        return self.folder / STUB_FOLDER if self.facts.get("stub") else None


def folder_for(lock: Lock, python: str) -> Path:
    """The folder of a lock under an interpreter version ("3.11.7")."""
    return machine.cache_folder() / f"{lock.name}-{lock.key(python)}"


def look(folder: Path) -> Environment:
    """What a folder in the cache is. Never raises for a damaged one: it is interrupted."""
    known = {lock.name: lock for lock in locks.all_locks()}
    lock = known.get(folder.name.rpartition("-")[0])
    try:
        said = json.loads((folder / COMPLETE).read_text())
        python = said["python"]
    except (OSError, ValueError, KeyError, TypeError):
        return Environment(folder, "installing" if is_locked(folder) else "interrupted", lock, {})
    if lock is None or folder.name != f"{lock.name}-{lock.key(python)}":
        return Environment(folder, "outdated", lock, said)
    return Environment(
        folder, "complete" if (folder / "bin" / "python").exists() else "interrupted", lock, said
    )


def all_environments() -> list[Environment]:
    """Every folder of ours in the cache, by name."""
    root = machine.cache_folder()
    if not root.is_dir():
        return []
    return [look(path) for path in sorted(root.iterdir()) if path.is_dir()]


def installed(engine: str, version: str = "") -> Environment | None:
    """The newest complete environment for an engine that suits this machine, or None."""
    wanted = [k.name for k in locks.fitting(engine, machine.device()) if version in ("", k.version)]
    ready = {e.lock.name: e for e in all_environments() if e.state == "complete" and e.lock is not None}
    return next((ready[name] for name in wanted if name in ready), None)


def write_complete(folder: Path, said: dict[str, Any]) -> None:
    """Declare an environment complete: complete.json by rename, then the marker goes."""
    part = folder / f"{COMPLETE}.{os.getpid()}.tmp"
    with part.open("w") as out:
        json.dump(said, out, indent=1, sort_keys=True)
        out.flush()
        os.fsync(out.fileno())
    part.replace(folder / COMPLETE)
    (folder / INSTALLING).unlink(missing_ok=True)


def remove(folder: Path) -> None:
    """Delete an environment: complete.json first, so that a half-deleted one is never taken for whole."""
    (folder / COMPLETE).unlink(missing_ok=True)
    shutil.rmtree(folder)


def _guard(folder: Path) -> Path:
    return folder.with_name(folder.name + ".lock")


@contextmanager
def locked(folder: Path, waiting: str, say: Any) -> Iterator[None]:
    """Hold the folder's lock file, which the kernel frees at exit. Says `waiting` when it is held."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with _guard(folder).open("w") as guard:
        try:
            fcntl.flock(guard, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(waiting)
            fcntl.flock(guard, fcntl.LOCK_EX)
        yield


def is_locked(folder: Path) -> bool:
    """True while another process installs into `folder`."""
    guard = _guard(folder)
    if not guard.exists():
        return False
    with guard.open() as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False
