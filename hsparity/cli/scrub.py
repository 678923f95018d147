"""Text and JSON that can be handed to a stranger: no user, host or home folder, no secrets, no control characters."""

from __future__ import annotations

import getpass
import os
import re
import socket
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

HIDDEN = "[hidden]"
_DEPTH, _ITEMS, _CHARACTERS = 40, 400, 4000
# Names of secrets that are nothing else, and with those that may be: max_tokens, key_cache.
_SURE = (
    r"secret|passw|passphrase|passcode|pwd|(?<![a-z])pw(?![a-z])|[_-]pass(?![a-z])|credential|(?<![a-z])creds?(?![a-z])"
    r"|(?:api|private|access)[_-]?key|(?:hf|api|access|auth|bearer|refresh)[_-]token"
)
_SURELY = re.compile(_SURE, re.I)
_SECRET = re.compile(rf"{_SURE}|token(?!iz)|key|auth(?!or)|cookie", re.I)
_NOTHING = re.compile(r"none|null|true|false|", re.I)
_HARMLESS = re.compile(r"[-+]?[\d.,]+|none|null|true|false|all|prefill|decode", re.I)
# Names that are words of every log, and that no person is known by.
_COMMON = (
    "root", "user", "admin", "ubuntu", "debian", "nobody", "runner", "worker", "docker", "local", "localhost", "test",
    "vllm", "sglang", "hsparity",
)  # fmt: skip
# Every pattern takes time in proportion to the text: a run of letters is entered at its first one only, and a quote that
# nothing closes goes to the end of its line.
_VALUE = (
    r"""(?:"(?:\\.|[^"\\]){0,4000}"|'(?:\\.|[^'\\]){0,4000}'|["'][^\n]*|(?!--)[^\s,;()\[\]{}"']"""
    r"""[^\s,;()\[\]{}]*)"""
)
_SHAPES = [
    (re.compile(r"-----BEGIN [A-Z ]+-----.*?(?:-----END [A-Z ]+-----|\Z)", re.S), HIDDEN),
    (re.compile(r"\b(authorization|cookie)(\W{1,4})[^\r\n]+", re.I), rf"\1\2{HIDDEN}"),
    (re.compile(r"\b(bearer|basic)\s+[\w.~+/=-]{6,}", re.I), rf"\1 {HIDDEN}"),
    (re.compile(r"(?<![\w+.-])([\w+.-]+://)[^\s/@]+@"), rf"\1{HIDDEN}@"),
    (re.compile(r"(?<!\S)(-u|-U|--user|--proxy-user)([ =]?)['\"]?[^\s:'\"/]+:(?!//)[^\s]+"), rf"\1\2{HIDDEN}"),
    (re.compile(r"\b(?:hf|sk|pk|rk|ghp|gho|ghs|github_pat|glpat|xox[a-z]|nvapi|wandb)[-_][\w-]{12,}"), HIDDEN),
    (re.compile(r"\b(?:AKIA|ASIA|AIza)[\w-]{12,}"), HIDDEN),
    (re.compile(r"(?<![\w-])eyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*"), HIDDEN),
    (re.compile(r"(?:/home/|/Users/|[A-Za-z]:\\+Users\\+)[^/\\\s'\":,;]+"), "~"),
    (re.compile(r"\b(?:\d{1,3}\.){3}\d{1,3}(?=:\d)|\b(?:10|192\.168|172\.(?:1[6-9]|2\d|3[01]))(?:\.\d{1,3}){2,3}\b"), "ADDRESS"),
    (re.compile(r"(?<![\w.+-])[\w.+-]+@(?!\d+\.\d+\.\d+(?!\.?\d))[\w-]+\.[\w.-]+"), "ADDRESS"),  # not vllm@0.31.0
]  # fmt: skip
# After a blank alone, what follows is a value when it looks like one, or when the name can be nothing but an option, a
# variable or a password.
_NAMED = re.compile(
    rf"(?<![\w.-])(?=[\w.-]*?(?:{_SECRET.pattern}))(?!tokens(?![\w.-]))"
    rf"(?:([\w.-]+)([\"']?(?:\s*[=:]\s*|\s+(?=\S*[-_\d])))|(--[\w.-]+|(?-i:[A-Z][A-Z0-9_]+)|passw\w*|passphrase)([\"']?[ \t]+))"
    rf"({_VALUE})",
    re.I,
)


@dataclass(frozen=True)
class Scrub:
    """What is replaced: (pattern, replacement) in order; `known`, values found in the environment, before lines are cut."""

    replaced: tuple[tuple[re.Pattern[str], str], ...]
    known: tuple[tuple[re.Pattern[str], str], ...] = ()

    def text(self, text: str) -> str:
        """The text without what names its owner, one line for one line, each cut where it is long."""
        from ..report.spelling import clean

        for pattern, replacement in self.known:
            text = pattern.sub(replacement, text)
        text = "\n".join(map(_cut, text.split("\n")))
        for pattern, replacement in self.replaced:
            text = pattern.sub(replacement, text)
        text = _NAMED.sub(_masked, text)
        return "\n".join(clean(line) for line in text.split("\n"))

    def knowing(self, data: Any) -> Scrub:
        """This, and what is hidden in the data by its name is hidden in every text."""
        found = sorted(set(_hidden(data)), key=lambda text: (-len(text), text))[:_ITEMS]
        more = tuple((re.compile(rf"(?<!\w){re.escape(text)}(?!\w)"), HIDDEN) for text in found)
        return replace(self, known=(*self.known, *more))

    def value(self, value: Any, name: str = "", depth: int = 0, hidden: bool = False) -> Any:
        """Data as JSON holds them, cut where they are deep or long.

        A string under a secret's name is hidden, and every string and number of a mapping under one (`hidden`).
        """
        if hidden and isinstance(value, (str, int, float)) and not isinstance(value, bool):
            return HIDDEN
        if isinstance(value, (int, float)) and surely_secret(name) and not isinstance(value, bool):
            return HIDDEN
        if isinstance(value, str):
            if _hides(name, value):
                return HIDDEN
            cut = value if len(value) <= _CHARACTERS else f"{value[:_CHARACTERS]} … {len(value):,} characters"
            return self.text(cut)
        if depth > _DEPTH:
            return "…"
        if isinstance(value, Mapping):
            kept = list(value.items())[:_ITEMS]
            below = hidden or is_secret(name)
            made = {self.text(str(k)[:200]): self.value(v, str(k), depth + 1, below) for k, v in kept}
            return made if len(value) == len(kept) else {**made, "…": f"{len(value) - len(kept):,} more"}
        if isinstance(value, (list, tuple)):
            items = [self.value(v, name, depth + 1, hidden) for v in value[:_ITEMS]]
            return items if len(value) == len(items) else [*items, f"… {len(value) - len(items):,} more"]
        return value


def _hidden(value: Any, name: str = "", below: bool = False, depth: int = 0) -> Iterator[str]:
    """The strings that `Scrub.value` hides by their names."""
    if isinstance(value, str):
        if (below or _hides(name, value)) and len(value) >= 6 and not _HARMLESS.fullmatch(value):
            yield value
    elif depth <= _DEPTH and isinstance(value, Mapping):
        for key, part in value.items():
            yield from _hidden(part, str(key), below or is_secret(name), depth + 1)
    elif depth <= _DEPTH and isinstance(value, (list, tuple)):
        for part in value:
            yield from _hidden(part, name, below, depth + 1)


def is_secret(name: str) -> bool:
    """Whether a value under this name is nobody else's business. "tokens" alone counts, and is not."""
    return bool(_SECRET.search(name)) and name.lower() != "tokens"


def surely_secret(name: str) -> bool:
    """Whether such a name is a secret's and nothing else's: numbers under it are hidden too."""
    return bool(_SURELY.search(name))


def _hides(name: str, value: str) -> bool:
    """Whether a string under this name is hidden; numbers and words of engines are not, but under a password's name."""
    return (
        is_secret(name)
        and not (_NOTHING if surely_secret(name) else _HARMLESS).fullmatch(value)
        and bool(value)
    )


def _cut(line: str) -> str:
    """No more of a line than is shown, and no half of a word."""
    if len(line) <= _CHARACTERS + 100:
        return line
    kept = re.sub(r"(?<!\S)\S+\Z", "", line[:_CHARACTERS])
    return f"{kept}… {len(line):,} characters"


def here(environ: Mapping[str, str] | None = None) -> Scrub:
    """For this machine, this user and this process's environment."""
    environ = os.environ if environ is None else environ
    try:
        user = getpass.getuser()
    except (OSError, KeyError):  # nobody with this number is known here
        user = ""
    return scrubbing(_homes(), user, socket.gethostname(), environ)


def scrubbing(homes: Iterable[str], user: str, host: str, environ: Mapping[str, str]) -> Scrub:
    """The replacements for one machine; the longest of a kind first."""
    secrets = {v for k, v in environ.items() if is_secret(k) and len(v) >= 6 and not _HARMLESS.fullmatch(v)}
    known = [(re.compile(re.escape(value)), HIDDEN) for value in sorted(secrets, key=len, reverse=True)]
    found = [
        (re.compile(rf"{re.escape(home)}(?![\w.-])"), "~")
        for home in sorted(homes, key=len, reverse=True)
        if len(home) > 1
    ]
    found += _SHAPES
    names = {(host, "HOST"), (host.partition(".")[0], "HOST"), (user, "USER")}
    for name, replacement in sorted(names, key=lambda n: -len(n[0])):
        if len(name) >= 3 and name.lower() not in _COMMON:
            found.append(
                (re.compile(rf"(?<![A-Za-z0-9]){re.escape(name)}(?![A-Za-z0-9])", re.I), replacement)
            )
    return Scrub(tuple(found), tuple(known))


def _homes() -> set[str]:
    try:
        home = Path.home()
    except RuntimeError:
        return set()
    return {str(home), str(home.resolve())}


def _masked(found: re.Match[str]) -> str:
    name, between, value = found[1] or found[3], found[2] or found[4], found[5]
    hidden = _hides(name, value.strip("\"'")) and HIDDEN not in value
    return f"{name}{between}{HIDDEN}" if hidden else found[0]
