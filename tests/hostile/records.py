"""Records filled with a text: every string that a model, a file or a user can put there, and valid ones elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass, replace
from enum import Enum
from types import NoneType, UnionType
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

import numpy as np

from hsparity.audit.result import Audit
from hsparity.drafter.checking import DraftCheck
from hsparity.drafter.measurement import Measurement
from hsparity.experiments.result import Bisect
from hsparity.model import Comparison, SiteDelta, SlotMatch
from hsparity.replay.result import Replay
from tests.golden.cases import CASES
from tests.unit.drafter.records import COSTS

T = TypeVar("T")

# Words of hsparity's own, by field: nobody else can put a text there, and code asks for them.
OWN: Mapping[str, str] = {
    "role": "ref",
    "side": "ref",
    "weights": "own",
    "part": "layer",
    "kind": "dense",
    "confidence": "likely",
    "severity": "cause",
    "purpose": "toggle",
    "ids_asked": "given",
    "code": "HS101",
}
KEPT = {
    "schema",
    "kind",
    "role",
    "severity",
    "confidence",
    "of",
    "relative_to",
    "side",
    "start",
    "key",
    "state_verdict",
    "code",
    "name",
}


def filled(kind: Any, text: str, name: str = "") -> Any:
    """A value of a type with `text` for every string, two of everything that can be several."""
    origin, arguments = get_origin(kind), get_args(kind)
    if kind is str:
        return OWN.get(name, text)
    if kind in (int, float, bool):
        return kind(1)
    if is_dataclass(kind) and isinstance(kind, type):
        hints = get_type_hints(kind)
        return kind(**{f.name: filled(hints[f.name], text, f.name) for f in fields(kind)})
    if isinstance(kind, type) and issubclass(kind, Enum):
        return list(kind)[1]
    if origin in (Union, UnionType):
        return filled(next(a for a in arguments if a is not NoneType), text, name)
    if origin is tuple:
        parts = arguments[:1] * 2 if arguments[1:] == (...,) else arguments
        return tuple(filled(part, text, name) for part in parts)
    if origin is np.ndarray:
        return np.zeros((2, 2), np.float32)
    if origin is not None and issubclass(origin, Mapping):
        return {filled(arguments[0], text): filled(arguments[1], text)}
    return text  # Any


def spread(value: T, text: str) -> T:
    """A record with `text` behind every string that is not one of hsparity's own words."""
    made: T = _spread(value, text, "")
    return made


def _spread(value: Any, text: str, name: str) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        own = {"ref", "cand"} if isinstance(value, (SiteDelta, SlotMatch)) else set()
        changed = {
            f.name: _spread(getattr(value, f.name), text, f.name)
            for f in fields(value)
            if f.name not in KEPT | own
        }
        return replace(value, **changed)
    if isinstance(value, Enum):
        return value
    if isinstance(value, str):
        return value + text if name not in ("sites", "slots", "rows") else value
    if isinstance(value, tuple):
        return tuple(_spread(v, text, name) for v in value)
    if isinstance(value, dict) and name in ("settings", "environment", "native_labels", "fix"):
        return {k: _spread(v, text, name) for k, v in value.items()} | {f"k{text}": text}
    return value


def comparisons(text: str) -> dict[str, Comparison]:
    """The cases of the golden reports that have most parts, with `text` in all of them."""
    return {name: spread(CASES[name](), text) for name in ("several", "why")}


def pages(text: str) -> dict[str, Callable[[Any], str]]:
    """Every other page as a function of the options: what the text fills is the command's own record."""
    from hsparity.cli import (
        audit_page,
        bisect_page,
        drafter_check_page,
        drafter_measure_page,
        drafter_page,
        replay_page,
    )
    from hsparity.report import cost_page

    cost = spread(COSTS["cost-full"](), text)
    check = replace(filled(DraftCheck, text), verdict="problems")
    measured = replace(filled(Measurement, text), engine="vllm")
    audit = filled(Audit, text)
    return {
        "cost.html": lambda options: cost_page.render(cost),
        "cost.txt": lambda options: drafter_page.render(cost, options),
        "audit.txt": lambda options: audit_page.render(audit, options),
        "audit.html": lambda options: audit_page.as_html(audit, options),
        "bisect.txt": lambda options: bisect_page.render(filled(Bisect, text), options),
        "replay.txt": lambda options: replay_page.render(filled(Replay, text), options),
        "check.txt": lambda options: drafter_check_page.render(check, options),
        "measure.txt": lambda options: drafter_measure_page.render(measured, options),
    }
