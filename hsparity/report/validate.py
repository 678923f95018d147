"""Checks a result that came from a file: a renderer may then trust every field."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import is_dataclass
from enum import Enum
from typing import Any, Union, cast, get_args, get_origin

import numpy as np

from ..drafter.result import DraftCost
from ..model import ABSENT_ROW, Comparison, field_types

MOST_LAYERS = 100_000  # of a model or of its boundaries


def validate(comparison: Comparison) -> None:
    """Raises ValueError naming the first field of another type, or an array that does not fit its axes."""
    _check(Comparison, comparison, "result")
    a, m, r = comparison.alignment, comparison.map, comparison.rows
    for d in comparison.deltas:
        _place(d.ref)
        _place(d.cand)
    numbers = [*comparison.request.boundaries, *a.ref_boundaries, *a.cand_boundaries]
    numbers += [e.layer for e in comparison.added] + [
        n for n, *_ in getattr(comparison.fingerprint, "added", ())
    ]
    numbers += list(m.boundaries) if m is not None else []
    if any(not -1 <= n < MOST_LAYERS for n in numbers):
        raise ValueError(f"a layer or boundary is out of range: {min(numbers)} to {max(numbers)}")
    if r is not None:
        _vector("rows.owner_m", r.owner_m, len(r.owner_m) if r.owner_m.ndim else 0)
        _tiled("rows.prompts", r.prompts, len(r.owner_m))
        if ((r.owner_m < ABSENT_ROW) | (r.owner_m >= len(r.owner_m))).any():
            raise ValueError("rows.owner_m points beyond the rows")
    _shape("alignment.pair_error_kk", a.pair_error_kk, (len(a.ref_boundaries), len(a.cand_boundaries)))
    if m is None:
        return
    columns = m.excess_kc.shape[-1] if m.excess_kc.ndim == 2 else 0
    _shape("map.excess_kc", m.excess_kc, (len(m.boundaries), columns))
    if m.undone_kc is not None:
        _shape("map.undone_kc", m.undone_kc, m.excess_kc.shape)
    if m.column_tokens < 1:
        raise ValueError(f"map.column_tokens is {m.column_tokens}")
    _tiled("map.prompts", m.prompts, columns)
    for name, values in (("map.positions_c", m.positions_c), ("map.ids_c", m.ids_c)):
        _vector(name, values, columns if values.size else 0)
    if len(m.texts) not in (0, columns):
        raise ValueError(f"map.texts are {len(m.texts)}, expected {columns}")


def _place(site: str) -> None:
    kind, _, index = site.partition(".")
    if index.isdigit() and int(index[:12]) >= MOST_LAYERS:
        raise ValueError(f"no model has a {kind} {index[:12]}")


def _vector(name: str, values: np.ndarray, length: int) -> None:
    if values.shape != (length,) or values.dtype.kind != "i":
        raise ValueError(f"{name} is {values.dtype} {list(values.shape)}, expected int32 {[length]}")


def _tiled(name: str, spans: Sequence[tuple[str, int, int]], total: int) -> None:
    """Raises ValueError where spans leave gaps, overlap, or do not fill the axis."""
    at = 0
    for _, start, stop in spans:
        if start != at or stop < start:
            break
        at = stop
    if at != total or (spans and spans[-1][2] != total):
        raise ValueError(f"{name} do not fit its {total} places")


def validate_record(kind: type, record: object) -> None:
    """Raises ValueError naming the first field of another type."""
    _check(kind, record, "result")


def validate_cost(cost: DraftCost) -> None:
    """Raises ValueError as `validate`, and for lists whose lengths disagree or a figure that is not finite."""
    _check(DraftCost, cost, "result")
    keys = [f.key for f in cost.feeds]
    if keys[:2] != ["ref", "cand"] or len(set(keys)) != len(keys):
        raise ValueError(f"feeds are {keys[:8]}, expected ref, cand and others, each once")
    estimates = [e for f in cost.feeds for e in (f.accepted, f.change)]
    for f in cost.feeds:
        if len(f.by_position) != cost.steps:
            raise ValueError(f"{f.key} has {len(f.by_position)} positions, expected {cost.steps}")
    for side in (cost.ref, cost.cand):
        if not side.slots or len(side.slots) != len(side.places):
            raise ValueError(f"{len(side.slots)} slots in {len(side.places)} places")
    for b in cost.beside:
        totals = (b.predicted_accepted, b.measured_accepted, b.accepted_difference)
        lengths = {len(b.predicted), len(b.measured), len(b.difference)}
        if not b.why_not and (len(lengths) > 1 or None in totals):
            raise ValueError(f"the measurement {b.path} lacks figures")
        estimates += [*b.predicted, *b.measured, *b.difference, *totals]
    values = [v for e in estimates if e is not None for v in (e.value, e.low, e.high)]
    if any(v is not None and not math.isfinite(v) for v in values):
        raise ValueError("a figure is not finite")


def _shape(name: str, array: np.ndarray, expected: tuple[int, ...]) -> None:
    if array.shape != expected or array.dtype.kind != "f":
        raise ValueError(f"{name} is {array.dtype} {list(array.shape)}, expected float32 {list(expected)}")


def _check(kind: Any, value: Any, where: str) -> None:
    origin, args = get_origin(kind), get_args(kind)
    if kind is Any:
        return
    if origin is np.ndarray:
        _expect(isinstance(value, np.ndarray), kind, value, where)
    elif origin is tuple:
        _expect(isinstance(value, tuple), kind, value, where)
        kinds = [args[0]] * len(value) if len(args) == 2 and args[1] is Ellipsis else args
        _expect(len(kinds) == len(value), kind, value, where)
        for i, (part_kind, part) in enumerate(zip(kinds, value, strict=True)):
            _check(part_kind, part, f"{where}[{i}]")
    elif origin is dict:
        _expect(isinstance(value, dict), kind, value, where)
        for key, part in value.items():
            _check(args[1], part, f"{where}.{key}")
    elif origin is Union or type(kind).__name__ == "UnionType":
        if value is not None:
            _check(next(a for a in args if a is not type(None)), value, where)
    elif is_dataclass(kind):
        _expect(isinstance(value, kind), kind, value, where)  # type: ignore[arg-type]
        for name, part_kind in field_types(cast(Any, kind)).items():
            _check(part_kind, getattr(value, name), f"{where}.{name}")
    elif issubclass(kind, Enum):
        _expect(isinstance(value, kind), kind, value, where)
    else:
        _expect(isinstance(value, kind) and (kind is bool or not isinstance(value, bool)), kind, value, where)


def _expect(holds: bool, kind: Any, value: Any, where: str) -> None:
    if not holds:
        raise ValueError(f"{where} is {type(value).__name__}, expected {getattr(kind, '__name__', kind)}")
