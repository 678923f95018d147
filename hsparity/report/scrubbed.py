"""A saved result of any kind as JSON, without what could name its owner.

For results that have no record of their own to redact by: fields are known by the names that all of them share, wherever
they stand; every other string is searched as in a redacted comparison. What may be token ids or texts is left out whole.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from ..model import LEFT_OUT
from . import placeholders as ph
from .placeholders import Secrets
from .redact import commands, environment, labels, note_settings, settings

_PATHS = {
    **ph.PATHS, "ref_model": "MODEL", "cand_model": "MODEL", "folder": "PATH", "file": "FILE", "report": "FILE",
    "accepted_file": "FILE", "dataset": "PATH", "out": "PATH",
}  # fmt: skip
_PROMPTS = {"prompt", "prompts", "id", "samples"}
_SAID = re.compile(rf"{ph.TOKENS.pattern}|prompt|generated|drafted|bonus|stop_ids|forced")
_SETTINGS = {"settings", "engine_args", "env", "facts"}
_COMMANDS = {"confirm", "next", "spelled", "command"}
_DIGESTS = {"weights_sha256", "draft_sha256", "revision"}
_SCHEMA = re.compile(r"hsparity\.[a-z-]+/\d+")
_HEX = re.compile(r"[0-9a-f]{8,}")
_CHANGE = {"role", "kind", "name", "then", "now"}  # of a setting, in a diff


def scrubbed(result: Mapping[str, Any]) -> dict[str, Any]:
    """The result, marked as redacted. Its schema and its figures stay."""
    secrets = Secrets()
    for name, text in _named("", result):
        if name in _PROMPTS:
            secrets.prompt(text)
        elif name in _PATHS:
            secrets.add_path(text, _PATHS[name])
    note_settings(secrets, result, _SETTINGS)
    if str(result.get("schema", "")).startswith("hsparity.replay/"):  # its sides are paths
        for role in ("ref", "cand"):
            if isinstance(result.get(role), str):
                secrets.add_path(result[role], role.upper())
    made = {key: _value(secrets, key, value) for key, value in result.items() if key != "schema"}
    return {"schema": result["schema"], **made, "redacted": True}


def _value(secrets: Secrets, name: str, value: Any) -> Any:
    own = name == "schema" and isinstance(value, str) and _SCHEMA.fullmatch(value)
    if own or isinstance(value, bool) or value is None:
        return value
    if name in _PROMPTS and isinstance(value, str):
        return secrets.prompt(value)
    if _SAID.fullmatch(name) and not _records(value):
        return type(value)() if isinstance(value, (str, list, int)) else None
    if name in _PATHS and isinstance(value, str):
        return secrets.path(value)
    if name in _DIGESTS or (name == "weights" and isinstance(value, str) and _HEX.fullmatch(value)):
        return value and LEFT_OUT
    if name == "environment" and isinstance(value, dict):
        return environment(secrets, value)
    if name in ("native_label", "native_labels"):
        return labels(secrets, value)
    if name in _SETTINGS and isinstance(value, dict):
        return settings(secrets, value)
    if name in _COMMANDS and not _records(value):
        return (
            list(secrets.words(value))
            if name == "command" and isinstance(value, list)
            else commands(secrets, value)
        )
    if isinstance(value, str):
        return secrets.span(value) if name == "rows" else secrets.hide(value)
    if isinstance(value, list):
        return [_value(secrets, name, part) for part in value]
    return _mapping(secrets, value) if isinstance(value, dict) else value


def _mapping(secrets: Secrets, value: dict[str, Any]) -> dict[str, Any]:
    if {"dtype", "shape", "base64"} <= set(value):
        return value
    if set(value) == _CHANGE:
        shown = settings(secrets, {str(value["name"]): [value["then"], value["now"]]})
        ((name, (then, now)),) = shown.items()
        if value["kind"] == "environment":
            then, now = (v if ph.VERSION.fullmatch(str(v)) else LEFT_OUT for v in (then, now))
        elif not isinstance(shown[name], list):
            then = now = LEFT_OUT
        return {**value, "name": name, "then": then, "now": now}
    return {secrets.hide(key): _value(secrets, key, part) for key, part in value.items()}


def _records(value: Any) -> bool:
    """Whether it holds fields of its own, which are looked at one by one; an array does not."""
    if isinstance(value, list):
        return any(_records(part) for part in value)
    return isinstance(value, dict) and "base64" not in value


def _named(name: str, value: Any) -> Iterator[tuple[str, str]]:
    """(field, string) of every string below `value`."""
    if isinstance(value, str):
        yield name, value
    elif isinstance(value, Mapping):
        for key, part in value.items():
            yield from _named(key, part)
    elif isinstance(value, list):
        for part in value:
            yield from _named(name, part)
