"""hsparity explain: every code that is used anywhere has a text, found by code, name or near match."""

from __future__ import annotations

import ast
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from hsparity.cli.cmd_explain import find, render
from hsparity.cli.main import invoke
from hsparity.errors import ExitCode, HsparityError
from hsparity.explain import Entry, entries, groups, texts
from hsparity.explain.markup import as_html

ROOT = Path(__file__).parents[2]
CODE = re.compile(r"E[1-9]\d\d|HS\d{3}")


def used() -> set[str]:
    """Codes that the two packages can print: whole string literals, and those in "error[E900]"."""
    sources = [p for folder in ("hsparity", "probes") for p in (ROOT / folder).rglob("*.py")]
    assert len(sources) > 50
    found = set()
    for path in sources:
        text = path.read_text(encoding="utf-8")
        if path.is_relative_to(ROOT / "hsparity" / "explain") or not CODE.search(text):
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                found |= {node.value} if CODE.fullmatch(node.value) else set()
                found |= set(re.findall(r"error\[(E\d{3})\]", node.value))
    return found


def test_every_code_has_a_text_and_every_text_a_code() -> None:
    """A code that is printed can be looked up, and nothing is told that no command prints."""
    known = {code for code in entries() if CODE.fullmatch(code)}
    assert used() - known == set()
    assert known - used() == set()
    assert {"E101", "E213", "E303", "E900"} <= used()


def test_a_group_says_what_its_errors_exit_with() -> None:
    """The heading of each group holds the exit code of every error in it."""
    for heading, group in groups().items():
        for entry in group:
            expected = ExitCode.BUG if entry.code == "E900" else HsparityError(entry.code, "").exit_code
            assert not entry.code.startswith("E") or f"exit {expected}." in heading.replace(
                "exits", "exit"
            ), heading


@pytest.mark.parametrize("code", sorted(entries()))
def test_an_explanation_is_a_safe_piece_of_a_page(code: str) -> None:
    """Only a few elements, well nested; every other code in it is a link exactly when the page explains it."""
    everything = set(entries())
    plain, linked = as_html(code), as_html(code, everything)
    reader = Elements()
    reader.feed(linked)
    assert reader.open == []
    assert reader.seen <= {"h4", "p", "ul", "ol", "li", "pre", "code", "em", "strong", "a"}
    targets = [href.removeprefix("#why-") for href in reader.hrefs]
    assert set(targets) <= everything - {code}
    assert "<a" not in plain
    assert re.sub(r"</?a[^>]*>", "", linked) == plain
    prose = re.sub(r"`[^`]*`|(?m:^    .*$)", "", entries()[code].text)
    assert set(targets) == set(CODE.findall(prose)) & everything - {code}


def test_an_unknown_code_has_no_explanation() -> None:
    """A result of a later version still makes a page."""
    assert as_html("HS999") == ""


def test_markup_in_an_explanation_is_text(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tag, a link and an image are shown as they were typed."""
    text = "## <b>x</b>\n<script>alert(1)</script> [a](https://example.org) ![i](x.png) <https://example.org>"
    monkeypatch.setitem(entries(), "HS101", Entry("HS101", "planted", text))
    reader = Elements()
    reader.feed(as_html("HS101"))
    assert reader.seen == {"h4", "p"}


class Elements(HTMLParser):
    """Elements that are open, those that were seen, and where links lead."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: set[str] = set()
        self.hrefs: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.open.append(tag)
        self.seen.add(tag)
        self.hrefs += [value or "" for name, value in attrs if name == "href"]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


@pytest.mark.parametrize("code", sorted(entries()))
def test_texts_say_what_why_and_what_to_do(code: str) -> None:
    """An error's text has three parts; no line is wider than 80 columns."""
    entry = entries()[code]
    shown = render(entry).splitlines()
    assert shown[0] == f"{code} {entry.name}"
    if code.startswith("E"):
        for heading in ("What it means", "Why it happens", "What to do"):
            assert heading in shown
    assert all(len(line) <= 80 for line in shown)


def test_findings_are_told_by_their_cause() -> None:
    """A finding's text is the docstring of its cause, headings and all, and what it is mistaken for."""
    findings = {c: e for c, e in entries().items() if c.startswith("HS")}
    assert findings
    for code, entry in findings.items():
        assert len(entry.text) > 100, code
        assert "#" not in render(entry).splitlines()[2]


def test_every_exit_code_has_a_text() -> None:
    """0, 1, 2, 3, 4, 70, 130 and 141."""
    assert {f"exit {int(c)}" for c in ExitCode} <= set(texts())


def test_names_and_codes_are_unique() -> None:
    """A name means one thing."""
    known = entries()
    names = [e.name for e in known.values()]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("spelled", ["E203", "e203", "no-shared-tokens", "NO-SHARED-TOKENS", " e203 "])
def test_codes_are_found_in_any_case_and_by_name(spelled: str) -> None:
    """What was printed can be typed as it comes."""
    assert find(spelled, entries()).code == "E203"


@pytest.mark.parametrize("spelled", ["3", "exit 3", "inconclusive"])
def test_exit_codes_are_found_by_number(spelled: str) -> None:
    """echo $? is enough."""
    assert find(spelled, entries()).code == "exit 3"


@pytest.mark.parametrize("code", sorted(entries()))
def test_every_name_is_found_and_so_is_a_typo(code: str) -> None:
    """A name is as good as a code; one with a letter dropped is among what was probably meant."""
    entry = entries()[code]
    assert find(entry.name, entries()).code == code
    assert find(entry.name.upper(), entries()).code == code
    typo = entry.name[:-2] + entry.name[-1]
    with pytest.raises(HsparityError) as caught:
        find(typo, entries())
    assert f"{code} ({entry.name})" in caught.value.help


def test_unknown_codes_name_near_matches() -> None:
    """E107 with what was probably meant."""
    with pytest.raises(HsparityError) as caught:
        find("shared-tokens", entries())
    assert (caught.value.code, "E203 (no-shared-tokens)" in caught.value.help) == ("E107", True)


def test_no_argument_lists_all_codes(capsys: pytest.CaptureFixture[str]) -> None:
    """One line each."""
    assert invoke(["explain"]) == 0
    assert capsys.readouterr().out.splitlines() == [f"{e.code:<8}  {e.name}" for e in entries().values()]
