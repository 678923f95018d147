"""Results that were saved: read from a file or from standard input, and checked, so that whoever shows one may trust it."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import HsparityError
from .saved_kinds import kind_of, make, show

if TYPE_CHECKING:
    from ..drafter.result import DraftCost
    from ..model import Comparison
    from ..report.joined import More

HELP = f"make it with {make('comparison')}"
MORE = "make one with one of these, of the same two captures:\n" + make("bisect", "replay", "draft-cost")


def read(path: str) -> Comparison | DraftCost:
    """The result in a file; '-' is standard input. Raises E213 for anything else."""
    from ..drafter import result as drafts
    from ..model import SCHEMA, from_json
    from ..report.validate import validate, validate_cost

    return _read(
        path,
        "a comparison result",
        {SCHEMA: (from_json, validate), drafts.SCHEMA: (drafts.DraftCost.from_json, validate_cost)},
    )


def read_more(path: str) -> More:
    """What can stand beside a comparison: a bisection, a replay, a draft's cost. Raises E213 for anything else."""
    from ..drafter import result as drafts
    from ..experiments import result as bisections
    from ..replay import result as replays
    from ..report.validate import validate_cost, validate_record

    return _read(
        path,
        "a bisection, a replay or a draft's cost",
        {
            bisections.SCHEMA: (bisections.from_json, partial(validate_record, bisections.Bisect)),
            replays.SCHEMA: (replays.from_json, partial(validate_record, replays.Replay)),
            drafts.SCHEMA: (drafts.DraftCost.from_json, validate_cost),
        },
        MORE,
    )


def read_any(path: str) -> dict[str, Any]:
    """A saved result of any kind as JSON, also out of its page. Raises E213 for what is none by its schema."""
    try:
        raw = json.loads(_document(contents(path)))
    except (OSError, ValueError, RecursionError):
        raw = None
    if isinstance(raw, dict) and kind_of(raw.get("schema")) is not None:
        return raw
    read(path)  # which says what is wrong with it
    raise HsparityError("E213", f"{path} is no saved result", (), HELP)


def _read(
    path: str,
    wanted: str,
    kinds: Mapping[str, tuple[Callable[[str], Any], Callable[[Any], None]]],
    advice: str = HELP,
) -> Any:
    """The record in a file, by one of `kinds`: schema -> how it is read and checked. `advice`: how one is made."""
    name = "standard input" if path == "-" else path
    try:
        text = contents(path)
    except (OSError, ValueError) as error:
        wrong = "not UTF-8 text" if isinstance(error, UnicodeDecodeError) else _reason(error)
        reason = error.strerror if isinstance(error, OSError) else wrong
        raise HsparityError("E213", f"cannot read {name}", (str(reason),), advice) from error
    try:
        text = _document(text)
        raw = json.loads(text)
        schema = raw.get("schema") if isinstance(raw, dict) else type(raw).__name__
        if not isinstance(schema, str) or schema not in kinds:
            advice = _other(schema, path, kinds) or advice
            raise ValueError(f"its schema is {schema!r}, expected {' or '.join(kinds)}")
        reader, check = kinds[schema]
        record = reader(text)
        check(record)
    # A file of another shape fails wherever its first odd value is met; to its owner each is the same.
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise HsparityError("E213", f"{name} is not {wanted}", (_reason(error),), advice) from error
    return record


def contents(path: str) -> str:
    """The text of a file; '-' is standard input. Raises OSError, and ValueError for no UTF-8 or more than `LARGEST` bytes."""
    from ..report.embedded import LARGEST

    if path == "-":
        text = sys.stdin.read(LARGEST + 1)
        size = len(text)
    else:
        with Path(path).open("rb") as file:
            data = file.read(LARGEST + 1)
        size = len(data)
        text = "" if size > LARGEST else data.decode("utf-8")
    if size > LARGEST:
        raise ValueError(f"more than {LARGEST >> 20} MB, which no result has")
    return text


def comparison(path: str) -> Comparison:
    """The comparison in a file. Raises E213 for anything else, a result of hsparity drafter among it."""
    from ..model import Comparison

    found = read(path)
    if not isinstance(found, Comparison):
        raise HsparityError(
            "E213",
            f"{path} is not a comparison result",
            (f"it holds {found.schema}",),
            f"{HELP}\nthis one is shown by {show(found.schema, path)}",
        )
    return found


def _other(schema: object, path: str, kinds: Mapping[str, Any]) -> str:
    """What a result of another kind is good for; empty for what is none of hsparity's, or of another version."""
    kind = kind_of(schema)
    if kind is None or any(kind_of(expected) == kind for expected in kinds):
        return ""
    if schema == "hsparity.comparison/1":
        return (
            f"a page holds one comparison, which comes first; two are held against each other by\n"
            f"hsparity diff OLD.json {shlex.quote(path)}"
        )
    return f"it is {kind.words}: {show(schema, path)}"


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
