"""What a record says of its owner, and how it is replaced in a sentence or a command."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from functools import cache
from typing import Any

from ..model import LEFT_OUT

PATHS = {"path": "PATH", "model": "MODEL", "draft": "DRAFT", "capture": "PATH", "checkpoint": "MODEL"}
TOKENS = re.compile(r"(token_)?ids?(_[a-z]+)?|texts?(_[a-z]+)?")  # fields of token ids and texts
_ROLES = {
    "ref": "REF",
    "cand": "CAND",
    "floor fp32": "FLOOR-FP32",
    "floor bf16": "FLOOR-BF16",
    "repeat": "REPEAT",
}
_PLACEHOLDERS = {*PATHS.values(), *_ROLES.values(), "NAME", "FILE"}
VERSION = re.compile(r"\d+(\.\d+)+[\w.+-]*")

# Parts of names that name nobody.
_NEUTRAL = re.compile(
    r"(hf|vllm|sglang|transformers|speculators|trtllm|engines?|bf16|fp16|fp32|fp8|int[48]|bfloat16|float(16|32)|ref|cand|floor"
    r"|repeat|captures?|models?|tiny|drafts?|reports?|results?|measured|runs?|data|home|mnt|root|tmp|var|opt|usr|srv|users|work"
    r"|workspace|cache|hub|snapshots|checkpoints?|eagle3?|native|eager|graph|tests?|slots|hooks|prefill|decode|tp\d|cpu|cuda|gpu"
    r"|linux|none|default|main|jsonl?|html|txt|the|and|for|v?\d*[a-z]?)"
)
# Words of labels that engines and formats give to slots.
_LABELS = re.compile(
    r"(aux|hidden|states?|layers?|ids?|return|last|raw|norm|normed|final|in|out|input|output|slots?|boundary|embed|eagle|config|of"
    r"|target|capture)"
)
# Words of hsparity's own command lines, and options whose values are words of its own.
_WORDS = re.compile(
    r"compare|capture|floor|report|replay|bisect|drafter|check|cost|measure|selfcheck|inspect|export|import|audit|explain|demo"
    r"|doctor|conventions|diff|overview|engines|add|install|list|path|remove|hooks|native|both|v[12]|hf|vllm"
    r"|sglang|all|eagle3(-speculators)?|prefill|decode|none|auto|always|never|HS\d{3}|E\d{3}"
)
_VALUED = re.compile(
    r"--(layers|boundaries|tokens|sites|only|dtype|tol|limit|offset|engine|color|generate|max-tokens|steps|knobs?|undo|slots"
    r"|mechanism|(native-)?ids|fail-on|format|to|arch|algorithm|runner|(engine-)?version|trained-(on|by)|device|schema)"
)
_OPTION = re.compile(r"(--?[A-Za-z][a-z-]*)(?:=(.*))?", re.S)
_NUMBERS = re.compile(r"[+-]?[\d,:-]*\d(\.\d+)?(e[+-]?\d+)?:?")  # also 2,30,58 and 0-60:5
# Of a setting whose number says something of its owner: a port, a token id.
NUMBERED = re.compile(
    r"host|port|url|addr|user|key|secret|password|auth|revision|seed|token_id|(^|_)(ip|id|token)$"
)
NUMBER = re.compile(r"[+-]?\d{1,8}(\.\d{1,8})?(e[+-]?\d{1,3})?")
_SWITCH = re.compile(r"(-*[A-Za-z_][\w.-]{0,63})=(.*)", re.S)
_STATE = re.compile(r"true|false|none|null", re.I)
_VALUE = re.compile(r"[A-Za-z0-9_,.:+-]{1,60}")
_WORD = re.compile(r"[^\W_]\w*")

_OUTER = re.compile(r'".*"', re.S)
_OWN = (
    r"(?!(?:and/or|NaN/Inf|ref/cand|1/sqrt)\b|[A-Z]{1,4}\d[\d.]*/[A-Z]{1,4}\d)"  # with a slash, and no path
)
_PATTERNS = (
    # Each enters a run of letters at its first one only, and an open quote goes to the end: else a long text takes forever.
    (re.compile(r'"(?:\\.|[^"\\])*(?:"|\\?\Z)|“[^”]*(?:”|\Z)|(?<!\w)\'[^\'\n]+\'(?!\w)', re.S), '"…"'),
    (re.compile(r"(?<![\w+.-])[\w+.-]+://\S+"), "ADDRESS"),
    (re.compile(r"(?<![\w.+-])[\w.+-]+@(?!\d+\.\d+\.\d+(?!\.?\d))[\w.-]+"), "ADDRESS"),  # not vllm@0.31.0
    (re.compile(r"\b\d{1,3}(?:\.\d{1,3}){3}(?::\d+)?\b"), "ADDRESS"),
    (re.compile(r"\b[A-Za-z]:\\[^\s,;]*|\\\\[^\s,;]+"), "PATH"),
    (re.compile(r"(?<![\w/<])(?:~[\w.-]*|\.{1,2})?/(?=[^\s/])[^\s,;:()\[\]]*"), "PATH"),
    (re.compile(rf"(?<![\w./+@-]){_OWN}[\w.+@-]+(?:/[\w.+@:-]+)+/?"), "PATH"),
    (re.compile(r"\b(?=[a-f]*\d)[0-9a-f]{12,}\b"), "DIGEST"),
    # How sentences name token ids; ids of layers stand otherwise.
    (re.compile(r"\(id \d+"), "(id …"),
    (re.compile(r"(\bids differ[^:]{0,200}:).*", re.S), r"\1 left out"),
    (re.compile(r"\bstarts \d+(?:, ?\d+)*(?:, …)?"), "starts …"),
    (re.compile(r"\b(token ids?) \d+(?:, ?\d+)*"), r"\1 …"),
)
# "prompt X", where X is no word of the sentence.
_NAMED = re.compile(
    r"\bprompts? (?:(?=[^\s,:;()]*[\d_A-Z-])([^\s,:;()]*[^\s,:;().])"
    r"|([^\s,:;()]+)(?=:| position\b| is only in\b| holds the state| lacks\b))"
)


@dataclass(slots=True)
class Secrets:
    """Strings to hide, each with its placeholder."""

    prompts: dict[str, str] = field(default_factory=dict)
    phrases: dict[str, str] = field(default_factory=dict)
    single: dict[str, str] = field(
        default_factory=dict
    )  # words: looked up one by one, there may be thousands
    _search: re.Pattern[str] | None = None
    _listed: re.Pattern[str] | None = None

    def add(self, text: str, placeholder: str) -> None:
        """Hide `text`; the first placeholder stays."""
        text = text.strip()
        if not text or text in self.phrases or text in self.single or text in _PLACEHOLDERS:
            return
        (self.single if _WORD.fullmatch(text) else self.phrases)[text] = placeholder

    def add_path(self, path: str, placeholder: str) -> None:
        """Hide a path whole, without its trailing slash, and every part of it that could name someone."""
        self.add(path, placeholder)
        self.add(path.rstrip("/\\"), placeholder)
        for part in re.split(r"[/\\:]+", path):
            if not _neutral(part):
                self.add(part, "NAME")

    def add_given(self, text: str) -> None:
        """Hide a setting's value, whole and in its parts, but not where it is a word of hsparity's own."""
        for part in (text, *re.split(r"[/\\:,=@\s]+", text)):
            known = part.lower() in plain_words() or part in (LEFT_OUT, "left-out")
            own = known or bool(_WORDS.fullmatch(part) or VERSION.fullmatch(part))
            long_number = part.isdecimal() and len(part) >= 6  # shorter ones are figures of other things
            if long_number or (len(part) >= 4 and not own and not _neutral(part)):
                self.add(part, "NAME")

    def prompt(self, name: str) -> str:
        """prompt-1, prompt-2, … in the order they are asked for: not p1, as sets of prompts call theirs."""
        return self.prompts.setdefault(name, f"prompt-{len(self.prompts) + 1}")

    def span(self, text: str) -> str:
        """ "ID 0-31" with the prompt's placeholder."""
        name, gap, rows = text.rpartition(" ")
        return f"{self.prompt(name)} {rows}" if gap and _NUMBERS.fullmatch(rows) else self.hide(text)

    def path(self, text: str) -> str:
        """The placeholder of a path."""
        text = text.strip()
        if not text or text in _PLACEHOLDERS:
            return text
        return self.phrases.get(text) or self.single.get(text) or "PATH"

    def hide(self, text: str) -> str:
        """A sentence with everything replaced."""
        if not text:
            return text
        if text.startswith("hsparity "):
            return self.command(text)
        if self._search is None:
            self._compile()
        assert self._search is not None
        assert self._listed is not None
        text = self._listed.sub(self._renamed, text)
        text = self._search.sub(lambda m: self.phrases[m[0]], text) if self.phrases else text
        text = _WORD.sub(lambda m: self.single.get(m[0], m[0]), text)
        if text.count('"') % 2:  # which of them open is not known
            text = _OUTER.sub('"…"', text)
        for pattern, placeholder in _PATTERNS:
            text = pattern.sub(placeholder, text)
        return text

    def command(self, line: str) -> str:
        """A command line; one that no shell reads is a sentence."""
        try:
            words = shlex.split(line)
        except ValueError:
            head = "hsparity " if line.startswith("hsparity ") else ""
            return head + self.hide(line[len(head) :])
        return " ".join(self.words(words))

    def words(self, words: Sequence[str]) -> Iterator[str]:
        """The words of a command: options, numbers and hsparity's own words stay, known paths get their placeholder."""
        before = ""
        for i, word in enumerate(words):
            option = _OPTION.fullmatch(word)
            if i == 0 and not option:
                yield "hsparity"
            elif option:
                yield (
                    option[1] if option[2] is None else f"{option[1]}={self._argument(option[2], option[1])}"
                )
            else:
                yield self._argument(word, before)
            before = word

    def _argument(self, word: str, option: str) -> str:
        """A word behind `option`, or behind another word."""
        known = self.phrases.get(word) or self.single.get(word)
        if known:
            return known
        own = bool(_WORDS.fullmatch(word)) or word in _PLACEHOLDERS or word == "--"
        switch = _SWITCH.fullmatch(word)
        if switch and (_STATE.fullmatch(switch[2]) or NUMBER.fullmatch(switch[2])):
            own = own or not NUMBERED.search(switch[1].lower())
        number = option.startswith("-") and _NUMBERS.fullmatch(word)
        return word if own or number or (_VALUED.fullmatch(option) and _VALUE.fullmatch(word)) else "FILE"

    def _compile(self) -> None:
        """Longest first, all in one pass: a placeholder is never read again."""
        for name, placeholder in self.prompts.items():
            if len(name) >= 4 and not _NUMBERS.fullmatch(name):
                self.add(name, placeholder)
        self._search = re.compile(
            "|".join(_bounded(p) for p in sorted(self.phrases, key=len, reverse=True)) or r"(?!)"
        )
        names = "|".join(_bounded(p) for p in sorted(self.prompts, key=len, reverse=True)) or r"(?!)"
        self._listed = re.compile(rf"(\bprompts?\s+)((?:{names})(?:(?:, | and | to )(?:{names}))*)")

    def _renamed(self, found: re.Match[str]) -> str:
        names = "|".join(_bounded(p) for p in sorted(self.prompts, key=len, reverse=True))
        return found[1] + re.sub(names, lambda m: self.prompts[m[0]], found[2])


@cache
def plain_words() -> frozenset[str]:
    """The words that hsparity's own texts are made of, in small letters."""
    from ..explain import entries

    return frozenset(word.lower() for text in entries().values() for word in _WORD.findall(str(text)))


def collect(record: Any) -> Secrets:
    """What the fields of a record say, by their names."""
    found = Secrets()
    strings = list(_strings("", record))
    for name, value in strings:  # first: a map holds the prompts in their order
        if name == "prompts":
            found.prompt(value)
    for owner, name, value in _owned("", record):
        if name in PATHS:
            found.add_path(value, _ROLES.get(owner, PATHS[name]) if name == "path" else PATHS[name])
    for name, value in strings:
        _note(found, name, value)
    for _, value in strings:
        for named in _NAMED.finditer(value):
            found.prompt(named[1] or named[2])
    return found


def _note(found: Secrets, name: str, value: str) -> None:
    if name == "prompt":
        found.prompt(value)
    elif name == "rows":
        head, _, rows = value.rpartition(" ")
        if head and _NUMBERS.fullmatch(rows):
            found.prompt(head)
    elif name == "weights_sha256":
        if value != LEFT_OUT:
            found.add(value, "DIGEST")
    elif TOKENS.fullmatch(name):
        if _telling(value.strip()):
            found.add(value, '"…"')
    elif name == "environment" and len(value) >= 4 and not (VERSION.fullmatch(value) or _neutral(value)):
        found.add(value, "NAME")


def _neutral(part: str) -> bool:
    """Whether a part of a path names nobody: short, or made of common words and numbers."""
    words = re.split(r"[^A-Za-z0-9]+", part.lower())
    return len(part) < 3 or all(_NEUTRAL.fullmatch(word) for word in words)


def own_label(text: str) -> bool:
    """Whether a slot's label is made of an engine's own words and numbers."""
    return all(_LABELS.fullmatch(word.lower()) for word in re.findall(r"[^\W\d_]+", text)) and text.isascii()


def _telling(text: str) -> bool:
    """Whether a token's text is told from the words around it where no quotes show it."""
    letters = any(ch.isalpha() for ch in text)
    return letters and (len(text) >= 10 or (len(text) >= 4 and not (text.isascii() and text.islower())))


def _bounded(text: str) -> str:
    return rf"(?<!\w){re.escape(text)}(?!\w)"


def _owned(owner: str, value: Any, name: str = "") -> Iterator[tuple[str, str, str]]:
    """(role, field, string) of every string below `value`; the role is its record's own, or the field that holds it."""
    if is_dataclass(value) and not isinstance(value, type):
        role = getattr(value, "role", name)
        for f in fields(value):
            yield from _owned(role, getattr(value, f.name), f.name)
    elif isinstance(value, str):
        yield owner, name, value
    else:
        for part in _parts(value):
            yield from _owned(owner, part, name)


def _strings(name: str, value: Any) -> Iterator[tuple[str, str]]:
    """(field, string) of every string below `value`; the keys of mappings belong to no field."""
    if isinstance(value, str):
        yield name, value
    elif isinstance(value, Mapping):
        yield from (("", str(key)) for key in value)
        yield from (pair for part in value.values() for pair in _strings(name, part))
    elif is_dataclass(value) and not isinstance(value, type):
        for f in fields(value):
            yield from _strings(f.name, getattr(value, f.name))
    else:
        for part in _parts(value):
            yield from _strings(name, part)


def _parts(value: Any) -> Iterable[Any]:
    if isinstance(value, Mapping):
        return value.values()
    return value if isinstance(value, (tuple, list)) else ()
