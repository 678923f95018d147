"""Annotations of a GitHub Actions run: commands that the runner reads, and nothing that a prompt can add to them."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from hsparity.model import Finding, Verdict
from hsparity.report import Options, reporters
from hsparity.report.to_github import MOST
from tests.golden.cases import CASES

COMMAND = re.compile(r"::(error|warning|notice) title=([^:,\r\n]*)::([^\r\n]*)")
LEVELS = {"parity": "notice", "diverged": "error", "inconclusive": "warning"}


def lines(name: str) -> list[str]:
    return reporters()["github"].render(CASES[name](), Options()).splitlines()


def plain(text: str) -> str:
    """As the runner reads it."""
    for code, char in (("%2C", ","), ("%3A", ":"), ("%0A", "\n"), ("%0D", "\r"), ("%25", "%")):
        text = text.replace(code, char)
    return text


@pytest.mark.parametrize("name", CASES)
def test_every_line_is_one_command(name: str) -> None:
    """The verdict first, as loud as it is; at most ten of a level; no character that steers a log."""
    shown = lines(name)
    assert all(COMMAND.fullmatch(line) for line in shown)
    first = COMMAND.fullmatch(shown[0])
    assert first
    assert first[1] == LEVELS[CASES[name]().verdict.value]
    assert plain(first[2]) == f"hsparity: {CASES[name]().verdict.value}"
    assert not re.search("[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e]", "".join(shown))


def test_ruled_out_findings_are_not_annotated() -> None:
    """A finding that holds is, with its fix and its command."""
    shown = "\n".join(lines("offset"))
    assert "HS101 layer-offset::" in shown
    assert "fix (vLLM): write 3,31,59, not 4,32,60%0A" in shown
    assert "confirm: hsparity compare captures/hf-bf16" in shown
    for finding in CASES["offset"]().findings:
        assert (finding.code in shown) != finding.ruled_out


def test_text_cannot_begin_a_command() -> None:
    """Line breaks of every kind, percent signs and separators in a text stay in it."""
    evil = "a\n::error::b\r\n::stop-commands::x\u2028::set-output name=a::b\x0b::c\x85::d 100% a:b,c %0A::e"
    case = replace(
        CASES["offset"](),
        headline=evil,
        findings=(Finding("HS\n::error", evil, evil, fix={"any": evil, evil: evil}, confirm=(evil,)),),
    )
    shown = reporters()["github"].render(case, Options()).splitlines()
    assert len(shown) == 2
    assert all(line.startswith("::error title=") and COMMAND.fullmatch(line) for line in shown)
    assert "a\\n::error::b\\r\\n::stop-commands::x\\u2028" in plain(shown[0])
    assert "100% a:b,c %0A::e" in plain(shown[0])


def test_at_most_ten_of_a_level() -> None:
    """More of one level would be dropped by GitHub, which may drop the verdict."""
    causes = tuple(Finding(f"HS3{n:02d}", "x", "x") for n in range(20))
    notes = tuple(Finding(f"HS4{n:02d}", "x", "x", severity="note") for n in range(20))
    case = replace(CASES["offset"](), verdict=Verdict.DIVERGED, findings=(*causes, *notes))
    shown = reporters()["github"].render(case, Options()).splitlines()
    assert [line.split(" ")[0] for line in shown] == ["::error"] * MOST + ["::notice"] * MOST
