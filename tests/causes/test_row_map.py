"""The map of rows covers every row that the reference holds: whose state it is, no telling, or absent."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from hsparity.capture.read import open_source
from hsparity.compare import Query, compare
from hsparity.model import ABSENT_ROW, Comparison, RowMap
from hsparity.report.row_figure import caption, row_figure
from tests.causes.matrix import Bench, single_cases
from tests.causes.streams import Capture, capture

LENGTH, COUNT = 24, 8


def compared(cand: Capture, folder: Path, query: Query | None = None) -> Comparison:
    ref = replace(capture(0), engine="hf", version="5.19.0")
    sides = [open_source(made.write(folder / name)) for name, made in (("ref", ref), ("cand", cand))]
    return compare(sides[0], sides[1], [], query or Query())


def owners(rows: RowMap | None) -> dict[str, np.ndarray]:
    assert rows is not None
    return {name: rows.owner_m[start:stop] for name, start, stop in rows.prompts}


def test_absent_rows_are_on_the_axis_where_nothing_moved(tmp_path: Path) -> None:
    """-2 where the candidate holds no row, and every other row its own; also a prompt that it holds nothing of."""
    kept = {"p1": range(16, LENGTH), "p2": []}
    rows = compared(replace(capture(1), positions=kept), tmp_path).rows
    found = owners(rows)
    assert rows is not None
    assert len(rows.owner_m) == COUNT * LENGTH
    assert list(found) == [f"p{i}" for i in range(COUNT)]
    assert np.flatnonzero(rows.owner_m == ABSENT_ROW).tolist() == [*range(24, 40), *range(48, 72)]
    assert (found["p1"][16:] == np.arange(40, 48)).all()
    assert "40 of 192 rows are absent" in caption(rows)
    assert str(row_figure(rows)).count('fill-opacity="0.18"') == 2


def test_rows_laid_from_zero_own_places_of_absent_ones(tmp_path: Path) -> None:
    """The rest behind a cached prefix, laid from position 0: it owns the last places, which themselves are absent."""
    case = next(c for c in single_cases(everything=False) if c.expected == ("prefix-cache-skip",))
    rows = Bench(tmp_path).run(case).rows
    short = {name: x for name, x in owners(rows).items() if (x == ABSENT_ROW).any()}
    starts = {name: start for name, start, _ in rows.prompts} if rows else {}
    assert short
    for name, found in short.items():
        held = len(found) - 16
        assert found[:held].tolist() == [starts[name] + 16 + i for i in range(held)]
        assert (found[held:] == ABSENT_ROW).all()


def test_the_axis_holds_the_chosen_tokens_only(tmp_path: Path) -> None:
    """Absent rows that were not asked for are not drawn; without an absent row there is no map."""
    cand = replace(capture(1), positions={"p1": range(4, LENGTH)})
    rows = compared(cand, tmp_path / "some", Query(tokens="2:8")).rows
    assert rows is not None
    assert len(rows.owner_m) == COUNT * 6
    assert (rows.owner_m == ABSENT_ROW).sum() == 2
    assert compared(cand, tmp_path / "none", Query(tokens="8:12")).rows is None


def test_long_names_of_prompts_are_cut_with_the_whole_in_a_title() -> None:
    """Both axes bear the name; foreign markup stays text."""
    rows = RowMap("boundary.004", (("a-long-name-<b>", 0, 4), ("b", 4, 8)), np.arange(8, dtype=np.int32))
    drawn = str(row_figure(rows))
    assert drawn.count("<title>a-long-name-&lt;b&gt;</title>") == 1
    assert drawn.count(">b</text>") == 2
    assert "<b>" not in drawn
