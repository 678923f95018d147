"""Text and JSON that can be handed to a stranger: no user, host or home folder, no secrets, no control characters."""

from __future__ import annotations

import getpass
import os
import re
import socket
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HIDDEN = "[hidden]"
_DEPTH, _ITEMS, _CHARACTERS = 40, 400, 4000
_SECRET = re.compile(r"token(?!iz)|key|secret|passw|credential|auth(?!or)|cookie", re.I)
_HARMLESS = re.compile(r"[-+]?[\d.,]+|none|null|true|false|all|prefill|decode", re.I)
# Names that are words of every log, and that no person is known by.
_COMMON = (
    "root", "user", "admin", "ubuntu", "debian", "nobody", "runner", "worker", "docker", "local", "localhost", "test",
    "vllm", "sglang", "hsparity",
)  # fmt: skip
_VALUE = r"""(?:"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'|[^\s,;()\[\]{}]+)"""
_SHAPES = [
    (re.compile(r"-----BEGIN [A-Z ]+-----.*?(?:-----END [A-Z ]+-----|\Z)", re.S), HIDDEN),
    (re.compile(r"\b(authorization|cookie)(\W{1,4})[^\r\n]+", re.I), rf"\1\2{HIDDEN}"),
    (re.compile(r"\b(bearer|basic)\s+[\w.~+/=-]{6,}", re.I), rf"\1 {HIDDEN}"),
    (re.compile(r"\b([A-Za-z][\w+.-]*://)[^\s/@]+@"), rf"\1{HIDDEN}@"),
    (re.compile(r"\b(?:hf|sk|pk|rk|ghp|gho|ghs|github_pat|glpat|xox[a-z]|nvapi|wandb)[-_][\w-]{12,}"), HIDDEN),
    (re.compile(r"\b(?:AKIA|ASIA|AIza)[\w-]{12,}"), HIDDEN),
    (re.compile(r"\beyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*"), HIDDEN),
    (re.compile(r"(?:/home/|/Users/|[A-Za-z]:\\+Users\\+)[^/\\\s'\":,;]+"), "~"),
    (re.compile(r"\b(?:\d{1,3}\.){3}\d{1,3}(?=:\d)|\b(?:10|192\.168|172\.(?:1[6-9]|2\d|3[01]))(?:\.\d{1,3}){2,3}\b"), "ADDRESS"),
    (re.compile(r"[\w.+-]+@(?!\d+\.\d+\.\d+(?!\.?\d))[\w-]+\.[\w.-]+"), "ADDRESS"),  # not vllm@0.31.0
]  # fmt: skip
_NAMED = re.compile(
    rf"([\w.-]*(?:{_SECRET.pattern})[\w.-]*)([\"']?(?:\s*[=:]\s*|\s+(?=\S*[-_\d])))({_VALUE})", re.I
)


@dataclass(frozen=True)
class Scrub:
    """What is replaced: (pattern, replacement) in order. `secrets` are values found in the environment."""

    replaced: tuple[tuple[re.Pattern[str], str], ...]

    def text(self, text: str) -> str:
        """The text without what names its owner, one line for one line."""
        from ..report.spelling import clean

        for pattern, replacement in self.replaced:
            text = pattern.sub(replacement, text)
        text = _NAMED.sub(_masked, text)
        return "\n".join(clean(line) for line in text.split("\n"))

    def value(self, value: Any, name: str = "", depth: int = 0) -> Any:
        """Data as JSON holds them, cut where they are deep or long. A string under a secret's name is hidden."""
        if isinstance(value, str):
            if is_secret(name) and not _HARMLESS.fullmatch(value) and value:
                return HIDDEN
            cut = value if len(value) <= _CHARACTERS else f"{value[:_CHARACTERS]} … {len(value):,} characters"
            return self.text(cut)
        if depth > _DEPTH:
            return "…"
        if isinstance(value, Mapping):
            kept = list(value.items())[:_ITEMS]
            made = {self.text(str(k)[:200]): self.value(v, str(k), depth + 1) for k, v in kept}
            return made if len(value) == len(kept) else {**made, "…": f"{len(value) - len(kept):,} more"}
        if isinstance(value, (list, tuple)):
            items = [self.value(v, name, depth + 1) for v in value[:_ITEMS]]
            return items if len(value) == len(items) else [*items, f"… {len(value) - len(items):,} more"]
        return value


def is_secret(name: str) -> bool:
    """Whether a value under this name is nobody else's business. "tokens" alone counts, and is not."""
    return bool(_SECRET.search(name)) and name.lower() != "tokens"


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
    found = [(re.compile(re.escape(value)), HIDDEN) for value in sorted(secrets, key=len, reverse=True)]
    found += [
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
    return Scrub(tuple(found))


def _homes() -> set[str]:
    try:
        home = Path.home()
    except RuntimeError:
        return set()
    return {str(home), str(home.resolve())}


def _masked(found: re.Match[str]) -> str:
    name, between, value = found.groups()
    if not is_secret(name) or _HARMLESS.fullmatch(value.strip("\"'")) or HIDDEN in value:
        return found[0]
    return f"{name}{between}{HIDDEN}"
