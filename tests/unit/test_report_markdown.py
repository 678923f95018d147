"""The Markdown summary: foreign text can neither break the layout nor reach out of it."""

from __future__ import annotations

import re

import pytest

from hsparity.report import Options, reporters
from hsparity.report.to_markdown import code, escaped
from tests.golden.cases import CASES


@pytest.mark.parametrize("name", CASES)
def test_tables_have_equal_rows(name: str) -> None:
    """A pipe in a path does not add a column."""
    lines = reporters()["markdown"].render(CASES[name](), Options()).splitlines()
    widths: list[int] = []
    for line in lines:
        if line.startswith("|"):
            widths.append(line.count("|"))
        elif widths:
            assert len(set(widths)) == 1, widths
            widths = []
    assert "| side | capture | engine |" in lines


@pytest.mark.parametrize("name", CASES)
def test_html_and_mentions_are_inert(name: str) -> None:
    """No tag and no @name outside a fence."""
    text = reporters()["markdown"].render(CASES[name](), Options())
    outside = re.sub(r"`+[^`]*`+", "", text)
    assert not re.search(r"<\w|</|@\w", outside)


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        ("a|b", "a&#124;b"),
        ("<b>", "&lt;b&gt;"),
        ("@me #1", "&#64;me &#35;1"),
        ("*x* _y_ `z` [l]", r"\*x\* \_y\_ \`z\` \[l\]"),
    ],
)
def test_text_reads_as_written(raw: str, shown: str) -> None:
    """Each special character is escaped once."""
    assert escaped(raw) == shown


@pytest.mark.parametrize(("raw", "shown"), [("a b", "`a b`"), ("a`b", "``a`b``"), ("`", "`` ` ``")])
def test_code_spans_outgrow_their_backticks(raw: str, shown: str) -> None:
    """The fence is longer than any run inside."""
    assert code(raw) == shown


def test_several_causes_are_a_numbered_list_with_their_facts() -> None:
    """The same facts as in the terminal: rows and their spans, slots, the beaten rival, a fix for each."""
    text = reporters()["markdown"].render(CASES["several"](), Options())
    assert [m[1] for m in re.finditer(r"^\d\. \*\*(HS\d+)", text, re.M)] == ["HS101", "HS113", "HS201"]
    assert "  - rows: 64 tokens (prompt and positions): 1 0-31, 2 0-31" in text.splitlines()
    assert "  - next best: boundary 31, 12× farther (slot.001)" in text.splitlines()
    assert [m[1] for m in re.finditer(r"^\*\*Fix (HS\d+)", text, re.M)] == ["HS101", "HS113", "HS201"]
    assert "- ruled out: HS401 tokens-differ" in text.splitlines()


def test_a_clean_target_lists_what_is_left_to_check() -> None:
    text = reporters()["markdown"].render(CASES["target-clean"](), Options())
    assert "  - left to check on the draft: EAGLE-3 mode, fc width = slots x hidden size" in text.splitlines()
    assert "Causes" not in text
