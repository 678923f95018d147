"""What a check declares and what it looks at. Importing it needs neither torch nor numpy: `hsparity explain` reads the
texts alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from hsparity.drafter.contract import Contract
    from hsparity.drafter.draft import Draft

# An error is proved by the files and the engine's source; a warning is one unless something that is in neither says
# otherwise; a note is worth knowing.
ERROR, WARNING, NOTE = "error", "warning", "note"
CONFIG = "config.json"


@dataclass(frozen=True, slots=True)
class Change:
    """One line to change: `key` of `file` from `old` to `new`, as they are spelled there; "" where there is none."""

    file: str
    key: str
    old: str
    new: str


@dataclass(frozen=True, slots=True)
class Problem:
    """What a check found. `sides` line up what each side says: ("draft", "fc.weight [64, 192]")."""

    code: str
    name: str
    severity: str
    headline: str
    sides: tuple[tuple[str, str], ...] = ()
    changes: tuple[Change, ...] = ()
    advice: str = ""
    rival: str = ""  # what else it may be, where it is a judgement
    settle: str = ""  # the command that settles it


@dataclass(frozen=True, slots=True)
class Unchecked:
    """Why a check could not look, and whether the verdict hangs on it."""

    reason: str
    essential: bool = False


@dataclass(frozen=True, slots=True)
class TargetModel:
    """The target's config and folder; no weight is read."""

    folder: Path
    spelled: str
    config: Mapping[str, Any]

    @property
    def architecture(self) -> str:
        named = self.config.get("architectures")
        return str(named[0]) if isinstance(named, list) and named else ""

    def number(self, name: str) -> int:
        """A whole number of the config; 0 where it has none."""
        value = self.config.get(name)
        return value if isinstance(value, int) and not isinstance(value, bool) else 0


@dataclass(frozen=True, slots=True)
class Trained:
    """The boundaries that the head was trained on, and how that is known."""

    boundaries: tuple[int, ...]
    words: str
    given: bool  # by the user; else inferred from the files


@dataclass(frozen=True, slots=True)
class Case:
    """Everything a check may look at. `algorithm` is the engine's flag: "eagle", "eagle3" or "" where it is not known."""

    draft: Draft
    contract: Contract
    target: TargetModel | None
    algorithm: str
    trained: Trained | None

    @property
    def engine(self) -> str:
        """How a report calls the engine: "vLLM 0.32.0"."""
        return self.contract.label


class Check(Protocol):
    """A check. The class docstring is its explanation, Markdown with four headings."""

    code: str
    name: str

    def look(self, case: Case) -> Sequence[Problem] | Unchecked:
        """What is wrong; empty when it was looked at and is fine."""


def problem(check: Check, severity: str, headline: str, **more: Any) -> Problem:
    """A finding of this check."""
    return Problem(check.code, check.name, severity, headline, **more)


def spelled(value: Any) -> str:
    """A config value as JSON spells it: null, true, [2,16,29]."""
    import json

    return json.dumps(value, default=list, separators=(",", ":"))


def shaped(name: str, shape: Sequence[int]) -> str:
    """A tensor as a report names it: "fc.weight [64, 192]"."""
    return f"{name} [{', '.join(str(n) for n in shape)}]"


NO_MODEL = Unchecked("the target is not named: --model M")
