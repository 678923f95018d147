"""Find where and why the hidden states of two inference engines part."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"
__all__ = ["Comparison", "ExitCode", "HsparityError", "compare", "load_capture"]

if TYPE_CHECKING:
    from .capture.read import open_source as load_capture
    from .errors import ExitCode, HsparityError
    from .folders import compare
    from .model import Comparison

_HOMES = {
    "Comparison": ("model", "Comparison"),
    "ExitCode": ("errors", "ExitCode"),
    "HsparityError": ("errors", "HsparityError"),
    "compare": ("folders", "compare"),
    "load_capture": ("capture.read", "open_source"),
}


def __getattr__(name: str) -> Any:
    """Public names load on first use, so that `import hsparity` needs neither torch nor numpy."""
    from importlib import import_module

    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, attribute = _HOMES[name]
    return getattr(import_module(f"{__name__}.{module}"), attribute)


class _Package(ModuleType):
    """The import system binds a submodule to its name in the package; that of compare.py is taken by the function."""

    def __setattr__(self, name: str, value: Any) -> None:
        if name != "compare" or not isinstance(value, ModuleType):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
