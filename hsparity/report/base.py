"""What a reporter is, and how they are found."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import TYPE_CHECKING, Protocol

from ..model import Comparison

if TYPE_CHECKING:
    from ..gate import GateResult


@dataclass(frozen=True, slots=True)
class Options:
    """How to render. A reporter that writes files reads none of these, but one for CI the gate's result."""

    width: int = 80  # columns of the terminal
    color: bool = False
    verbose: bool = False
    quiet: bool = False
    unicode: bool = True  # False: plain ASCII
    gate: GateResult | None = None  # None: none was asked for, and the verdict alone speaks


class Reporter(Protocol):
    """One way to show a Comparison. `suffix` is the file suffix it is written under."""

    suffix: str

    def render(self, comparison: Comparison, options: Options) -> str: ...


def reporters() -> dict[str, Reporter]:
    """Every reporter by name. A file `to_NAME.py` beside this one that defines REPORTER is a reporter."""
    found: dict[str, Reporter] = {}
    for module in sorted(m.name for m in iter_modules([str(Path(__file__).parent)])):
        if module.startswith("to_"):
            found[module.removeprefix("to_")] = import_module(f"{__package__}.{module}").REPORTER
    return found
