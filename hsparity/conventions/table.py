"""The table, and the rows of it that hold for an engine, a version and a model.

What a row says was read in the sources of the versions it names, or run. It is a prior: the data of a comparison
overrule it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from .numbering import Ids
from .rule import Rule
from .rules_sglang import RULES as SGLANG
from .rules_trainers import RULES as OTHERS
from .rules_vllm import RULES as VLLM

RULES: tuple[Rule, ...] = (*VLLM, *SGLANG, *OTHERS)
ALIASES = {"transformers": "hf", "trtllm": "tensorrt-llm", "trt-llm": "tensorrt-llm"}

Version = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Answer:
    """A row and how far it is known to hold: both texts are empty for a version and a family that were checked."""

    rule: Rule
    other_version: str = ""
    other_family: str = ""

    @property
    def doubts(self) -> tuple[str, ...]:
        return tuple(text for text in (self.other_version, self.other_family) if text)


def engines() -> tuple[str, ...]:
    """Every engine and trainer of the table, in its order."""
    return tuple(dict.fromkeys(rule.engine for rule in RULES))


def parse_version(text: str) -> Version | None:
    """The leading numbers of a version: "0.5.12.post1" is (0, 5, 12). None where there are none."""
    match = re.match(r"v?(\d+(?:\.\d+)*)", text.strip())
    return tuple(int(part) for part in match[1].split(".")) if match else None


def answers(engine: str = "", version: str = "", architecture: str = "") -> tuple[Answer, ...]:
    """The rows that hold; every argument may be left out ("").

    A version outside the checked ranges gets the rows of the nearest checked one, with a doubt that says so; an
    architecture that no row names gets the rule of most families, likewise.
    """
    found: list[Answer] = []
    for name in [e for e in engines() if engine in ("", e)]:
        kept, other = _of_version([r for r in RULES if r.engine == name], version)
        for setting in dict.fromkeys(r.setting for r in kept):
            rows, unread = _of_family([r for r in kept if r.setting == setting], architecture)
            found += [Answer(rule, other, unread) for rule in rows]
    return tuple(found)


def reading(
    engine: str, version: str, architecture: str, ids: Ids, num_layers: int
) -> tuple[Answer, Ids] | None:
    """The row for a capture's native ids and the boundaries it promises, in the order the slots come in.

    L + 1 stands for the state after the final norm. None where the table knows no engine of that name, no such family,
    or no boundary for these ids; a version that was not checked is answered by the nearest, with its doubt.
    """
    name = ALIASES.get(engine, engine)
    if name not in engines() or parse_version(version) is None or not architecture:
        return None
    known = [a for a in answers(name, version, architecture) if a.rule.native]
    if len(known) != 1 or known[0].other_family:
        return None
    boundaries = known[0].rule.numbering.read(ids, num_layers)
    if boundaries is None:
        return None
    kept = boundaries if known[0].rule.keeps_order else tuple(sorted(set(boundaries)))
    return known[0], kept


def _of_family(rows: list[Rule], architecture: str) -> tuple[list[Rule], str]:
    """The rows that name the class, else those of every other model, else those of most families."""
    if not architecture:
        return rows, ""
    lengths = {id(r): _fits(r, architecture) for r in rows}
    if best := max(lengths.values()):
        return [r for r in rows if lengths[id(r)] == best], ""
    if rest := [r for r in rows if not r.families]:
        return rest, ""
    return [r for r in rows if r.most], _unread(architecture)


def _unread(architecture: str) -> str:
    return f"{architecture} is not among the families read; this is the rule of most"


def _fits(rule: Rule, architecture: str) -> int:
    """Letters of the longest family that the class name begins with."""
    name = re.sub(r"[^a-z0-9]", "", architecture.lower())
    return max((len(f) for f in rule.families if name.startswith(f)), default=0)


def _of_version(rows: list[Rule], version: str) -> tuple[list[Rule], str]:
    asked = parse_version(version) if version else None
    if asked is None or not rows:
        return rows, ""
    if kept := [r for r in rows if _covers(r, asked)]:
        return kept, ""
    if not any(r.since for r in rows):
        return rows, f"{version} is not checked; read at {rows[0].read_at}"
    below = [r for r in rows if _number(r.until) < asked]
    near = max(below, key=lambda r: _number(r.until)) if below else min(rows, key=lambda r: _number(r.since))
    place = near.until if below else near.since
    kept = [r for r in rows if (r.until if below else r.since) == place]
    return kept, f"{version} is not checked; nearest checked is {place}"


def _number(text: str) -> Version:
    return parse_version(text) or ()


def _covers(rule: Rule, asked: Version) -> bool:
    """Whether since <= asked <= until; "0.24" as the end takes every 0.24.x."""
    since, until = _number(rule.since), _number(rule.until)
    padded = (*asked, *(0,) * (3 - len(asked)))
    return bool(since) and padded >= (*since, *(0,) * (3 - len(since))) and padded[: len(until)] <= until
