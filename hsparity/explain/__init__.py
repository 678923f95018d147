"""What every code means, from one source: findings, errors and exit codes.

A finding's text is the docstring of its cause or check; every other text stands in a module of this package that
defines TEXTS.
"""

from __future__ import annotations

import inspect
import pkgutil
from functools import cache
from importlib import import_module

from .entry import Entry
from .look_alikes import section

__all__ = ["Entry", "entries", "groups", "texts"]


@cache
def groups() -> dict[str, tuple[Entry, ...]]:
    """Entries of errors and exit codes by what their module says of them, in code order."""
    modules = [import_module(f"{__name__}.{m.name}") for m in pkgutil.iter_modules(__path__)]
    told = [m for m in modules if hasattr(m, "TEXTS")]
    told.sort(key=lambda m: min(e.code for e in m.TEXTS))
    return {(m.__doc__ or "").splitlines()[0]: m.TEXTS for m in told}


def texts() -> dict[str, Entry]:
    """Every entry of an error or an exit code by its code. Exit codes are called "exit 0" and so on."""
    return {entry.code: entry for group in groups().values() for entry in group}


@cache
def entries() -> dict[str, Entry]:
    """Findings, with what they are mistaken for, then errors, then exit codes."""
    from ..registry import findings

    codes = {found.name: code for code, found in findings().items()}
    told = {
        code: Entry(code, found.name, (inspect.getdoc(type(found)) or "") + section(found.name, codes))
        for code, found in findings().items()
    }
    return {**told, **texts()}
