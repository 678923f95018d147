"""The worked reports are what their results render to today."""

from __future__ import annotations

from pathlib import Path

import pytest

from reports.build import ROOT, render, specimens
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
