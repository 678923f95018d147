"""Interpreters that the user already has, remembered in the config folder. Nothing is installed in them."""

from __future__ import annotations

import json
import os
from pathlib import Path

from ..errors import HsparityError
from . import facts, machine
from .ask import Answer, ask

MINIMUM_PYTHON = (3, 10)


def _file() -> Path:
    return machine.config_folder() / "engines.json"


def adopted() -> dict[str, Path]:
    """Name ("sglang", "vllm@nightly") -> interpreter. Raises E104 when the file is damaged."""
    try:
        said = json.loads(_file().read_text())
        return {str(name): Path(entry["python"]) for name, entry in said["engines"].items()}
    except FileNotFoundError:
        return {}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise HsparityError(
            "E104", f"cannot read {_file()}", (str(error),), "delete it and adopt the interpreters again"
        ) from error


def _write(entries: dict[str, Path]) -> None:
    target = _file()
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_name(f"{target.name}.{os.getpid()}.tmp")
    said = {"engines": {name: {"python": str(python)} for name, python in sorted(entries.items())}}
    part.write_text(json.dumps(said, indent=1) + "\n")
    part.replace(target)


def add(name: str, python: str) -> Answer:
    """Adopt an interpreter after it has imported the engine, torch and safetensors.

    Raises E107 for an unknown engine and E308 when the interpreter cannot serve.
    """
    name = name.replace("==", "@")
    engine, _ = facts.split_selector(name)
    known = facts.facts(engine)
    # Links are kept: a venv's python is a link whose place is what matters.
    path = Path(os.path.abspath(os.path.expanduser(python)))
    answer = ask(path, known)
    problem, help_text = "", f"hsparity engines add {name} --python PATH"
    if answer.error:
        problem = "it does not answer"
    elif tuple(int(part) for part in answer.python.split(".")[:2]) < MINIMUM_PYTHON:
        problem = f"it is Python {answer.python}; the probe needs 3.10 or newer"
    elif not answer.version_of(known):
        problem = f"{known.title} is not installed there"
    else:
        absent = [p for p in ("torch", "safetensors") if p not in (answer.versions or {})]
        if absent:
            problem = f"{' and '.join(absent)} missing there"
    if not problem:
        tried = ask(path, known, importing=True, env=engine_environment(engine), timeout=300)
        if tried.error:
            problem, answer = f"{known.title} is there and cannot be imported", tried
    if problem:
        raise HsparityError("E308", f"cannot adopt {path} for {name}: {problem}", answer.error, help_text)
    _write({**adopted(), name: path})
    return answer


def forget(name: str) -> bool:
    """Forget an adopted interpreter; False when there was none. The interpreter itself is untouched."""
    entries = adopted()
    if name not in entries:
        return False
    _write({k: v for k, v in entries.items() if k != name})
    return True


def engine_environment(engine: str) -> dict[str, str]:
    """Environment variables an engine needs on this machine, whoever owns its interpreter."""
    if engine == "sglang" and machine.device() == "cpu":
        return {"SGLANG_USE_CPU_ENGINE": "1"}
    return {}
