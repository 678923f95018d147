"""The command lines that a diff hands out."""

from __future__ import annotations

import shlex
from typing import Any

from hsparity.model import Comparison, Side
from hsparity.report import spelling as sp


def compare_again(
    comparison: Comparison, spelled: str, file: str, floors: tuple[str, ...] | None = None
) -> str:
    """The comparison's own captures once more, on another request or another floor."""
    known = floor_paths(comparison) if floors is None else floors
    words = ["hsparity", "compare", sp.clean(comparison.ref.path), sp.clean(comparison.cand.path)]
    floor = [w for path in dict.fromkeys(known) for w in ("--floor", sp.clean(path))]
    return f"{shlex.join(words)} {sp.clean(spelled)} {shlex.join([*floor, '--json', file])}"


def floor_paths(comparison: Comparison) -> tuple[str, ...]:
    """The captures that were its floor."""
    return tuple(s.path for s in comparison.others if s.role.startswith("floor"))


def new_file(name: str) -> str:
    """Where a result that is made again may go."""
    return "new.json" if name == "-" else sp.clean(name)


def capture_again(
    side: Side, prompts: str, out: str, release: str = "", settings: dict[str, Any] | None = None
) -> str:
    """The command that captures a side again, on the tokens in `prompts`, with the engine's arguments as they were.

    `settings`: of which side its mechanism, ids and arguments are; its own where that is None.
    """
    given = side.settings if settings is None else settings
    engine = f"{side.engine}@{release}" if release else side.engine
    words = ["hsparity", "capture", engine, "--model", side.model or "MODEL", "--dtype", side.dtype]
    mechanism, ids = given.get("mechanism", "hooks"), given.get("native_ids")
    if mechanism != "hooks":
        words += ["--mechanism", str(mechanism)]
        words += ["--native-ids", ",".join(map(str, ids))] if isinstance(ids, (list, tuple)) and ids else []
    words += ["--prompts", prompts, "-o", out]
    arguments = given.get("engine_args")
    if isinstance(arguments, dict) and arguments:
        words += ["--", *(f"{k}={v}" for k, v in sorted(arguments.items()))]
    return shlex.join(map(sp.clean, words))
