"""What somebody else wrote is inert in every format: it steers no terminal, ends no element, starts no line, fills no disk."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from dataclasses import replace
from xml.etree import ElementTree

import pytest
from markdown_it import MarkdownIt

from hsparity.cli.plain_page import as_page
from hsparity.model import TokenRef, from_json, to_json
from hsparity.report import Options, reporters
from tests.golden.cases import CASES

from .records import comparisons, pages

TEXTS = {
    "html": "<script>alert(1)</script>\"'><img src=x onerror=alert(2)>]]> --> {{7*7}}",
    "ansi": "\x1b[31mred\x1b[0m\x9b2J\a\b",
    "links": "\x1b]8;;https://evil.example\x1b\\link\x1b]8;;\x07",
    "nul": "a\x00b\x7f",
    "right-to-left": "abc\u202edcba\u2066x\u200f",
    "lines": "a\u2028b\u2029c\x85d\r\n::error::x\x0c",
    "surrogates": "x\ud800y\udfff",
    "long": "word " * 3_000,
}
# Line feeds are the only control characters that a report holds.
STEERING = re.compile(
    "[\x00-\x09\x0b-\x1f\x7f-\x9f\u00ad\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff]"
)
DATA = re.compile(r'<script type="application/[a-z-]+".*?</script>', re.S)
# As a forge reads it: HTML in it counts, and in code it is text.
MARKDOWN = MarkdownIt("commonmark", {"html": True}).enable("table")
LOOKS = (Options(), Options(unicode=False, verbose=True), Options(quiet=True))


@pytest.mark.parametrize("kind", TEXTS)
@pytest.mark.parametrize("reporter", reporters())
def test_in_every_report(reporter: str, kind: str) -> None:
    """Whatever stands in a comparison, in every reporter there is."""
    made = reporters()[reporter]
    for found in comparisons(TEXTS[kind]).values():
        for look in LOOKS if reporter == "terminal" else LOOKS[:1]:
            check(made.suffix, lambda found=found, look=look: made.render(found, look))  # type: ignore[misc]


@pytest.mark.parametrize("kind", TEXTS)
def test_on_every_page_of_a_command(kind: str) -> None:
    """Audits, experiments, replays, draft heads: the pages that are not a comparison's."""
    for name, render in pages(TEXTS[kind]).items():
        for look in LOOKS:
            check("." + name.rpartition(".")[2], lambda render=render, look=look: render(look))  # type: ignore[misc]
    check(".html", lambda: as_page(TEXTS[kind], lambda options: "PARITY", Options()))


def check(suffix: str, render: Callable[[], str]) -> None:
    """Fails for an output that is slow, long, malformed, or lets the text act."""
    begun = time.monotonic()
    shown = render()
    assert time.monotonic() - begun < 10
    assert not STEERING.search(shown), repr(shown[max(0, STEERING.search(shown).start() - 80) :][:160])  # type: ignore[union-attr]
    assert suffix == ".html" or "\n::error::x" not in shown
    if suffix in (".html", ".md"):
        page = MARKDOWN.render(shown) if suffix == ".md" else shown
        assert not re.search(r"<script>alert|<img", page)
    if suffix == ".xml":
        ElementTree.fromstring(shown)
    if suffix in (".json", ".sarif"):
        json.loads(shown)
    else:
        # A page holds its data too, and those are as long as they are.
        assert len(DATA.sub("", shown)) < 1_000_000


def test_json_is_escaped_and_still_the_same() -> None:
    """The document for a terminal's eyes is read back to the very result."""
    for kind in ("ansi", "right-to-left", "lines", "surrogates"):
        found = comparisons(TEXTS[kind])["several"]
        assert to_json(from_json(reporters()["json"].render(found, Options()))) == to_json(found)


def test_a_token_of_ten_megabytes_is_cut_with_a_mark() -> None:
    """Its beginning is shown and how long it is; the report stays short and is made at once."""
    case = CASES["offset"]()
    token = TokenRef("p", 1, 2, 0.5, "x\x1b[31m" * 1_700_000)
    long = replace(case, deltas=tuple(replace(delta, worst=token) for delta in case.deltas))
    begun = time.monotonic()
    shown = reporters()["terminal"].render(long, Options())
    assert time.monotonic() - begun < 5
    assert "… (10,200,000" in " ".join(shown.split())
    assert len(shown) < 5_000


def test_the_check_can_fail() -> None:
    """It objects to each kind of text as it came."""
    for text in TEXTS.values():
        with pytest.raises(AssertionError):
            check(".md", lambda text=text: f"seen: {text * 80}")  # type: ignore[misc]
