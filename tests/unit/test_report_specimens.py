"""The worked reports are what their results render to today."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from hsparity.model import Comparison, Verdict, from_json
from reports.build import ROOT, render, specimens
from reports.damaged import SPECIMENS, compared
from tests.golden.test_golden import reviewable

LARGEST, PICTURE = 400_000, 200_000  # bytes of a result and of a picture
MACHINE = re.compile(r'(?<![\w+/.])/(?:root|home|tmp|work|Users)/[^"]*')
# Results of real engines, kept as made: the cause that must be named first, and what may be where causes are weighed.
KEPT: dict[str, tuple[str, ...]] = {
    "parity": (),
    "routing-flips": (),
    "two-meanings": ("native-ids",),
    "layer-offset": ("layer-offset",),
    "normed-last": ("final-norm-applied",),
    "residual-missing": ("residual-missing",),
    "prefix-cache": ("prefix-cache-skip",),
    "quantised": ("weights-differ", "quantised-weights"),
    "rope": ("config-differs", "rope", "attention-semantics"),  # the two are level, and said to be
    "router-bias": ("beyond-floor", "layer-weights"),
}


def kept(name: str) -> Comparison:
    return from_json((ROOT / name / "report.json").read_text(encoding="utf-8"))


def first(result: Comparison, severity: str) -> str:
    """The name of the first finding of this severity that was not ruled out, empty for none."""
    return next((f.name for f in result.findings if f.severity == severity and not f.ruled_out), "")


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


@pytest.mark.parametrize("folder", specimens(), ids=lambda p: p.name)
def test_a_folder_can_be_handed_on(folder: Path) -> None:
    """No path or host of the machine it was made on, a command that can be typed, a result and a picture of bounded size."""
    saved = (folder / "report.json").read_text(encoding="utf-8")
    assert len(saved.encode()) < LARGEST
    assert (folder / "report.png").stat().st_size < PICTURE
    for text in folder.glob("*.[jtm]*"):
        assert MACHINE.findall(text.read_text(encoding="utf-8")) == [], text.name
    raw = json.loads(saved)
    sides = [raw[side] for side in ("ref", "cand") if side in raw]
    assert not [
        k for side in sides for k in side.get("environment", {}) if k in ("platform", "hostname", "node")
    ]
    assert raw["command"][0] == "hsparity"


def test_every_result_has_its_name_in_a_table() -> None:
    """What a comparison must name is stated for all, here or where its streams are damaged."""
    compared_ones = {f.name for f in specimens() if (f / "report.md").exists()}
    assert compared_ones == {*KEPT, *SPECIMENS}


@pytest.mark.parametrize("name", KEPT)
def test_what_was_broken_is_named_first(name: str) -> None:
    """The leading cause is what was broken, so is the leading hypothesis where there is one; the healthy have neither."""
    result = kept(name)
    cause, *weighed = KEPT[name] or ("",)
    assert first(result, "cause") == cause
    assert first(result, "hypothesis") in (weighed or ("",))
    assert result.verdict is (Verdict.DIVERGED if cause else Verdict.PARITY)


@pytest.mark.parametrize("name", SPECIMENS)
def test_damaged_streams_are_named(name: str) -> None:
    """Damaged anew, the streams give the causes that the folder shows, and no other: make specimens."""
    made, saved = compared(SPECIMENS[name]), kept(name)
    for result in (made, saved):
        found = [f for f in result.findings if f.severity == "cause" and not f.ruled_out]
        assert result.verdict is Verdict.DIVERGED
        assert tuple(f.name for f in found) == SPECIMENS[name].causes
    assert [(f.name, f.slots, f.rows, f.fix) for f in made.findings] == [
        (f.name, f.slots, f.rows, f.fix) for f in saved.findings
    ]
