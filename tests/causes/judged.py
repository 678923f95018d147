"""Compare what a test made, and read what the comparison says of it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from hsparity.capture.read import open_source
from hsparity.capture.source import Source
from hsparity.compare import Query, compare
from hsparity.model import Comparison, Finding
from tests.causes.streams import LAYERS, Capture

ALL = [f"boundary.{k:03d}" for k in range(LAYERS + 1)]


def against(ref: Source, made: Capture, folder: Path, floor: Sequence[Source], **query: object) -> Comparison:
    return compare(ref, open_source(made.write(folder / "cand")), floor, Query(**query))


def causes(result: Comparison) -> list[str]:
    return [f.code for f in result.findings if f.severity == "cause" and not f.ruled_out]


def finding(result: Comparison, code: str) -> Finding:
    return next(f for f in result.findings if f.code == code)
