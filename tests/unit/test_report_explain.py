"""hsparity explain: every code that is used anywhere has a text, found by code, name or near match."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from hsparity.cli.cmd_explain import entries, find, render
from hsparity.cli.main import invoke
from hsparity.errors import ExitCode, HsparityError
from hsparity.explain import texts

ROOT = Path(__file__).parents[2]
CODE = re.compile(r"""["'](E[1-9]\d\d|HS\d{3})["']""")


def used() -> set[str]:
    """Codes written as string literals anywhere in the two packages."""
    sources = [p for folder in ("hsparity", "probes") for p in (ROOT / folder).rglob("*.py")]
    assert len(sources) > 50
    return {code for p in sources for code in CODE.findall(p.read_text(encoding="utf-8"))}


def test_every_code_in_the_tree_has_a_text() -> None:
    """A code that is printed can be looked up."""
    known = entries()
    assert used() - set(known) == set()
    assert {"E101", "E213", "E303"} <= used()


@pytest.mark.parametrize("code", sorted(texts()))
def test_texts_say_what_why_and_what_to_do(code: str) -> None:
    """An error's text has three parts; no line is wider than 80 columns but an example."""
    entry = texts()[code]
    shown = render(entry).splitlines()
    assert shown[0] == f"{code} {entry.name}"
    if code.startswith("E"):
        for heading in ("What it means", "Why it happens", "What to do"):
            assert heading in shown
    assert all(len(line) <= 80 for line in shown)


def test_findings_are_told_by_their_cause() -> None:
    """A finding's text is the docstring of its cause, headings and all."""
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
