"""Which rows were moved, and which large errors alone can have brought nearer to another state.

Three states of one site: the row, the state it was said to be (c away) and the nearest one (e away). By the triangle
inequality the two states lie at least c - e apart, and a row in place cannot be nearer to the other while its own
error is under half of that. Rows in place whose error reaches that far are rows that could have been taken for moved
ones: they are counted against the accused, threshold by threshold, as false discoveries are (Benjamini and Hochberg
1995; the rows in place are the decoys).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from hsparity.solve.owners import OwnerMap

FEWEST = 4  # rows that make a pattern: near-duplicates come in pairs, and two swapped rows are one pair

Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]


def moved(owners: OwnerMap, away_m: Flags) -> Flags:
    """Of the rows that are plainly nearer to another state [M], those that no error of rows in place explains."""
    together = _together(owners, away_m)
    # What moved in a body must not make room for single rows beside it.
    return together | _beyond(owners, away_m & ~together)


def _beyond(owners: OwnerMap, away_m: Flags) -> Flags:
    """The accused above the lowest half gap at which they outnumber the rows in place that err as far."""
    half = (owners.claimed_error_m - owners.error_m) / 2
    accused = np.sort(half[away_m])
    in_place = np.sort(owners.error_m[owners.nearest_m == owners.claimed_m])
    rivals = len(in_place) - np.searchsorted(in_place, accused)
    enough = np.flatnonzero(len(accused) - np.arange(len(accused)) > rivals)
    found: Flags = away_m & (half >= accused[enough[0]]) if len(enough) else np.zeros_like(away_m)
    return found


def _together(owners: OwnerMap, away_m: Flags) -> Flags:
    """Rows that moved in a body, most of them to other tokens: near-duplicates are one token in like contexts."""
    lib = owners.library
    other = lib.token_s[owners.nearest_m] != lib.token_s[owners.claimed_m]
    found = np.zeros(len(away_m), bool)
    for p in np.unique(owners.prompt_m[away_m]):
        mine = np.flatnonzero(owners.prompt_m == p)
        wrong = mine[away_m[mine]]
        for body in _bodies(owners, mine, wrong):
            if len(body) >= FEWEST and 2 * other[body].sum() > len(body):
                found[body] = True
    return found


def _bodies(owners: OwnerMap, mine: Ints, wrong: Ints) -> Iterator[Ints]:
    """All wrong rows of a prompt when they are most of it or a permutation; else each run that moved as one or
    repeats one state."""
    states = owners.nearest_m[wrong]
    if 2 * len(wrong) > len(mine) or set(states.tolist()) == set(owners.claimed_m[wrong].tolist()):
        yield wrong
        return
    lib = owners.library
    next_to = np.diff(owners.position_m[wrong]) == 1
    repeats = np.diff(states) == 0
    follows = (np.diff(lib.position_s[states]) == 1) & (np.diff(lib.prompt_s[states]) == 0)
    for alike in (repeats, follows):
        yield from np.split(wrong, np.flatnonzero(~(next_to & alike)) + 1)
