"""What the layer-by-layer map shows: boundaries against boundaries, slots apart."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ..model import Alignment, Comparison, Side
from . import view


def boundary_pairs(comparison: Comparison) -> Alignment:
    """The alignment with its error matrix over boundaries alone; a side that holds only slots keeps them.

    A slot's column carries the number it was claimed or found to be; it stands behind the boundaries.
    """
    a = comparison.alignment
    ref = _boundary_axis(a.ref_boundaries, comparison.ref)
    cand = _boundary_axis(a.cand_boundaries, comparison.cand)
    return replace(
        a,
        ref_boundaries=tuple(a.ref_boundaries[i] for i in ref),
        cand_boundaries=tuple(a.cand_boundaries[i] for i in cand),
        pair_error_kk=a.pair_error_kk[np.ix_(ref, cand)],
    )


def fitting(alignment: Alignment, offset: int) -> tuple[int, int]:
    """(how many candidate boundaries fit the reference boundary `offset` above best, how many have such a one)."""
    rows = {b: i for i, b in enumerate(alignment.ref_boundaries)}
    errors = np.where(np.isnan(alignment.pair_error_kk), np.inf, alignment.pair_error_kk)
    asked = [(j, rows[b + offset]) for j, b in enumerate(alignment.cand_boundaries) if b + offset in rows]
    return sum(bool(errors[i, j] <= errors[:, j].min()) for j, i in asked), len(asked)


def only_found(comparison: Comparison) -> bool:
    """Whether the candidate's columns are slots that nobody labelled: nothing is claimed about them."""
    return not any(view.boundary_of(s) is not None for s in comparison.cand.sites) and all(
        s.claimed is None for s in comparison.alignment.slots if s.side == "cand"
    )


def _boundary_axis(axis: tuple[int, ...], side: Side) -> list[int]:
    held = {b for s in side.sites if (b := view.boundary_of(s)) is not None}
    kept = [i for i, b in enumerate(axis) if b in held and axis.index(b) == i]
    return kept or list(range(len(axis)))
