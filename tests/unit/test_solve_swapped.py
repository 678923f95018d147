"""Large errors swap near-duplicate states; rows that were moved are still told from those."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from hsparity.align.tokens import align_rows
from hsparity.capture.read import open_source
from hsparity.capture.source import Source
from hsparity.query import Query
from hsparity.solve.dictionary import Entry
from hsparity.solve.forms import site
from hsparity.solve.owners import ELSEWHERE, Finder, OwnerMap
from tests.causes.streams import Capture, Toy

TOY = Toy(layers=2, width=64)
KEY = "boundary.001"
PROMPTS, LENGTH, TOKENS = 4, 60, 5
APART = 0.25  # of a state's length: how far the context takes one token's states from each other
STRAYED = tuple(range(3, PROMPTS * LENGTH, 8))  # rows with an error as large as that, in any direction
SWAPPED = (21, 77, 140)  # rows whose error takes them most of the way to another state of their token


def reference() -> tuple[np.ndarray, np.ndarray]:
    """Token ids and states of few tokens in many contexts, as a text of letters makes them."""
    rng = np.random.default_rng(4)
    ids = rng.integers(0, TOKENS, PROMPTS * LENGTH)
    tokens, contexts = rng.standard_normal((TOKENS, TOY.width)), rng.standard_normal((len(ids), TOY.width))
    return ids, tokens[ids] + APART * contexts


def damaged(ids: np.ndarray, states: np.ndarray, large: bool) -> np.ndarray:
    """The states with an error; with `large`, some go astray, and a few of those land near a near-duplicate."""
    rng = np.random.default_rng(5)
    rows = states + 0.02 * rng.standard_normal(states.shape)
    if large:
        rows[list(STRAYED)] += APART * rng.standard_normal((len(STRAYED), TOY.width))
        for row in SWAPPED:
            twin = np.flatnonzero(ids == ids[row])[[0, -1]][int(row > 100)]
            rows[row] += 0.85 * (states[twin] - states[row])
    return rows


def mapped(folder: Path, ids: np.ndarray, states: np.ndarray, rows: np.ndarray) -> OwnerMap:
    def opened(name: str, held: np.ndarray) -> Source:
        parts = {f"p{i}": {KEY: part} for i, part in enumerate(np.split(held, PROMPTS))}
        tokens = {f"p{i}": part.tolist() for i, part in enumerate(np.split(ids, PROMPTS))}
        return open_source(Capture(parts, tokens, toy=TOY).write(folder / name))

    ref, cand = opened("ref", states), opened("cand", rows)
    finder = Finder(ref, cand, align_rows(ref, cand, [], Query()).prompts, np.zeros(0, np.int64))
    (found,) = finder.find(KEY, site(KEY), [Entry("", 1, site(KEY), "boundary 1")])
    return found


def elsewhere(found: OwnerMap) -> list[int]:
    return np.flatnonzero(found.verdict_m == ELSEWHERE).tolist()


def test_near_duplicates_that_large_errors_swap_are_not_elsewhere(tmp_path: Path) -> None:
    """Plainly nearer to another state, as near as rows come to theirs: and rows in place err as far."""
    ids, states = reference()
    found = mapped(tmp_path, ids, states, damaged(ids, states, large=True))
    swapped = list(SWAPPED)
    assert (found.nearest_m[swapped] != found.claimed_m[swapped]).all()
    assert (found.error_m[swapped] < 0.5 * found.claimed_error_m[swapped]).all()
    assert (found.error_m[swapped] < 0.5 * found.rival_error_m[swapped]).all()
    assert elsewhere(found) == []


def test_two_rows_exchanged_under_small_errors_are_elsewhere(tmp_path: Path) -> None:
    """Two near-duplicates exchanged are found where no row in place errs as far as they lie apart."""
    ids, states = reference()
    one, other = np.flatnonzero(ids == ids[0])[[1, 2]].tolist()
    rows = damaged(ids, states, large=False)
    rows[[one, other]] = rows[[other, one]]
    assert elsewhere(mapped(tmp_path, ids, states, rows)) == [one, other]


@pytest.mark.parametrize("how", ["block", "repeated", "pairs"])
def test_rows_moved_in_a_body_are_elsewhere_under_large_errors(tmp_path: Path, how: str) -> None:
    """A run exchanged with the next, one state repeated, rows exchanged in pairs: to other tokens, together."""
    ids, states = reference()
    rows, order = damaged(ids, states, large=True), np.arange(len(ids))
    if how == "block":
        order[64:80] = [*range(72, 80), *range(64, 72)]
    elif how == "repeated":
        order[65:76] = 65
    else:
        order[60:120] ^= 1
    found = elsewhere(mapped(tmp_path, ids, states, rows[order]))
    moved = {m for m in range(len(ids)) if ids[order[m]] != ids[m] and order[m] not in (*STRAYED, *SWAPPED)}
    assert moved <= set(found)
    assert {m for m in found if order[m] == m} == set()
