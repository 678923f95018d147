"""What a cause declares. Importing this package needs neither torch nor numpy: `hsparity explain` reads the
texts alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from hsparity.evidence import Evidence
    from hsparity.model import Finding


class Cause(Protocol):
    """A finding: when it applies. The class docstring is its explanation, Markdown with four headings."""

    code: str
    name: str

    def find(self, evidence: Evidence) -> Finding | None:
        """The finding; one with `ruled_out` when it was tested and is not there; None when it does not
        arise."""


def counted(number: int, noun: str) -> str:
    """A number with its noun: "1 row", "2 rows"."""
    return f"{number} {noun}{'s' * (number != 1)}"


def listed(numbers: list[int] | tuple[int, ...], limit: int = 8) -> str:
    """Numbers for a sentence, cut after `limit`."""
    shown = ", ".join(str(n) for n in numbers[:limit])
    return shown + (f" and {len(numbers) - limit} more" if len(numbers) > limit else "")
