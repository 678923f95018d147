"""Finds the files that extend hsparity: every module of a package that defines the package's constant."""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hsparity.capture.readers.base import Reader
    from hsparity.capture.writers.base import Writer
    from hsparity.causes.base import Cause
    from hsparity.drafter.checks.base import Check
    from hsparity.metrics.base import Metric


def _modules(package: str) -> list[ModuleType]:
    root = importlib.import_module(package)
    names = sorted(m.name for m in pkgutil.iter_modules(root.__path__))
    return [importlib.import_module(f"{package}.{name}") for name in names]


@cache
def _found(package: str, constant: str, key: str) -> dict[str, Any]:
    """The constants by their `key` attribute. Raises ValueError for a name used twice."""
    found: dict[str, Any] = {}
    for module in _modules(package):
        value = getattr(module, constant, None)
        if value is None:
            continue
        name = getattr(value, key)
        if name in found:
            raise ValueError(f"{package}: {name!r} is defined twice")
        found[name] = value
    return found


def causes() -> dict[str, Cause]:
    """Finding codes to causes, in code order."""
    return dict(sorted(_found("hsparity.causes", "CAUSE", "code").items()))


def checks() -> dict[str, Check]:
    """Finding codes to the static checks of a draft head, in code order."""
    return dict(sorted(_found("hsparity.drafter.checks", "CHECK", "code").items()))


def findings() -> dict[str, Cause | Check]:
    """Everything that a report can name, in code order: causes of a difference, and checks of a draft head."""
    return dict(sorted([*causes().items(), *checks().items()]))


def metrics() -> dict[str, Metric]:
    """Metric names to metrics."""
    return _found("hsparity.metrics", "METRIC", "name")


def writers() -> dict[str, Writer]:
    """Format names to writers of trainers' datasets."""
    return _found("hsparity.capture.writers", "WRITER", "name")


def readers() -> dict[str, Reader]:
    """Format names to readers of foreign folders."""
    return _found("hsparity.capture.readers", "READER", "name")
