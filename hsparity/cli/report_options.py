"""The options that say which reports a command writes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar

from ..errors import HsparityError
from .grouped import grouped_option
from .output import open_outputs

if TYPE_CHECKING:
    from ..drafter.result import DraftCost
    from ..model import Comparison

    Record = TypeVar("Record", Comparison, DraftCost)

HEADING = "Reports"
# Reporter names, in the order of --help.
FILES = {
    "html": "Write a one-file HTML report.",
    "json": "Write the whole result; '-' for standard output. Re-render it later with hsparity report.",
    "markdown": "Write a summary to paste into an issue.",
    "junit": "Write JUnit XML: one test case for each site asked for, and one for the verdict.",
    "sarif": "Write SARIF 2.1.0 for code scanning: one result for each finding.",
    "github": "Write annotations for a GitHub Actions run; '-' prints them, which makes GitHub show them.",
}
_REDACT = (
    "Leave prompts, token texts and ids, paths and names of models and machines out of every report, "
    "so that they can be passed on."
)


@dataclass(frozen=True, slots=True)
class Reports:
    """What was asked for."""

    files: dict[str, str]  # path by reporter name
    redact: bool

    def open(self) -> dict[str, str]:
        """`files`, every one tried for writing. Raises E103 and E106."""
        return open_outputs(**self.files)

    def shown(self, record: Record) -> Record:
        """The record as the reports show it."""
        if not self.redact:
            return record
        from ..report.redact import redact

        return redact(record)

    def only(self, *names: str, of: str) -> None:
        """Raises E103 for a report that a result of `of` does not have."""
        other = [name for name in self.files if name not in names]
        if other:
            raise HsparityError(
                "E103",
                f"a result of {of} has no such report: {', '.join(f'--{name}' for name in other)}",
                tuple(f"--{name} {self.files[name]}" for name in other),
                f"it has {', '.join(f'--{name}' for name in names)}, and the page on standard output",
            )


def report_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Adds --html, --json and so on, and --redact; the command gets them as `reports`."""

    @wraps(function)
    def command(**given: Any) -> Any:
        files = {name: path for name in FILES if (path := given.pop(f"{name}_path"))}
        reports = Reports(files, given.pop("redact"))
        return function(**given, reports=reports)

    made: Callable[..., Any] = grouped_option(HEADING, "--redact", is_flag=True, help=_REDACT)(command)
    for name, words in reversed(FILES.items()):
        made = grouped_option(HEADING, f"--{name}", f"{name}_path", metavar="FILE", help=words)(made)
    return made
