"""Which rows are compared, and what is said of those that are not."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from hsparity.align.tokens import align_rows, shift_between
from hsparity.capture.read import open_source
from hsparity.capture.source import Source
from hsparity.errors import HsparityError
from hsparity.query import Query, span_text
from tests.causes.streams import Capture, capture


@pytest.fixture(scope="module")
def made() -> Capture:
    return capture(1, count=2, length=20)


def opened(folder: Path, made: Capture, **changes: object) -> Source:
    return open_source(replace(made, **changes).write(folder))


def test_equal_captures_align_row_by_row(made: Capture, tmp_path: Path) -> None:
    rows = align_rows(opened(tmp_path / "a", made), opened(tmp_path / "b", made), [], Query())
    assert (rows.tokens, rows.mismatches) == (40, [])
    assert [(p.start, p.stop) for p in rows.prompts] == [(0, 20), (20, 40)]
    assert rows.prompts[1].token_ids.tolist() == list(made.ids["p1"])


def test_prompts_pair_by_their_ids_whatever_they_are_called(made: Capture, tmp_path: Path) -> None:
    """Names that say the opposite of the token ids lose to the token ids."""
    other = {"p0": "p1", "p1": "p0"}
    named = {
        "states": {other[n]: s for n, s in made.states.items()},
        "ids": {other[n]: i for n, i in made.ids.items()},
    }
    rows = align_rows(opened(tmp_path / "a", made), opened(tmp_path / "b", made, **named), [], Query())
    assert [p.prompts for p in rows.prompts] == [("p0", "p1"), ("p1", "p0")]
    assert not rows.mismatches


def test_rows_after_the_first_difference_are_not_comparable(made: Capture, tmp_path: Path) -> None:
    """Equal ids behind a differing one have another prefix: their states must differ and are left out."""
    ids = {**made.ids, "p0": [*made.ids["p0"][:5], 49, *made.ids["p0"][6:]]}
    rows = align_rows(opened(tmp_path / "a", made), opened(tmp_path / "b", made, ids=ids), [], Query())
    assert rows.tokens == 25
    assert [(m.kind, m.count) for m in rows.mismatches] == [("tokens", 15)]


def test_a_side_that_decodes_further_is_no_difference(made: Capture, tmp_path: Path) -> None:
    """Prompts of equal prefill compare what both have, with a note."""
    short = {
        "states": {n: {k: v[:15] for k, v in s.items()} for n, s in made.states.items()},
        "ids": {n: list(i)[:15] for n, i in made.ids.items()},
    }
    prefill = {"p0": 15, "p1": 15}
    ref = opened(tmp_path / "a", made, prefill=prefill)
    rows = align_rows(ref, opened(tmp_path / "b", made, **short), [], Query())
    assert {m.kind for m in rows.mismatches} == {"longer"}
    assert rows.tokens == 30
    # The same ids as a prompt cut short are a difference.
    rows = align_rows(opened(tmp_path / "c", made), opened(tmp_path / "d", made, **short), [], Query())
    assert {m.kind for m in rows.mismatches} == {"tokens"}


@pytest.mark.parametrize(
    ("tokens", "count"),
    [("all", 40), ("prefill", 24), ("decode", 16), ("0:5", 10), ("15:", 10), (":3", 6), ("19:99", 2)],
)
def test_a_slice_chooses_positions(made: Capture, tmp_path: Path, tokens: str, count: int) -> None:
    source = opened(tmp_path / "a", made, prefill={"p0": 12, "p1": 12})
    assert align_rows(source, source, [], Query(tokens=tokens)).tokens == count


def test_a_difference_outside_the_slice_is_no_finding(made: Capture, tmp_path: Path) -> None:
    ids = {**made.ids, "p0": [*made.ids["p0"][:15], 49, *made.ids["p0"][16:]]}
    ref, cand = opened(tmp_path / "a", made), opened(tmp_path / "b", made, ids=ids)
    assert not align_rows(ref, cand, [], Query(tokens="0:15")).mismatches
    assert align_rows(ref, cand, [], Query(tokens="0:16")).mismatches


@pytest.mark.parametrize("tokens", ["x", "3:3", "5:2", "1:2:3", "-1:4", ""])
def test_a_bad_slice_is_refused(made: Capture, tmp_path: Path, tokens: str) -> None:
    source = opened(tmp_path / "a", made)
    if not tokens:
        assert align_rows(source, source, [], Query(tokens=tokens)).tokens == 40
        return
    with pytest.raises(HsparityError) as caught:
        align_rows(source, source, [], Query(tokens=tokens))
    assert caught.value.code == "E102"


def test_nothing_shared_lines_up_both_sides(made: Capture, tmp_path: Path) -> None:
    """An extra BOS on one side shares nothing; it is named, not compared."""
    ids = {n: [int(i[0]) + 1000, *i][:20] for n, i in made.ids.items()}
    with pytest.raises(HsparityError) as caught:
        align_rows(opened(tmp_path / "a", made), opened(tmp_path / "b", made, ids=ids), [], Query())
    error = caught.value
    assert error.code == "E203"
    assert len(error.notes) == 4
    assert str(made.ids["p0"][0]) in error.notes[0]
    assert "cand has one extra token first" in error.help


def test_shared_tokens_without_a_common_row(made: Capture, tmp_path: Path) -> None:
    ref = opened(tmp_path / "a", made, positions={n: range(10) for n in made.ids})
    cand = opened(tmp_path / "b", made, positions={n: range(10, 20) for n in made.ids})
    with pytest.raises(HsparityError) as caught:
        align_rows(ref, cand, [], Query())
    assert caught.value.code == "E212"


def test_a_slice_without_rows_is_not_called_different_tokens(made: Capture, tmp_path: Path) -> None:
    source = opened(tmp_path / "a", made)
    with pytest.raises(HsparityError) as caught:
        align_rows(source, source, [], Query(tokens="decode"))
    assert caught.value.code == "E212"


def test_a_floor_is_aligned_by_its_own_prefix(made: Capture, tmp_path: Path) -> None:
    """A floor that decoded another continuation serves for the shared part and has no row for the rest."""
    ids = {n: [*i[:14], 49, *i[15:]] for n, i in made.ids.items()}
    ref = opened(tmp_path / "a", made)
    rows = align_rows(ref, ref, [opened(tmp_path / "f", made, ids=ids)], Query())
    assert rows.tokens == 40
    assert [(p.rows[2] >= 0).sum() for p in rows.prompts] == [14, 14]


def test_one_extra_token_is_seen_on_either_side() -> None:
    base = np.arange(10, 20, dtype=np.int32)
    more = np.concatenate(([1], base)).astype(np.int32)
    assert shift_between(more, base).startswith("ref has one extra token first (id 1")
    assert shift_between(base, more[:10]).startswith("cand has")
    assert shift_between(base, base + 50) == ""


def test_numbers_are_shown_as_ranges() -> None:
    assert span_text((0, 1, 2, 3, 7, 9, 10)) == "0-3,7,9-10"
    assert span_text(()) == ""
