"""The demo: six captures of two tiny models and the two questions they answer, recorded or made now."""

from __future__ import annotations
