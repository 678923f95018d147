"""What hsparity inspect says of a saved result, or of a page that carries one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ..errors import HsparityError
from .saved_kinds import Kind, kind_of, show

PAGE_BYTES = 64 << 20
# Fields that say what a result is about, in the order in which they are shown, as far as it has them.
_ABOUT = ("dataset", "format", "sampled", "draft", "model", "engine", "capture", "folder")


def describe_page(path: Path) -> list[str] | None:
    """About an HTML page that carries a result; None for another file."""
    from ..report.embedded import unpack

    try:
        with path.open("rb") as file:
            if not file.read(1024).lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"<"):
                return None
        if path.stat().st_size > PAGE_BYTES:
            return None
        text = unpack(path.read_text(encoding="utf-8"))
        said = None if text is None else json.loads(text)
    except (OSError, UnicodeDecodeError):
        return None
    except (ValueError, RecursionError, HsparityError) as error:
        return [f"{path}: a damaged page of hsparity, {error}"]
    lines = describe(path, said) if isinstance(said, dict) else None
    return lines and [lines[0].replace(": ", ": an HTML page that carries ", 1), *lines[1:]]


def describe(path: Path, said: dict[str, Any]) -> list[str] | None:
    """About a saved result; None for a JSON object that is none."""
    schema = said.get("schema")
    kind = kind_of(schema)
    if kind is None:
        return None
    head = f"{path}: {kind.words}, {schema}"
    try:
        lines = _comparison(said) if schema == "hsparity.comparison/1" else _other(said)
    except (KeyError, TypeError, AttributeError):
        return [
            f"{path}: damaged, a result of {_command(kind)} that lacks parts",
            f"  keys      {_keys(said)}",
        ]
    redacted = ["  redacted  prompts, paths and names were taken out"] if said.get("redacted") is True else []
    return [
        head,
        f"  made by   {_command(kind)}",
        *lines,
        *redacted,
        f"  next      {show(schema, str(path))}",
    ]


def _command(kind: Kind) -> str:
    """The command's name: its words in lower letters."""
    return " ".join(
        word for word in kind.command.split(" --")[0].split() if word.isalpha() and word.islower()
    )


def _comparison(said: dict[str, Any]) -> list[str]:
    codes = [f"{f['code']} {f['name']}" for f in said.get("findings", []) if not f.get("ruled_out")]
    return [
        f"  verdict   {said['verdict']}: {said['headline']}",
        *(_side(side["role"], side) for side in (said["ref"], said["cand"])),
        f"  asked     {said['request']['spelled']}, tokens {said['request']['tokens']}",
        f"  floor     {said['floor']['kind']}",
        f"  findings  {', '.join(codes) or 'none'}",
    ]


def _other(said: dict[str, Any]) -> list[str]:
    verdict = next((said[key] for key in ("verdict", "outcome", "change") if said.get(key)), "")
    lines = (
        [f"  verdict   {': '.join(str(p) for p in (verdict, said.get('headline')) if p)}"] if verdict else []
    )
    for role in ("ref", "cand"):
        side = said.get(role)
        lines += [_side(role, side)] if isinstance(side, dict) else [f"  {role:<9} {side}"] if side else []
    plain = ((key, said.get(key)) for key in _ABOUT)
    return lines + [f"  {key:<9} {value}" for key, value in plain if isinstance(value, (str, int)) and value]


def _side(role: str, side: dict[str, Any]) -> str:
    return f"  {role:<9} {side['path']}  {side['engine']} {side['version']}"


def _keys(said: dict[str, Any]) -> str:
    return ", ".join(sorted(said)[:16]) or "none"
