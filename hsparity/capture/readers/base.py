"""What a reader of a foreign format declares."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from hsparity.capture.source import Source


@dataclass(frozen=True, slots=True)
class Reader:
    """A format is recognised by one file in the folder; `open(folder, path as typed)` raises E2xx."""

    name: str
    marker: str
    open: Callable[[Path, str], Source]
