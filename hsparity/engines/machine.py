"""What this machine is: folders of ours, a GPU driver or none, free disk, a C compiler."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

GIGABYTE = 1e9


def cache_folder() -> Path:
    """Where managed environments live: $XDG_CACHE_HOME or ~/.cache, then hsparity/engines."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "hsparity" / "engines"


def config_folder() -> Path:
    """Where adopted interpreters are remembered: $XDG_CONFIG_HOME or ~/.config, then hsparity."""
    base = os.environ.get("XDG_CONFIG_HOME") or str(Path.home() / ".config")
    return Path(base) / "hsparity"


def has_driver() -> bool:
    """True when an NVIDIA driver is here. LD_LIBRARY_PATH is not asked: a stub of ours may be on it."""
    signs = ("/proc/driver/nvidia/version", "/dev/nvidiactl", "/dev/nvidia0", "/usr/lib/wsl/lib/libcuda.so.1")
    return shutil.which("nvidia-smi") is not None or any(os.path.exists(sign) for sign in signs)


def device() -> str:
    """What engines run on here: "cuda" or "cpu"."""
    return "cuda" if has_driver() else "cpu"


def free_bytes(path: Path) -> int:
    """Free bytes on the disk that holds `path`, which need not exist yet."""
    here = path.absolute()
    while not here.exists():
        here = here.parent
    return shutil.disk_usage(here).free


def c_compiler() -> str | None:
    """Path of the C compiler: $CC, cc, gcc or clang."""
    names = [os.environ.get("CC") or "", "cc", "gcc", "clang"]
    return next((found for name in names if name and (found := shutil.which(name))), None)


def gigabytes(count: float) -> str:
    """`11 GB`, `3.4 GB`, `120 MB`, `4 kB`."""
    if count < 1e6:
        return f"{count / 1e3:.0f} kB"
    if count < 1e9:
        return f"{count / 1e6:.0f} MB"
    return f"{count / 1e9:.1f} GB" if count < 1e10 else f"{count / 1e9:.0f} GB"
