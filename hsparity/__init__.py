"""Find where and why the hidden states of two inference engines part."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"
__all__ = ["Comparison", "ExitCode", "HsparityError", "compare", "load_capture"]

if TYPE_CHECKING:
    from .capture.read import open_source as load_capture
    from .compare import compare
    from .errors import ExitCode, HsparityError
    from .model import Comparison

_HOMES = {
    "Comparison": ("model", "Comparison"),
    "ExitCode": ("errors", "ExitCode"),
    "HsparityError": ("errors", "HsparityError"),
    "compare": ("compare", "compare"),
    "load_capture": ("capture.read", "open_source"),
}


def __getattr__(name: str) -> Any:
    """Public names load on first use, so that `import hsparity` needs neither torch nor numpy."""
    from importlib import import_module

    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, attribute = _HOMES[name]
    return getattr(import_module(f"{__name__}.{module}"), attribute)
