"""What a bug report holds of a capture: its manifest, its self-check, the end of its log. Never a hidden state."""

from __future__ import annotations

import json
import re
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ..errors import HsparityError
from .scrub import Scrub

LINES, LINE, TAIL = 200, 1000, 1 << 19  # of a log: lines, characters of each, bytes that are looked at
_MANIFEST = 64 << 20
_RECORDS = 50  # prompts and shards that are listed
SIGNS = ("manifest.json", "probe.started", "engine.log", "spec.json")
KNOWN = (*SIGNS, "probe.error", "journal.jsonl", "timing.json")
# Whatever holds what was said to the model, or what it said.
_SAID = (
    "text",
    "texts",
    "token_ids",
    "input_ids",
    "ids",
    "generated",
    "forced",
    "prompt_text",
    "messages",
    "content",
    "generated_text",
    "output",
    "outputs",
    "output_text",
    "completion",
    "completions",
    "response",
    "prompt_token_ids",
    "output_token_ids",
)
_SHORTEST = 12  # characters of a line of a prompt by which it is known in a log
_SAID_IN_LOG = re.compile(
    r"""(["']?\b(?:prompts?(?:_token_ids|_text)?|token_ids|input_ids|inputs|text|messages?|content|generated\w*)["']?\s*[=:])\s*(?=["'\[{(]).*""",
    re.I,
)
_ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_QUOTED = re.compile(r"(prompt )'([^']*)'")
_DEPTH = 50
_IDS_IN_LOG = re.compile(r"[\[(]\s*\d+(?:\s*,\s*\d+){3,}[^\])]*[\])]?")


def members(folder: Path, scrub: Scrub, with_prompts: bool) -> dict[str, str]:
    """Texts by file name. Raises E202 when the folder holds no sign of a capture."""
    if not any((folder / name).exists() for name in SIGNS):
        raise HsparityError(
            "E202",
            f"not a capture: {folder}",
            (f"looked for {', '.join(SIGNS)}",),
            "name the folder that hsparity capture wrote",
        )
    manifest, why = _json(folder / "manifest.json")
    spec, _ = _json(folder / "spec.json")
    scrub = scrub.knowing([manifest, spec])
    said = () if with_prompts else tuple(_prompt_texts(manifest, spec))
    names = {} if with_prompts else _names(manifest)
    made = {"files.txt": _listing(folder)}
    if isinstance(manifest, Mapping):
        shown = _without(manifest)
        shown = shown if with_prompts else _unsaid_value(shown, names, said)
        made["manifest.json"] = json.dumps(scrub.value(shown), indent=1) + "\n"
        made["self-check.txt"] = scrub.text(_checks(shown.get("checks")))
    else:
        made["manifest.txt"] = f"{why}\n"
    for name in ("engine.log", "probe.error"):
        if (tail := _tail(folder / name, scrub, said, with_prompts)) is not None:
            made[f"{name}.txt"] = tail
    return made


def _json(path: Path) -> tuple[Any, str]:
    """A file's data, or None and why there are none."""
    raw, why = _bytes(path, _MANIFEST)
    if raw is None:
        return None, f"{path.name}: {why}"
    try:
        return json.loads(raw), ""
    except (ValueError, RecursionError) as error:
        return None, f"{path.name}: {len(raw):,} bytes that are not JSON ({type(error).__name__})"


def _bytes(path: Path, most: int, end: bool = False) -> tuple[bytes | None, str]:
    """The bytes of a regular file that is no link; with `end` the last `most`, else none when there are more."""
    try:
        found = path.lstat()
        if not stat.S_ISREG(found.st_mode):
            return None, "no regular file"
        if found.st_size > most and not end:
            return None, f"{found.st_size:,} bytes, which is too many to be one"
        with path.open("rb") as file:
            file.seek(max(0, found.st_size - most))
            return file.read(most), ""
    except OSError as error:
        return None, str(error.strerror)


def _without(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """The manifest with no more prompts and shards than a reader looks at."""
    made: dict[str, Any] = {}
    for key, value in manifest.items():
        if key in ("prompts", "shards") and isinstance(value, list):
            made[key] = value[:_RECORDS]
            made[f"number of {key}"] = len(value)
        else:
            made[key] = value
    return made


def _unsaid_value(
    value: Any, names: Mapping[str, str], said: tuple[str, ...], key: str = "", depth: int = 0
) -> Any:
    """Data without what was said to the model, the prompts under prompt-1, prompt-2 and so on."""
    if depth > _DEPTH:
        return "…"
    if isinstance(value, Mapping):
        return {
            k: _unsaid_value(v, names, said, k, depth + 1) for k, v in value.items() if not _says(k, v, names)
        }
    if isinstance(value, list):
        return [_unsaid_value(v, names, said, key, depth + 1) for v in value]
    if isinstance(value, str):
        if key in ("id", "prompt"):
            return names.get(value, value)
        return _unsaid(_QUOTED.sub(lambda m: f"{m[1]}'{names.get(m[2], m[2])}'", value), said)
    return value


def _says(key: str, value: Any, names: Mapping[str, str]) -> bool:
    """Whether a field holds what was said; "prompt" does where it is no prompt's name."""
    if key == "prompt":
        return not isinstance(value, str) or value not in names
    return key in _SAID


def _names(manifest: Any) -> dict[str, str]:
    """prompt-1, prompt-2, … for the prompts' own names."""
    return {
        p["id"]: f"prompt-{i + 1}" for i, p in enumerate(_records(manifest)) if isinstance(p.get("id"), str)
    }


def _records(data: Any) -> Iterator[Mapping[str, Any]]:
    prompts = data.get("prompts") if isinstance(data, Mapping) else None
    yield from (p for p in prompts if isinstance(p, Mapping)) if isinstance(prompts, list) else ()


def _prompt_texts(*data: Any) -> Iterator[str]:
    """Texts of the prompts and what was generated, and as a log would print them: whole first, then line by line."""
    found: set[str] = set()
    for source in data:
        for record in _records(source):
            for text in _texts(record):
                lines = [line.strip() for line in text.splitlines()]
                for part in (text, text.strip(), *(line for line in lines if len(line) >= _SHORTEST)):
                    if len(part.strip()) >= 4:
                        found |= {
                            part,
                            repr(part)[1:-1],
                            json.dumps(part)[1:-1],
                            json.dumps(part, ensure_ascii=False)[1:-1],
                        }
    yield from sorted(found, key=lambda part: (-len(part), part))


def _texts(value: Any, said: bool = False, depth: int = 0) -> Iterator[str]:
    """The strings below the fields of a prompt that hold what was said."""
    if isinstance(value, str):
        if said:
            yield value
    elif depth < _DEPTH and isinstance(value, Mapping):
        for key, part in value.items():
            yield from _texts(part, said or key in _SAID or key == "prompt", depth + 1)
    elif depth < _DEPTH and isinstance(value, list):
        for part in value:
            yield from _texts(part, said, depth + 1)


def _unsaid(text: str, said: tuple[str, ...]) -> str:
    for part in said:
        text = text.replace(part, "[prompt]")
    return text


def _checks(checks: Any) -> str:
    lines = []
    for check in checks if isinstance(checks, list) else ():
        if isinstance(check, Mapping):
            word = "passed" if check.get("passed") is True else "FAILED"
            lines.append(
                f"{word}  {check.get('name')}: {check.get('value')} of {check.get('limit')}; {check.get('detail')}"
            )
    return "\n".join(line[:LINE] for line in lines[:LINES] or ["no self-check"]) + "\n"


def _tail(path: Path, scrub: Scrub, said: tuple[str, ...], with_prompts: bool) -> str | None:
    """The last lines of a log; None when there is none."""
    raw, why = _bytes(path, TAIL, end=True)
    if raw is None:
        return None if not path.exists() else f"{why}\n"
    text = _unsaid(raw.decode("utf-8", "replace"), said)
    if not with_prompts:
        text = _IDS_IN_LOG.sub("[token ids]", _SAID_IN_LOG.sub(r"\1 [left out]", text))
    # Of a line that was drawn over itself, as progress is, the last state.
    drawn = [line.rstrip("\r").rpartition("\r")[2] for line in _ANSI.sub("", text).split("\n")]
    lines = scrub.text("\n".join(line for line in drawn if line.strip())).split("\n")
    return "".join(f"{line[:LINE]}\n" for line in lines[-LINES:])


def _listing(folder: Path) -> str:
    """What lies in the folder, by size. Only names that a capture's files have are told."""
    sizes: dict[str, int] = {}
    counts: dict[str, int] = {}
    for path in [*folder.glob("*"), *folder.glob("shards/*")]:
        try:
            found = path.lstat()
        except OSError:
            continue
        if stat.S_ISREG(found.st_mode):
            kind = (
                "*.safetensors"
                if path.suffix == ".safetensors"
                else path.name
                if path.name in KNOWN
                else "others"
            )
            sizes[kind] = sizes.get(kind, 0) + found.st_size
            counts[kind] = counts.get(kind, 0) + 1
    lines = [f"{sizes[kind]:>15,}  {counts[kind]:>6,}  {kind}" for kind in sorted(sizes)]
    return "\n".join(["          bytes   files  name", *lines]) + "\n"
