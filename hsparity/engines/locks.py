"""Lock files: exact versions of everything in a managed environment, and a few facts about it."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from pathlib import Path

from ..errors import HsparityError
from . import facts

FOLDER = Path(__file__).parent / "locks"
_PIN = re.compile(r"[A-Za-z0-9][\w.-]*==[\w.!+-]+")


@dataclass(frozen=True)
class Lock:
    """One lock file. Lines starting with `#:` are facts (`#: python 3.11`), all others exact pins."""

    name: str  # file name without .txt: the environment's name
    engine: str
    version: str
    device: str  # "cpu" | "cuda" | "any"
    python: str  # the version it was made with: "3.11"
    complete: bool  # every dependency is listed, so pip resolves nothing
    gigabytes: float  # the environment's size
    seconds: float  # a typical installation, for the time left
    pins: tuple[str, ...]
    text: str

    def key(self, python: str) -> str:
        """12 hex digits that change with any pin and with the interpreter's version ("3.11.7")."""
        return hashlib.sha256(f"{self.text}\n{python}".encode()).hexdigest()[:12]


def parse(name: str, text: str) -> Lock:
    """Read a lock file's text. Raises ValueError for a line that is neither a comment nor an exact pin."""
    said: dict[str, str] = {}
    pins = []
    for number, raw in enumerate(text.splitlines(), 1):
        line = raw.strip()
        if line.startswith("#:"):
            key, _, value = line[2:].strip().partition(" ")
            said[key] = value.strip()
        elif line and not line.startswith("#"):
            if not _PIN.fullmatch(line):
                raise ValueError(f"{name}.txt line {number}: not an exact pin: {line!r}")
            pins.append(line)
    missing = {"engine", "version", "device", "python", "dependencies", "gigabytes", "seconds"} - set(said)
    if missing:
        raise ValueError(f"{name}.txt does not say: {', '.join(sorted(missing))}")
    return Lock(
        name,
        said["engine"],
        said["version"],
        said["device"],
        said["python"],
        said["dependencies"] == "listed",
        float(said["gigabytes"]),
        float(said["seconds"]),
        tuple(pins),
        text,
    )


def all_locks() -> list[Lock]:
    """Every lock that ships, newest version of an engine first."""
    found = [parse(path.stem, path.read_text()) for path in FOLDER.glob("*.txt")]
    # Two stable sorts: by engine name, and inside it the newest release first.
    return sorted(sorted(found, key=lambda k: facts.release(k.version), reverse=True), key=lambda k: k.engine)


def fitting(engine: str, device: str) -> list[Lock]:
    """The locks of an engine that suit a device, newest first."""
    return [lock for lock in all_locks() if lock.engine == engine and lock.device in (device, "any")]


def choose(selector: str, device: str) -> Lock:
    """The lock for "vllm" or "vllm==0.31.0". Raises E107 (unknown engine) and E306 (no lock for it here)."""
    engine, version = facts.split_selector(selector)
    locks = fitting(engine, device)
    for lock in locks:
        if version in ("", lock.version):
            return lock
    if not locks:
        raise HsparityError(
            "E306",
            f"there is no managed environment for {engine}",
            help="pip install 'hsparity[hf]' brings Transformers into hsparity's own environment, or\n"
            f"hsparity engines add {engine} --python PATH",
        )
    raise HsparityError(
        "E306",
        f"no lock for {engine} {version} on this machine",
        (f"locks: {', '.join(f'{k.engine}=={k.version} ({k.device})' for k in locks)}",),
        f"install one of these, or adopt your own: hsparity engines add {engine}@{version} --python PATH",
    )
