"""E900: a bug in hsparity. It exits 70."""

from __future__ import annotations

from .entry import entry

TEXTS = (
    entry(
        "E900",
        "internal-error",
        "hsparity itself failed. This says nothing about your engines, and it exits 70, never 1.",
        "A case that nobody thought of.",
        "Report it with the command line, the traceback above the message, and the file that "
        "`hsparity doctor --bundle bug.zip` writes.",
    ),
)
