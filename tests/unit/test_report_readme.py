"""README.md's findings and its worked report are those of the code."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from hsparity.registry import causes

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_table_of_findings_is_complete_and_in_order() -> None:
    """Every finding once, by code, under its name, linked to its page."""
    rows = re.findall(r"(?m)^\| \[(HS\d+)\]\(([^)]+)\) \| ([a-z0-9-]+) \| \S.* \|$", README)
    assert [(code, name) for code, _, name in rows] == [(c, cause.name) for c, cause in causes().items()]
    assert all((ROOT / page).is_file() for _, page, _ in rows)


@pytest.mark.parametrize("specimen", ["which-tensor", "drafter"])
def test_a_worked_report_is_the_specimen(specimen: str) -> None:
    """What README shows of a report stands in reports/SPECIMEN/report.txt, in this order."""
    _, link, behind = README.partition(f"[whole report](reports/{specimen}/report.txt)")
    assert link
    shown = re.search(r"```text\n(.*?)```", behind, re.S)
    assert shown
    whole, at = (ROOT / f"reports/{specimen}/report.txt").read_text(encoding="utf-8"), 0
    chunks = [chunk.strip("\n") for chunk in re.split("(?m)^…$", shown[1])]
    assert len(chunks) >= 3
    for chunk in chunks:
        place = whole.find(chunk, at)
        assert place >= 0, f"README.md shows what the report does not say:\n{chunk}"
        at = place + len(chunk)
