"""The command lines that a diff hands out."""

from __future__ import annotations

import shlex
from pathlib import PurePath
from typing import Any

from hsparity.model import Comparison, Request, Side
from hsparity.report import spelling as sp


def compare_again(
    comparison: Comparison,
    request: Request,
    file: str,
    floors: tuple[str, ...] | None = None,
    sides: tuple[str, str] | None = None,
) -> str:
    """The comparison's own captures, or two others, on a request, over its own floor or another one."""
    ref, cand = sides or (comparison.ref.path, comparison.cand.path)
    asked = [sp.clean(request.spelled)] if request.spelled else []
    asked += [f"--offset {request.offset}"] if request.offset else []
    if {request.tokens, comparison.request.tokens} != {"all"}:
        asked.append(shlex.join(["--tokens", sp.clean(request.tokens)]))
    known = floor_paths(comparison) if floors is None else floors
    over = [w for path in dict.fromkeys(known) for w in ("--floor", sp.clean(path))]
    if comparison.floor.kind == "tolerance" and floors is None:
        over += ["--tol", f"{comparison.floor.limit:g}"]
    over += ["--json", file] if file else []
    return " ".join(
        [shlex.join(map(sp.clean, ("hsparity", "compare", ref, cand))), *asked, shlex.join(over)]
    ).rstrip()


def floor_paths(comparison: Comparison) -> tuple[str, ...]:
    """The captures that were its floor, a repeat among them."""
    return tuple(s.path for s in comparison.others)


def new_file(name: str) -> str:
    """Where a result that is made again may go: beside the one that it was read from, never in its place."""
    return "again.json" if name == "-" else sp.clean(str(PurePath(name).with_suffix(""))) + "-again.json"


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
