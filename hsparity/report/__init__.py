"""Comparison in, text out: terminal, HTML, JSON and Markdown. Needs numpy, rich and jinja2, never torch."""

from __future__ import annotations

from .base import Options, Reporter, reporters

__all__ = ["Options", "Reporter", "reporters"]
