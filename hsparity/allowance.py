"""What an engine's own floor allows beside the yardstick: only the rows that it measured, and no more than rounding."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hsparity.pairing import SitePair
from hsparity.table import TokenTable
from hsparity.yardstick import EXPECTED, PLAUSIBLE, Roles

# Rows that each kind of an engine's own floor speaks for, by phase: 0 prefill, 1 decode, 2 not the same on both sides.
COVERS = {"prefill-decode": (2,), "batch": (0, 1, 2), "chunked": (0, 2)}
ROWS = {
    "prefill-decode": "decode against prefill rows",
    "batch": "rows of another batch",
    "chunked": "chunked rows",
}

Vector = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Allowance:
    """How much more than the yardstick the rows of a pair may differ by, because its engine does so by itself."""

    table: TokenTable
    pairs: Sequence[SitePair]
    roles: Roles
    resolution: float

    @property
    def kind(self) -> str:
        return self.roles.wider[0].kind if self.roles.wider else self.roles.own

    @property
    def speaks(self) -> bool:
        """Whether anything but a repeat is there."""
        return self.kind in COVERS

    @property
    def scales_yardstick(self) -> bool:
        """Whether the own floor is the yardstick itself: both are then taken in units of it, phase by phase."""
        return not self.roles.wider and self.speaks

    def rounding(self, site: int, times: float = PLAUSIBLE) -> float:
        """The largest median error that rounding explains at a site: `times` sqrt(r + 1) half-ulps at boundary r (see
        `yardstick.check_plausible`); at another site, as many as at the last boundary."""
        known = [p.boundary for p in self.pairs if p.boundary is not None]
        number = self.pairs[site].boundary
        at = number if number is not None else max(known, default=0)
        return times * self.resolution * math.sqrt(at + 1)

    def excess(self, site: int) -> tuple[float, float]:
        """Without a reference: the largest median over a phase of what the engine differs by from itself, and how much
        of that may pass for rounding. A repeat changed nothing, so it may be as large as rounding can be; what a
        changed setting does is held to what rounding is: it may be the very fault that is looked for."""
        own_n = self.table.read(site, "e0").astype(np.float64)
        phase_n = self.table.read(site, "phase")
        parts = [own_n[(phase_n == phase) & np.isfinite(own_n)] for phase in COVERS.get(self.kind, (0, 1, 2))]
        size = max((float(np.median(part)) for part in parts if len(part)), default=0.0)
        return size, self.rounding(site, EXPECTED if self.speaks else PLAUSIBLE)

    def factors(self, site: int, suffix: str, pair_floor: Vector) -> Vector:
        """What each row of the pair is divided by, [N]; 1 where nothing is allowed.

        Per phase, so that decode rows excuse no prefill row: the median of the own floor over the median of `pair_floor`
        [N], what the pair is held to without it. An own floor that rounding does not explain allows nothing.
        """
        own_n = self.table.read(site, ("own" if self.roles.wider else "e0") + suffix).astype(np.float64)
        factor_n = np.ones(len(own_n))
        most = self.rounding(site)
        phase_n = self.table.read(site, "phase")
        for phase in COVERS.get(self.kind, ()):
            rows = (phase_n == phase) & np.isfinite(own_n) & np.isfinite(pair_floor)
            if not rows.any():
                continue
            size, held = float(np.median(own_n[rows])), float(np.median(pair_floor[rows]))
            if held < size <= most:
                factor_n[phase_n == phase] = size / held
        return factor_n
