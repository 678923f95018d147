"""Reports of hand-made comparisons are, to the byte, what was last reviewed."""

from __future__ import annotations

import base64
import hashlib
import os
import re
import struct
import zlib
from pathlib import Path

import pytest

from hsparity.report import Options, reporters

from .cases import CASES

FOLDER = Path(__file__).parent / "reports"
UPDATE = bool(os.environ.get("HSPARITY_WRITE_GOLDEN"))
PAGES = (
    "parity", "offset", "inconclusive", "native-ids", "hostile", "rows", "several", "target-clean", "why",
)  # fmt: skip
TEXTS = {
    **{
        f"{name}.{width}.txt": (name, "terminal", Options(width=width))
        for name in CASES
        for width in (60, 80, 120)
    },
    **{f"{name}.md": (name, "markdown", Options()) for name in CASES},
    **{
        f"{name}.verbose.txt": (name, "terminal", Options(verbose=True))
        for name in ("parity", "native-ids", "rows", "why")
    },
    **{
        f"{name}.ascii.txt": (name, "terminal", Options(unicode=False))
        for name in ("hostile", "offset", "rows", "why")
    },
    **{
        f"{name}.quiet.txt": (name, "terminal", Options(quiet=True))
        for name in ("hostile", "offset", "parity", "inconclusive")
    },
    "offset.color.txt": ("offset", "terminal", Options(color=True)),
    **{f"{name}.json": (name, "json", Options()) for name in ("one-token", "several", "why")},
    **{f"{name}.html": (name, "html", Options()) for name in PAGES},
}


@pytest.mark.parametrize("file", TEXTS)
def test_report_is_as_reviewed(file: str) -> None:
    """A change to a reporter shows as a diff of these files."""
    name, reporter, options = TEXTS[file]
    text = reporters()[reporter].render(CASES[name](), options).rstrip("\n") + "\n"
    if reporter == "html":
        text = reviewable(text)
    path = FOLDER / file
    if UPDATE:
        FOLDER.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8"), "after a wanted change: make golden"


def test_no_golden_is_left_over() -> None:
    """Every file in reports/ belongs to a case."""
    assert {p.name for p in FOLDER.iterdir()} == set(TEXTS)


def reviewable(page: str) -> str:
    """The page without its style sheet, script, read-out data and result, each image as the digest of its pixels."""
    page = re.sub(r"<style>.*?</style>", "<style>[report.css]</style>", page, flags=re.S)
    page = re.sub(r"<script>.*?</script>", "<script>[report.js]</script>", page, flags=re.S)
    page = re.sub(
        r'(<script type="application/json" id="data">).*?(</script>)', r"\1[data]\2", page, flags=re.S
    )
    page = re.sub(
        r'(<script type="application/octet-stream" id="result">).*?(</script>)', r"\1[result]\2", page
    )
    return re.sub(r"data:image/png;base64,([A-Za-z0-9+/=]+)", lambda m: _pixels(base64.b64decode(m[1])), page)


def _pixels(png: bytes) -> str:
    """[png WxH digest of palette and rows]."""
    at, body, palette, size = 8, b"", b"", (0, 0)
    while at < len(png):
        length, kind = struct.unpack(">I4s", png[at : at + 8])
        chunk = png[at + 8 : at + 8 + length]
        if kind == b"IHDR":
            size = struct.unpack(">II", chunk[:8])
        palette += chunk if kind == b"PLTE" else b""
        body += chunk if kind == b"IDAT" else b""
        at += 12 + length
    digest = hashlib.sha256(palette + zlib.decompress(body)).hexdigest()[:12]
    return f"[png {size[0]}x{size[1]} {digest}]"
