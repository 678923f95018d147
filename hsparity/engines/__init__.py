"""Interpreters that hold an engine: managed environments, the user's, and hsparity's own for Transformers."""

from __future__ import annotations

from .interpreter import Interpreter, resolve

__all__ = ["Interpreter", "resolve"]
