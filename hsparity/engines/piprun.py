"""Run pip in a managed environment, follow it, and say what its failures mean."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from pathlib import Path

from ..errors import HsparityError
from . import machine
from .child import clean_environment, tied
from .locks import FOLDER, Lock
from .progress import InstallProgress

# Shares of an installation: finding and fetching, then unpacking; the rest is the first import.
FETCH, UNPACK = 0.4, 0.55
_STEP = re.compile(r"(Collecting|Processing|Requirement already satisfied:?) ")


def upgrade_pip(folder: Path, lock: Lock) -> None:
    """The pip that comes with an old Python cannot install from these locks."""
    _run(folder, lock, ["--upgrade", "pip"], None)


def install_pins(folder: Path, lock: Lock, progress: InstallProgress) -> None:
    """Install every pin of the lock; one that lists all dependencies is not resolved. Raises E308."""
    _run(
        folder,
        lock,
        [*(["--no-deps"] if lock.complete else []), "-r", str(FOLDER / f"{lock.name}.txt")],
        progress,
    )


def _run(folder: Path, lock: Lock, arguments: list[str], progress: InstallProgress | None) -> None:
    command = [str(folder / "bin" / "python"), "-m", "pip", "install", "--no-input", "--progress-bar", "off"]
    command += ["--disable-pip-version-check", "--no-warn-script-location", *arguments]
    # A prefix or target from the user's settings would install somewhere else.
    env = {
        k: v
        for k, v in clean_environment().items()
        if k not in ("PYTHONPATH", "PIP_TARGET", "PIP_PREFIX", "PIP_USER")
    }
    log = folder.with_name(folder.name + ".log")
    with log.open("w") as out:
        child = subprocess.Popen(
            tied(command),
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            while child.poll() is None:
                time.sleep(0.2)
                if progress is not None:
                    _show(folder, log, len(lock.pins), progress)
        finally:
            if child.poll() is None:
                os.killpg(child.pid, signal.SIGKILL)
                child.wait()
    if child.returncode:
        raise explain(log.read_text(errors="replace").splitlines(), lock, folder)


def _show(folder: Path, log: Path, total: int, progress: InstallProgress) -> None:
    lines = log.read_text(errors="replace").splitlines()
    if not any(line.startswith("Installing collected packages") for line in lines):
        found = min(sum(1 for line in lines if _STEP.match(line)), total)
        progress(f"fetching package {found} of {total}", FETCH * found / total)
        return
    # pip is silent while it unpacks: what it has finished lies in site-packages.
    done = min(sum(1 for _ in folder.glob("lib/python*/site-packages/*.dist-info")), total)
    progress(f"unpacking package {done} of {total}", FETCH + UNPACK * done / total)


def explain(lines: list[str], lock: Lock, folder: Path) -> HsparityError:
    """What pip's last lines mean, as E308."""
    text = "\n".join(lines)
    # pip lists every version that it did not take, in one line of thousands of letters.
    short = [line if len(line) <= 160 else f"{line[:159]}…" for line in lines if "Ignored the" not in line]
    said = [line for line in short if line.startswith(("ERROR", "error")) or "No space left" in line][-4:]
    notes = said or [line for line in short if line.strip()][-4:]
    missing = re.findall(r"No matching distribution found for (\S+)", text)
    if "No space left on device" in text or "Errno 28" in text:
        free = machine.gigabytes(machine.free_bytes(folder))
        return HsparityError(
            "E308",
            f"the disk filled up while installing {lock.name}",
            (f"needed  {lock.gigabytes:g} GB", f"free    {free} at {folder.parent}"),
            "free some, or set XDG_CACHE_HOME (and TMPDIR) to folders on a larger disk",
        )
    if any(name.startswith("torch==") and "+cpu" in name for name in missing):
        return HsparityError(
            "E308",
            f"pip cannot find {missing[-1]}, which {lock.name} needs",
            (
                "the ordinary package index has no CPU builds of torch: your pip configuration says where",
                "they come from",
                *notes,
            ),
            "PyTorch's install page (compute platform: CPU) gives the address of its CPU wheel index; then\n"
            f"PIP_EXTRA_INDEX_URL=ADDRESS hsparity engines install {lock.engine}=={lock.version}\n"
            "or for good: pip config set global.extra-index-url ADDRESS",
        )
    if re.search(r"NewConnectionError|Temporary failure in name resolution|ConnectTimeout|ProxyError", text):
        return HsparityError(
            "E308",
            f"pip cannot reach its package index for {lock.name}",
            notes,
            "check the network and pip config list",
        )
    return HsparityError(
        "E308",
        f"pip could not install {lock.name}",
        notes,
        f"the whole log: {folder.with_name(folder.name + '.log')}\n"
        f"or adopt an environment of yours: hsparity engines add {lock.engine} --python PATH",
    )
