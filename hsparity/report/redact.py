"""A result without what could name its owner: prompts, tokens, paths, names of models and machines.

Figures, layer numbers, engines, versions and settings stay. Fields are known by name, wherever in the record they stand;
every other string is searched for what was found there, and for what looks like a path, an address, a digest or a quoted
text. So a field that is new is searched too.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import MISSING, Field, fields, is_dataclass, replace
from enum import Enum
from typing import Any, TypeVar

import numpy as np

from ..drafter.result import DraftCost
from ..model import LEFT_OUT, Comparison
from . import placeholders as ph
from .placeholders import Secrets

T = TypeVar("T", bound=Comparison | DraftCost)
Rule = Callable[[Secrets, Any], Any]

_LEFT_OUT = "left-out"
_TECHNICAL = re.compile(r"[\w.+!-]{1,64}")
_SCHEMA = re.compile(r"hsparity\.[a-z-]+/\d+")
_TIME = re.compile(r"\d{4}-\d\d-\d\d([T ][\d:.]+)?(Z|[+-][\d:]+)?")
# Of a setting: what is called by a name that someone gave it, or leads to a machine.
_GIVEN = re.compile(
    r"name|path|dir|file|model|tokenizer|host|port|url|addr|user|key|secret|password|auth|revision|lora|adapter|load|seed"
    r"|token_id|(^|_)(ip|id|token)$|endpoint|server|bucket|template|prompt|connector|alias|owner|credential|passphrase|project(?!ion|or)"
    r"|(^|_)(cls|class|tags?|org|organi[sz]ation|pwd)(_|$)"
)
# A word with a dot in it is a host or a file, but for versions, numbers, modules of engines and CPUs' words.
_DOTTED = re.compile(r"\.[A-Za-z_]|[A-Za-z_]\.\w")
_UNGIVEN = re.compile(
    r"v?\d+(\.\d+)*\.?((a|b|rc|post|\.?dev|\.post|e[+-]?)\d+)*(\+[\w.]+)?|(vllm|sglang|torch|transformers|hsprobe|flashinfer|triton)(\.\w+)+",
    re.I,
)


def redact(record: T) -> T:
    """The record without them; redacted once more, it is the same. Prompts are prompt-1, prompt-2, …, paths REF, CAND, PATH."""
    secrets = ph.collect(record)
    note_settings(secrets, record, {"settings"})
    made: T = _value(secrets, "", record)
    return replace(made, redacted=True)


def _value(secrets: Secrets, name: str, value: Any) -> Any:
    """A value of the field `name`, or of a part of it."""
    if name in _RULES:
        return _RULES[name](secrets, value)
    if is_dataclass(value) and not isinstance(value, type):
        return replace(value, **{f.name: _field(secrets, f, getattr(value, f.name)) for f in fields(value)})
    if isinstance(value, Enum):
        return value
    if isinstance(value, str):
        return secrets.hide(value)
    if isinstance(value, (tuple, list)):
        return type(value)(_value(secrets, name, part) for part in value)
    if isinstance(value, Mapping):
        return {secrets.hide(str(k)): _value(secrets, str(k), v) for k, v in value.items()}
    return value


def _field(secrets: Secrets, field: Field[Any], value: Any) -> Any:
    """One field of a record; token ids and texts as if they had never been there."""
    if not ph.TOKENS.fullmatch(field.name):
        return _value(secrets, field.name, value)
    if field.default is not MISSING:
        return field.default
    if field.default_factory is not MISSING:
        return field.default_factory()
    if isinstance(value, np.ndarray):
        return np.full_like(value, -1)
    return -1 if isinstance(value, int) else type(value)()


def _path(secrets: Secrets, value: Any) -> Any:
    return secrets.path(value) if isinstance(value, str) else _value(secrets, "", value)


def _prompt(secrets: Secrets, value: Any) -> Any:
    """A prompt's id, or several, also as the first of (id, first column, one past the last)."""
    if isinstance(value, (tuple, list)):
        return type(value)(_prompt(secrets, part) for part in value)
    return secrets.prompt(value) if isinstance(value, str) else value


def _rows(secrets: Secrets, value: Any) -> Any:
    """Spans of rows, "ID 0-31"; or records of rows."""
    if isinstance(value, (tuple, list)) and all(isinstance(part, str) for part in value):
        return type(value)(secrets.span(part) for part in value)
    return _value(secrets, "", value)


def _bins(secrets: Secrets, value: Any) -> Any:
    return tuple(replace(part, label=secrets.prompt(part.label)) for part in value)


def settings(secrets: Secrets, value: Any, key: str = "") -> Any:
    if isinstance(value, Mapping):
        return {_technical(secrets, str(k)): settings(secrets, v, str(k)) for k, v in value.items()}
    if value is None or isinstance(value, bool):
        return value
    if _given(key, value):
        return _LEFT_OUT
    if isinstance(value, (tuple, list)):
        return type(value)(settings(secrets, part, key) for part in value)
    return _technical(secrets, value) if isinstance(value, str) else value


def note_settings(secrets: Secrets, record: Any, names: AbstractSet[str]) -> None:
    """Let what is left out of the settings be hidden in every sentence too; settings are the fields called so."""
    for settings_ in _called(record, names):
        for text in _left_out(settings_, ""):
            secrets.add_given(text)


def _called(value: Any, names: AbstractSet[str]) -> Iterator[Any]:
    """The values of the fields with these names, wherever they stand."""
    if is_dataclass(value) and not isinstance(value, type):
        pairs: Iterable[tuple[str, Any]] = ((f.name, getattr(value, f.name)) for f in fields(value))
    elif isinstance(value, Mapping):
        pairs = value.items()
    else:
        pairs = (("", part) for part in value) if isinstance(value, (tuple, list)) else ()
    for name, part in pairs:
        if name in names and isinstance(part, Mapping):
            yield part
        else:
            yield from _called(part, names)


def _left_out(value: Any, key: str, given: bool = False) -> Iterator[str]:
    """Every string below a setting that `settings` leaves out; with `given` all of them."""
    if isinstance(value, Mapping):
        for k, v in value.items():
            if given or not _TECHNICAL.fullmatch(str(k)):
                yield str(k)
            yield from _left_out(v, str(k), given)
    elif isinstance(value, (tuple, list)):
        for part in value:
            yield from _left_out(part, key, given or _given(key, value))
    elif value is None or isinstance(value, bool):
        return
    elif given or _given(key, value) or (isinstance(value, str) and not _TECHNICAL.fullmatch(value)):
        yield str(value)


def _given(key: str, value: Any) -> bool:
    """Whether a setting's value is a name that somebody gave, or leads to a machine or a file."""
    if isinstance(value, str) and _DOTTED.search(value) and not _UNGIVEN.fullmatch(value):
        return True
    return bool(_GIVEN.search(key.lower())) and not _plain_number(key, value)


def _plain_number(key: str, value: Any) -> bool:
    """Whether it is a number, also as text, that names nobody: max_model_len, and no port."""
    if isinstance(value, str) and not ph.NUMBER.fullmatch(value):
        return False
    return isinstance(value, (int, float, str)) and not ph.NUMBERED.search(key.lower())


def environment(secrets: Secrets, value: Any) -> Any:
    """Versions; what else describes a machine is left out."""
    kept = {k: v for k, v in value.items() if ph.VERSION.fullmatch(str(v)) and _TECHNICAL.fullmatch(k)}
    return {secrets.hide(k): v for k, v in kept.items()}


def labels(secrets: Secrets, value: Any) -> Any:
    if isinstance(value, Mapping):
        return {secrets.hide(str(k)): labels(secrets, v) for k, v in value.items()}
    return secrets.hide(value) if ph.own_label(value) else _LEFT_OUT


def _technical(secrets: Secrets, value: Any) -> Any:
    """One word: the name of an engine, a version, a dtype. Anything else is left out."""
    if not isinstance(value, str):
        return _value(secrets, "", value)
    return secrets.hide(value) if not value or _TECHNICAL.fullmatch(value) else _LEFT_OUT


def _like(pattern: re.Pattern[str]) -> Rule:
    """A string of that form, and no other."""
    return lambda _, value: value if pattern.fullmatch(value) else ""


def commands(secrets: Secrets, value: Any) -> Any:
    """Command lines, or the words of one."""
    if isinstance(value, str):
        return secrets.command(value)
    return type(value)(secrets.command(line) for line in value)


_RULES: dict[str, Rule] = {
    **dict.fromkeys(ph.PATHS, _path),
    **dict.fromkeys(("prompt", "prompts"), _prompt),
    **dict.fromkeys(("engine", "version", "dtype", "architecture"), _technical),
    **dict.fromkeys(("native_label", "native_labels"), labels),
    **dict.fromkeys(("confirm", "next", "spelled"), commands),
    "rows": _rows,
    "by_prompt": _bins,
    "settings": settings,
    "environment": environment,
    "weights_sha256": lambda _, value: value and LEFT_OUT,
    "created": _like(_TIME),
    "schema": _like(_SCHEMA),
    "command": lambda secrets, value: tuple(secrets.words(value)),
}
