"""What a cause declares. Importing this package needs neither torch nor numpy: `hsparity explain` reads the
texts alone."""

from __future__ import annotations

from collections.abc import Mapping
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


def compare_command(evidence: Evidence, options: str) -> str:
    """The comparison with these options in place of the layers asked for, on the same captures and floor."""
    import shlex

    words = ["hsparity", "compare", shlex.quote(evidence.ref.path), shlex.quote(evidence.cand.path)]
    words += [word for path in evidence.floors for word in ("--floor", shlex.quote(path))]
    tokens = evidence.query.tokens
    words += ["--tokens", shlex.quote(tokens)] if tokens and tokens != "all" else []
    return " ".join([*words, options])


def engine_fixes(evidence: Evidence, fix: Mapping[str, str]) -> dict[str, str]:
    """What holds for any engine and for those compared; all of it when those are not known."""
    engines = {"any", evidence.ref.manifest.engine, evidence.cand.manifest.engine}
    kept = {key: text for key, text in fix.items() if key in engines}
    return kept if set(kept) - {"any"} or evidence.cand.manifest.engine in KNOWN else dict(fix)


KNOWN = ("hf", "vllm", "sglang")
