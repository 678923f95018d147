"""What each saved result is: the command that writes it, and the command that shows it."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass

_SCHEMA = re.compile(r"hsparity\.([a-z-]+)/(\d+)")
_BY_ITS_OWN = (
    "{command} shows it: type that again, with --html FILE for a page; hsparity report does not take it"
)


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of saved result. `shown` says what shows FILE, which it holds as {file}."""

    words: str  # "a comparison"
    command: str  # that writes it
    shown: str


_SHOW, _BESIDE = (
    "hsparity report {file} --html page.html",
    "hsparity report result.json {file} --html page.html",
)
_KINDS = {
    "comparison": Kind("a comparison", "hsparity compare REF CAND --json result.json", _SHOW),
    "draft-cost": Kind("a draft's cost", "hsparity drafter DRAFT REF CAND --json cost.json", _SHOW),
    "bisect": Kind("a bisection", "hsparity bisect REF CAND --json bisect.json", _BESIDE),
    "replay": Kind("a replay", "hsparity replay REF CAND --json replay.json", _BESIDE),
    "measurement": Kind(
        "a measurement",
        "hsparity drafter measure DRAFT -o measured.json",
        "hsparity drafter DRAFT REF CAND --measured {file} --html page.html",
    ),
    "draft-check": Kind("a draft's check", "hsparity drafter check DRAFT --json check.json", _BY_ITS_OWN),
    "diff": Kind(
        "a diff of two comparisons", "hsparity diff OLD.json NEW.json --json diff.json", _BY_ITS_OWN
    ),
    "overview": Kind("an overview", "hsparity overview FOLDER --json overview.json", _BY_ITS_OWN),
    "audit": Kind("an audit", "hsparity audit DATASET --json audit.json", _BY_ITS_OWN),
    "floor": Kind("a floor's figures", "hsparity floor CAPTURE --json floor.json", _BY_ITS_OWN),
    "selfcheck": Kind("a self-check", "hsparity selfcheck CAPTURE --json selfcheck.json", _BY_ITS_OWN),
}


def kind_of(schema: object) -> Kind | None:
    """The kind of that schema, of whatever version; None for one that is no saved result of hsparity."""
    found = _SCHEMA.fullmatch(schema) if isinstance(schema, str) else None
    return _KINDS.get(found[1]) if found else None


def names() -> list[str]:
    """Of every kind."""
    return list(_KINDS)


def show(schema: object, path: str) -> str:
    """The command that shows the result in a file; empty for what is none."""
    kind = kind_of(schema)
    if kind is None:
        return ""
    command = kind.command.partition(" --json")[0].partition(" -o")[0]
    return kind.shown.format(file=shlex.quote(path), command=command)


def make(*kinds: str) -> str:
    """The commands that write results of these kinds, one to a line."""
    return "\n".join(f"{_KINDS[name].command}" for name in kinds)
