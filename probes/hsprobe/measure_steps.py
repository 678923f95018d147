"""Steps of speculative decoding on their way out of the engine: one line per step, written where the model runs."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from .spool import FOLDER

STEPS_FILE = "steps.jsonl"  # in spool/


@dataclass(frozen=True)
class Step:
    """One pass of the target over drafted tokens.

    Tokens are numbered from the first of the prompt on. The target saw `drafted` at first, first + 1, …, took the first
    `accepted` of them, and wrote `bonus` behind those itself.
    """

    request: str
    first: int
    drafted: tuple[int, ...]
    accepted: int
    bonus: int


def append(out: Path, steps: Iterable[Step]) -> None:
    """Add steps to the file, in one write."""
    lines = "".join(json.dumps(asdict(step)) + "\n" for step in steps).encode()
    if not lines:
        return
    path = out / FOLDER / STEPS_FILE
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(descriptor, lines)
    finally:
        os.close(descriptor)


def take(out: Path) -> tuple[Step, ...]:
    """The steps written since the last call, in their order; the file is removed."""
    path = out / FOLDER / STEPS_FILE
    try:
        lines = path.read_text().splitlines()
    except FileNotFoundError:
        return ()
    path.unlink()
    return tuple(Step(**{**raw, "drafted": tuple(raw["drafted"])}) for raw in map(json.loads, lines))
