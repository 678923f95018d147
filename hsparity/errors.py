"""Exit codes and the one exception that users see."""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum


class ExitCode(IntEnum):
    PARITY = 0
    DIVERGED = 1
    USAGE = 2
    INCONCLUSIVE = 3
    ENGINE = 4
    BUG = 70
    INTERRUPTED = 130
    CLOSED_PIPE = 141


class HsparityError(Exception):
    """A coded error: what is wrong, both sides lined up, and what to type.

    E1xx usage and config and E2xx captures exit 2, E3xx engines exit 4.
    """

    def __init__(self, code: str, message: str, notes: Sequence[str] = (), help: str = "") -> None:  # noqa: A002
        super().__init__(message)
        self.code, self.message, self.notes, self.help = code, message, tuple(notes), help

    @property
    def exit_code(self) -> ExitCode:
        return ExitCode.ENGINE if self.code.startswith("E3") else ExitCode.USAGE

    def render(self) -> str:
        """The whole error as text, without colour."""
        lines = [f"error[{self.code}]: {self.message}", *(f"  {note}" for note in self.notes)]
        if self.help:
            first, *rest = self.help.splitlines()
            lines += [f"  help: {first}", *(f"        {line}" for line in rest)]
        return "\n".join(lines)
