"""The worked reports are what their results render to today."""

from __future__ import annotations

from pathlib import Path

import pytest

from hsparity.model import Verdict, from_json
from reports.build import ROOT, render, specimens
from reports.damaged import SPECIMENS, compared
from tests.golden.test_golden import reviewable


def test_every_folder_is_a_specimen_and_is_listed() -> None:
    """A folder holds a result and a README, and the index names it."""
    folders = {p.parent for p in ROOT.glob("*/README.md")}
    assert folders == set(specimens())
    assert folders
    index = (ROOT / "README.md").read_text(encoding="utf-8")
    assert all(f"]({folder.name}/)" in index for folder in folders)


@pytest.mark.parametrize("folder", specimens(), ids=lambda p: p.name)
def test_reports_are_up_to_date(folder: Path) -> None:
    """A change to a reporter shows as a diff here: make specimens."""
    for name, text in render(folder).items():
        assert reviewable((folder / name).read_text(encoding="utf-8")) == reviewable(text), name


@pytest.mark.parametrize("name", SPECIMENS)
def test_damaged_streams_are_named(name: str) -> None:
    """Damaged anew, the streams give the causes that the folder shows, and no other: make specimens."""
    made, kept = (
        compared(SPECIMENS[name]),
        from_json((ROOT / name / "report.json").read_text(encoding="utf-8")),
    )
    for result in (made, kept):
        found = [f for f in result.findings if f.severity == "cause" and not f.ruled_out]
        assert result.verdict is Verdict.DIVERGED
        assert tuple(f.name for f in found) == SPECIMENS[name].causes
    assert [(f.name, f.slots, f.rows, f.fix) for f in made.findings] == [
        (f.name, f.slots, f.rows, f.fix) for f in kept.findings
    ]
