"""Results that were saved: read from a file or from standard input, and checked, so that whoever shows one may trust it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import HsparityError

if TYPE_CHECKING:
    from ..drafter.result import DraftCost
    from ..model import Comparison

HELP = "make it with hsparity compare REF CAND --json result.json"


def read(path: str) -> Comparison | DraftCost:
    """The result in a file; '-' is standard input. Raises E213 for anything else."""
    from ..drafter.result import SCHEMA, DraftCost
    from ..model import from_json
    from ..report.validate import validate, validate_cost

    name = "standard input" if path == "-" else path
    try:
        text = sys.stdin.read() if path == "-" else Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        raise HsparityError("E213", f"cannot read {name}", (str(reason),), HELP) from error
    try:
        text = _document(text)
        if f'"{SCHEMA}"' in text:
            cost = DraftCost.from_json(text)
            validate_cost(cost)
            return cost
        comparison = from_json(text)
        validate(comparison)
    # A file of another shape fails wherever its first odd value is met; to its owner each is the same.
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise HsparityError("E213", f"{name} is not a comparison result", (_reason(error),), HELP) from error
    return comparison


def comparison(path: str) -> Comparison:
    """The comparison in a file. Raises E213 for anything else, a result of hsparity drafter among it."""
    from ..model import Comparison

    found = read(path)
    if not isinstance(found, Comparison):
        raise HsparityError("E213", f"{path} is not a comparison result", (f"it holds {found.schema}",), HELP)
    return found


def _document(text: str) -> str:
    """The JSON in the file, or in the page that the file is. Raises ValueError and E222."""
    if not text.lstrip("\ufeff \t\r\n").startswith("<"):
        return text
    from ..report.embedded import unpack

    found = unpack(text)
    if found is None:
        raise ValueError("the page carries no result")
    return found


def _reason(error: Exception) -> str:
    return str(error).splitlines()[0][:200] if str(error) else type(error).__name__
