"""Whose state a row is: distinct states by prefix, and the nearest of them by direction."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from hsparity.align.tokens import align_rows
from hsparity.capture.read import open_source
from hsparity.capture.source import Source
from hsparity.query import Query
from hsparity.solve import owners
from hsparity.solve.dictionary import Entry
from hsparity.solve.forms import site
from hsparity.solve.owners import ELSEWHERE, RIGHT, UNDECIDED, Finder, OwnerMap, library
from tests.causes.streams import Capture, Toy

TOY = Toy(layers=2, width=64)
KEY = "boundary.001"
IDS = {"p0": [1, 2, 3, 4, 5, 6], "p1": [1, 2, 3, 9, 9, 9], "p2": [7, 2, 3, 4, 5, 6]}


def state(prefix: Sequence[int], noise: int = 0) -> np.ndarray:
    """One row for every prefix of token ids: what came before counts, as in a real model."""
    row = np.random.default_rng([len(prefix), *prefix]).standard_normal(TOY.width)
    return row + 0.004 * np.random.default_rng([noise, *prefix]).standard_normal(TOY.width) if noise else row


def prefixes(ids: dict[str, list[int]], noise: int = 0) -> Capture:
    states = {p: {KEY: np.stack([state(t[: i + 1], noise) for i in range(len(t))])} for p, t in ids.items()}
    return Capture(states, ids, toy=TOY)


def opened(made: Capture, folder: Path) -> Source:
    return open_source(made.write(folder))


def mapped(ref: Source, cand: Source, sampled: bool = False) -> OwnerMap:
    rows = align_rows(ref, cand, [], Query())
    finder = Finder(ref, cand, rows.prompts, np.zeros(0, np.int64))
    (found,) = finder.find(KEY, site(KEY), [Entry("", 1, site(KEY), "boundary 1")], sampled)
    return found


def permuted(made: Capture, orders: dict[str, list[tuple[str, int]]]) -> Capture:
    """Row i of a prompt replaced by the row `(prompt, row)`."""
    states = dict(made.states)
    for prompt, order in orders.items():
        states[prompt] = {KEY: np.stack([made.states[p][KEY][i] for p, i in order])}
    return replace(made, states=states)


def test_a_shared_prefix_is_one_state(tmp_path: Path) -> None:
    """Three tokens begin two prompts: 15 states of 18 rows; equal tokens after other ones are other states."""
    found = library(opened(prefixes(IDS), tmp_path / "ref"))
    assert len(found.prompt_s) == 15
    assert found.states[0][:3].tolist() == found.states[1][:3].tolist()
    assert set(found.states[0][3:]).isdisjoint(found.states[1][3:])
    assert set(found.states[0]).isdisjoint(found.states[2])
    assert len(set(found.states[1][3:].tolist())) == 3


def test_a_row_that_is_not_held_is_no_state(tmp_path: Path) -> None:
    """-1, unless another prompt holds the same prefix."""
    made = replace(prefixes(IDS), positions={"p0": [0, 1, 2, 3], "p1": [3, 4, 5]})
    found = library(opened(made, tmp_path / "ref"))
    assert found.states[0].tolist()[4:] == [-1, -1]
    assert found.states[1].tolist()[:3] == found.states[0].tolist()[:3]
    late = replace(prefixes(IDS), positions={"p0": [3, 4, 5], "p1": [0, 1, 2, 3, 4, 5]})
    assert library(opened(late, tmp_path / "late")).states[0].tolist()[:3] == [-1, -1, -1]


def test_states_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No more than the limit, whose cost is its square."""
    monkeypatch.setattr(owners, "MOST_ROWS", 5)
    assert len(library(opened(prefixes(IDS), tmp_path / "ref")).prompt_s) == 5


def test_rows_in_place_are_right(tmp_path: Path) -> None:
    """Another engine's rounding leaves every row its own, and plainly."""
    found = mapped(opened(prefixes(IDS), tmp_path / "ref"), opened(prefixes(IDS, 7), tmp_path / "cand"))
    assert (found.verdict_m == RIGHT).all()
    assert found.clarity < 0.05


def test_moved_rows_are_found_where_they_came_from(tmp_path: Path) -> None:
    """Swaps within a prompt and across prompts; the others stay right."""
    cand = permuted(
        prefixes(IDS, 7),
        {"p0": [("p0", i) for i in (0, 1, 2, 4, 3, 5)], "p2": [*(("p2", i) for i in range(5)), ("p1", 5)]},
    )
    found = mapped(opened(prefixes(IDS), tmp_path / "ref"), opened(cand, tmp_path / "cand"))
    away = np.flatnonzero(found.verdict_m == ELSEWHERE)
    lib = found.library
    place = {
        (int(found.prompt_m[m]), int(found.position_m[m])): (
            int(lib.prompt_s[found.nearest_m[m]]),
            int(lib.position_s[found.nearest_m[m]]),
        )
        for m in away
    }
    assert place == {(0, 3): (0, 4), (0, 4): (0, 3), (2, 5): (1, 5)}
    assert (np.delete(found.verdict_m, away) == RIGHT).all()


def test_a_row_between_two_states_is_undecided(tmp_path: Path) -> None:
    """Neither right nor elsewhere: as near to one as to the other."""
    made = prefixes(IDS, 7)
    rows = made.states["p0"][KEY].copy()
    rows[5] = rows[4] + made.states["p2"][KEY][4]
    cand = replace(made, states={**made.states, "p0": {KEY: rows}})
    found = mapped(opened(prefixes(IDS), tmp_path / "ref"), opened(cand, tmp_path / "cand"))
    assert found.verdict_m[5] == UNDECIDED
    assert (np.delete(found.verdict_m, 5) == RIGHT).all()


def test_a_row_that_points_at_another_is_not_that_row(tmp_path: Path) -> None:
    """A wrong update can bring a row near another state; a row that was moved reaches it as rows do."""
    made = prefixes(IDS, 7)
    rows = made.states["p0"][KEY].copy()
    other = made.states["p2"][KEY][4]
    stray = np.random.default_rng(1).standard_normal(TOY.width)
    rows[5] = other + 0.15 * stray
    cand = replace(made, states={**made.states, "p0": {KEY: rows}})
    found = mapped(opened(prefixes(IDS), tmp_path / "ref"), opened(cand, tmp_path / "cand"))
    assert found.error_m[5] < 0.5 * found.rival_error_m[5]
    assert found.verdict_m[5] == UNDECIDED


@pytest.mark.parametrize("value", [0.0, np.nan, np.inf])
def test_rows_without_a_direction_are_undecided(tmp_path: Path, value: float) -> None:
    """Zeros and rows that are not finite are nobody's, and do no harm to the rest."""
    made = prefixes(IDS, 7)
    rows = made.states["p1"][KEY].copy()
    rows[4] = value
    cand = replace(made, states={**made.states, "p1": {KEY: rows}})
    found = mapped(opened(prefixes(IDS), tmp_path / "ref"), opened(cand, tmp_path / "cand"))
    assert found.verdict_m[10] == UNDECIDED
    assert (np.delete(found.verdict_m, 10) == RIGHT).all()


def test_a_sample_is_spread_over_the_prompts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At most as many rows as wanted, evenly over all prompts laid end to end."""
    monkeypatch.setattr(owners, "SAMPLED", 6)
    ref, cand = opened(prefixes(IDS), tmp_path / "ref"), opened(prefixes(IDS, 7), tmp_path / "cand")
    found = mapped(ref, cand, sampled=True)
    assert len(found.prompt_m) == 6
    assert found.prompt_m.tolist() == [0, 0, 1, 1, 2, 2]
    assert found.position_m.tolist() == [0, 3, 0, 3, 0, 3]
    assert len(mapped(ref, cand).prompt_m) == 18
