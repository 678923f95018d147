"""From an engine's name to the interpreter that runs it."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass, field
from importlib import metadata, util
from pathlib import Path

from ..errors import HsparityError
from . import environments, facts, locks, machine
from .adopted import adopted, engine_environment
from .ask import Answer, ask
from .facts import EngineFacts


@dataclass(frozen=True)
class Interpreter:
    """An interpreter that holds an engine, and what must be around it."""

    engine: str  # "vllm"
    python: Path
    version: str
    origin: str  # "managed" | "adopted" | "own"
    device: str  # "cpu" | "cuda"
    env: dict[str, str] = field(default_factory=dict)
    shims: tuple[str, ...] = ()  # named in the manifest of every capture made with them


def resolve(selector: str) -> Interpreter:
    """The interpreter for "hf", "vllm", "sglang" or a release such as "vllm@0.31.0".

    An adopted one wins over a managed one: adopting is the explicit act. Raises E107 for an unknown engine,
    E301 when none is there.
    """
    engine, version = facts.split_selector(selector)
    known = facts.facts(engine)
    found = _adopted(known, version)
    if found is not None:
        return found
    environment = environments.installed(engine, version)
    if environment is not None:
        return _managed(engine, environment)
    if engine == "hf" and util.find_spec("transformers") is not None:
        own = metadata.version("transformers")
        if version in ("", own):
            return Interpreter("hf", Path(sys.executable), own, "own", machine.device())
    raise _not_installed(known, version)


def _adopted(known: EngineFacts, version: str) -> Interpreter | None:
    """The one adopted under this very name, or the engine's adopted one when it is of that version."""
    name = f"{known.name}@{version}" if version else known.name
    entries = adopted()
    for key in dict.fromkeys((name, known.name)):
        if key not in entries:
            continue
        answer = ask(entries[key], known)
        held = answer.version_of(known)
        if key == name and not held:
            raise HsparityError(
                "E301",
                f"the interpreter adopted for {key} no longer has {known.title}",
                (str(entries[key]), *answer.error),
                f"hsparity engines remove {key}\nor adopt another: engines add {key} --python PATH",
            )
        if key == name or (held and facts.release(held) == facts.release(version)):
            device = "cpu" if _cpu_only(answer, known) else machine.device()
            return Interpreter(
                known.name, entries[key], held, "adopted", device, engine_environment(known.name)
            )
    return None


def _cpu_only(answer: Answer, known: EngineFacts) -> bool:
    """Whether the engine or its torch was built without CUDA."""
    torch = (answer.versions or {}).get("torch", "")
    return answer.distribution_of(known).endswith("-cpu") or "+cpu" in answer.version_of(known) + torch


def _managed(engine: str, environment: environments.Environment) -> Interpreter:
    device = "cpu" if environment.facts["device"] == "cpu" else machine.device()
    env = engine_environment(engine)
    shims: tuple[str, ...] = ()
    # A stub would hide a real GPU: it is only for a machine without a driver.
    if environment.stub is not None and not machine.has_driver():
        path = os.environ.get("LD_LIBRARY_PATH")
        env["LD_LIBRARY_PATH"] = f"{environment.stub}:{path}" if path else str(environment.stub)
        shims = ("libcuda-stub", "mla-absorb")
    version = environment.facts["version"]
    return Interpreter(engine, environment.python, version, "managed", device, env, shims)


def _not_installed(known: EngineFacts, version: str) -> HsparityError:
    title = f"{known.title} {version}" if version else known.title
    name = f"{known.name}@{version}" if version else known.name
    adopt = f"or adopt one you have: hsparity engines add {name} --python PATH"
    if known.name == "hf":
        notes = [f"looked in hsparity's own interpreter: {sys.executable}"]
        return HsparityError(
            "E301", f"{title} is not installed", notes, f"pip install 'hsparity[hf]'\n{adopt}"
        )
    stopped = [
        e
        for e in environments.all_environments()
        if e.state == "interrupted" and e.lock and e.lock.engine == known.name
    ]
    notes = [f"an installation was interrupted: {e.folder.name}; installing again redoes it" for e in stopped]
    releases = [lock.version for lock in locks.fitting(known.name, machine.device())]
    if version and version not in releases:
        ways = f"hsparity installs {', '.join(releases)}\n{adopt}"
    else:
        ways = f"hsparity engines install {name.replace('@', '==')}\n{adopt}"
    return HsparityError("E301", f"{title} is not installed", notes, ways)
