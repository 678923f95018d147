"""Is the candidate the reference times a constant, for all rows or for sets of rows?"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .arrays import Rows, float_rows, middle, row_errors, spread

# Truncated rounding loses 0.27% a step and healthy engines differ by up to 0.3%: neither is a gain.
LEAST_GAIN = 0.03
SETS = 4
GAP = 0.03  # of log |gain|: narrower gaps do not separate sets of rows
APART = 8.0  # a gap over the spread of the sets at its sides
TOLERANCE = 0.004
PARALLEL = (2, 4, 8, 16)


@dataclass(frozen=True, slots=True, eq=False)
class GainSet:
    """Rows that share one gain."""

    value: float
    spread: float
    rows: NDArray[np.int64]  # ascending


@dataclass(frozen=True, slots=True, eq=False)
class Gain:
    """Per row <c, r> / <r, r>. Errors are medians over tokens of relative row errors."""

    gain_n: NDArray[np.float32]
    value: float  # median over rows
    spread: float
    sets: tuple[GainSet, ...]  # by size; one when the gain is one constant, none when it has no clear sets
    error_before: float
    error_after: float  # with each row's set gain undone

    @property
    def constant(self) -> bool:
        """Whether one constant other than 1 explains all rows."""
        return len(self.sets) == 1 and abs(math.log(abs(self.sets[0].value) or 1e-30)) >= LEAST_GAIN

    @property
    def by_rows(self) -> bool:
        """Whether sets of rows have different constants."""
        return len(self.sets) > 1


def find_gain(ref_nh: Rows, cand_nh: Rows) -> Gain:
    """The factor on each row, and the sets of rows that share one.

    Sets are told apart by gaps in log |gain| of at least 3% and 8 times the spread at either side; more than
    four sets, or a set of one row in over 20, is no set: `sets` is then empty unless the gain is one constant.
    """
    ref, cand = float_rows(ref_nh), float_rows(cand_nh)
    dot = (cand.double() * ref.double()).sum(1)
    gain = dot / ref.double().pow(2).sum(1).clamp_min(1e-60)
    sets = row_sets(gain.numpy())
    undone = np.full(len(gain), middle(gain))
    for one in sets:
        undone[one.rows] = one.value
    before = middle(row_errors(ref, cand))
    after = middle(row_errors(ref * float_rows(undone)[:, None], cand))
    return Gain(gain.float().numpy(), middle(gain), spread(gain), sets, before, after)


def row_sets(gain_n: NDArray[np.float64]) -> tuple[GainSet, ...]:
    """Sets of rows that share one gain, by size; empty when the gains have no clear sets."""
    usable = np.flatnonzero(np.isfinite(gain_n) & (gain_n != 0))
    if not len(usable):
        return ()
    signed = np.sign(gain_n[usable])
    size = np.log(np.abs(gain_n[usable]))
    order = np.lexsort((size, signed))
    usable, signed, size = usable[order], signed[order], size[order]
    cuts = np.flatnonzero((np.diff(size) > GAP) | (np.diff(signed) != 0)) + 1
    groups = [usable[part] for part in np.split(np.arange(len(usable)), cuts)]
    least = 1 if len(usable) <= 20 else 2
    kept = [g for g in groups if len(g) >= least]
    if not kept or len(kept) > SETS or sum(map(len, kept)) < 0.98 * len(usable):
        return ()
    sets = [_set(gain_n, np.sort(g)) for g in sorted(kept, key=len, reverse=True)]
    return tuple(sets) if _separate(sets) else ()


def _set(gain_n: NDArray[np.float64], rows: NDArray[np.int64]) -> GainSet:
    values = float_rows(gain_n[rows])
    return GainSet(float(np.median(gain_n[rows])), spread(values), rows)


def _separate(sets: list[GainSet]) -> bool:
    if len(sets) == 1:
        return sets[0].spread <= GAP * abs(sets[0].value)
    ordered = sorted(sets, key=lambda s: s.value)
    return all(b.value - a.value >= APART * max(a.spread, b.spread) for a, b in pairwise(ordered))


def name_gain(
    value: float, hidden_size: int, config: Mapping[str, Any], spread: float = TOLERANCE, rows: int = 1
) -> list[str]:
    """What a constant of this size is known as, closest first: rank counts, sqrt(H), multipliers of `config`.

    `spread`: relative spread of the measured gain over `rows` rows; a name fits within three standard errors,
    at least 0.4% and at most 2%.
    """
    allowed = min(0.02, max(TOLERANCE, 3 * spread / math.sqrt(max(rows, 1))))
    fitting = []
    for text, known in _known(hidden_size, config):
        off = abs(value / known - 1)
        if known > 0 and off <= allowed:
            fitting.append((off, text))
    return [text for _, text in sorted(fitting, key=lambda f: f[0])]


def _known(hidden_size: int, config: Mapping[str, Any]) -> list[tuple[str, float]]:
    known = []
    for ranks in PARALLEL:
        known += [(f"{ranks} (double reduce over {ranks} ranks)", float(ranks))]
        known += [(f"1/{ranks} (one of {ranks} ranks, or a mean over them)", 1 / ranks)]
    root = math.sqrt(hidden_size)
    known += [("sqrt(hidden_size), the embedding multiplier", root), ("1/sqrt(hidden_size)", 1 / root)]
    flat = {**config, **(config.get("text_config") or {})}
    for key, found in flat.items():
        if isinstance(found, int | float) and not isinstance(found, bool) and key.endswith(_FACTORS):
            size = float(found)
            if size > 0 and abs(size - 1) > 2 * TOLERANCE:
                known += [(f"{key} = {found}", size), (f"1/{key}, {key} = {found}", 1 / size)]
    return known


_FACTORS = ("scaling_factor", "multiplier", "logits_scaling", "logit_scale", "scale_emb", "scale_depth")
