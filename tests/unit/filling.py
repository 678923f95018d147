"""Records made from their types alone, every field filled; and records with every string changed."""

from __future__ import annotations

import collections.abc
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass, replace
from enum import Enum
from types import NoneType
from typing import Any, get_args, get_origin, get_type_hints

import numpy as np


def filled(kind: Any, name: str = "") -> Any:
    """A value of that type: lists of two, floats that are not finite, no None where something may stand."""
    origin, args = get_origin(kind), get_args(kind)
    if kind in (str, Any):
        return f"some {name}"
    if kind in (int, float, bool):
        return {int: 3, float: float("nan"), bool: True}[kind]
    if origin is np.ndarray:
        dtype = get_args(args[1])[0]
        return np.zeros((2, 2), np.float16 if get_origin(dtype) is np.floating else dtype)
    if origin is tuple and len(args) == 2 and args[1] is Ellipsis:
        return (filled(args[0], name), filled(args[0], name))
    if origin is tuple:
        return tuple(filled(part, name) for part in args)
    if origin in (dict, collections.abc.Mapping):
        return {"some key": filled(args[1], name)}
    if is_dataclass(kind):
        hints = get_type_hints(kind)
        return kind(**{f.name: filled(hints[f.name], f.name) for f in fields(kind)})  # type: ignore[operator]
    if isinstance(kind, type) and issubclass(kind, Enum):
        return next(iter(kind))
    return filled(next(part for part in args if part is not NoneType), name)


def changed(value: Any, change: Callable[[str, str], str], name: str = "") -> Any:
    """The same with every string below it replaced by change(field, string): keys of mappings too, enums not."""
    if is_dataclass(value) and not isinstance(value, type):
        return replace(
            value, **{f.name: changed(getattr(value, f.name), change, f.name) for f in fields(value)}
        )
    if isinstance(value, Enum) or not isinstance(value, (str, tuple, list, Mapping)):
        return value
    if isinstance(value, str):
        return change(name, value)
    if isinstance(value, Mapping):
        return {change("", str(k)): changed(v, change, name) for k, v in value.items()}
    return type(value)(changed(part, change, name) for part in value)
