"""What the causes look at: everything a comparison has learned, and a way to undo a cause on the captured
data."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from hsparity.align.tokens import RowAlignment
from hsparity.capture.source import Source
from hsparity.deltas import Judge
from hsparity.locate import Located
from hsparity.model import Alignment, SiteDelta, Verdict
from hsparity.pairing import Pairing, SitePair
from hsparity.query import Query
from hsparity.solve.absent import RowFault
from hsparity.solve.owners import OwnerMap
from hsparity.solve.solution import Solution
from hsparity.table import TokenTable

if TYPE_CHECKING:
    from hsparity.diagnose.diagnosis import Diagnosis
    from hsparity.replay.result import Replay

TOP = 0.99

Undo = Callable[[Sequence[SitePair]], TokenTable]


@dataclass(frozen=True, slots=True, eq=False)
class Undone:
    """The comparison with a cause undone: the pairs, and where the figures of the changed ones stand."""

    replaced: tuple[SitePair | None, ...]
    table: TokenTable
    places: dict[int, int]


@dataclass(slots=True, eq=False)
class Evidence:
    """What was learned on one alignment of the rows. Read-only to causes, but for `undone`, `shares` and
    `diagnosis`, which keep what was measured."""

    ref: Source
    cand: Source
    query: Query
    rows: RowAlignment
    pairing: Pairing
    pairs: tuple[SitePair, ...]
    deltas: tuple[SiteDelta, ...]  # of `pairs`, in the same order
    judge: Judge
    located: list[Located]
    alignment: Alignment
    undo: Undo
    solution: Solution
    left: tuple[SiteDelta, ...]  # what the solution's pairs show
    left_table: TokenTable | None = None  # their figures, of the pairs that the solution changed
    left_places: dict[int, int] = field(default_factory=dict)  # number of such a pair -> its place there
    floors: tuple[str, ...] = ()  # paths of the floor's captures
    owners: OwnerMap | None = None
    row_faults: tuple[RowFault, ...] = ()
    peeled: Evidence | None = None  # the same, with every row given back to its token
    undone: dict[str, Undone] = field(default_factory=dict)
    shares: dict[str, float | None] = field(default_factory=dict)  # code -> what `explain` answered
    sources: tuple[Source, ...] = ()  # ref, cand, then the floor's captures
    replay: Replay | None = None
    diagnosis: Diagnosis | None = None  # kept by diagnose.diagnosis

    @property
    def num_layers(self) -> int:
        return self.ref.manifest.num_layers

    @property
    def has_floor(self) -> bool:
        return self.judge.has_floor

    @property
    def slots(self) -> Evidence:
        """The evidence on rows that are their tokens' own: what slots are to be judged by."""
        return self.peeled or self

    def side(self, name: str) -> Source:
        return self.ref if name == "ref" else self.cand

    def diverged(self) -> list[SiteDelta]:
        """Requested sites whose numbers lie outside the floor as claimed."""
        return [d for d in self.deltas if d.requested and d.verdict is Verdict.DIVERGED]

    def rows_share(self) -> float | None:
        """Share of the excess that goes away when every row is given back to its token."""
        if self.peeled is None:
            return None
        places = {(p.ref, p.cand): i for i, p in enumerate(self.peeled.pairs)}
        before = after = 0.0
        for k, pair in enumerate(self.pairs):
            place = places.get((pair.ref, pair.cand))
            if pair.requested and place is not None:
                yard = self.peeled._yard(self.peeled.judge.table, place, pair)
                before += _positive(self.judge.table.read(k, "rel_l2"), yard)
                after += _positive(self.peeled.judge.table.read(place, "rel_l2"), yard)
        return min(1.0, max(0.0, 1.0 - after / before)) if before > 0 else None

    def explain(self, code: str, replaced: Sequence[SitePair | None]) -> float | None:
        """Share of the excess over requested sites and tokens that goes away when `pairs` become `replaced`.

        Excess is the positive log10 of error over the floor's 99th percentile at the site; without a floor,
        over that of the undone error itself. None in `replaced`: this site cannot be undone and is left out.
        Keeps the pass under `code`.
        """
        changed = [
            (k, pair) for k, pair in enumerate(replaced) if pair is not None and pair is not self.pairs[k]
        ]
        if not changed:
            return None
        # What the solver has undone already was measured then.
        if self.left_table is not None and all(pair is self.solution.pairs[k] for k, pair in changed):
            after, places = self.left_table, {k: self.left_places[k] for k, _ in changed}
        else:
            after, places = (
                self.undo([pair for _, pair in changed]),
                {k: i for i, (k, _) in enumerate(changed)},
            )
        self.undone[code] = Undone(tuple(replaced), after, places)
        before = gone = 0.0
        for k, pair in enumerate(self.pairs):
            if not pair.requested or replaced[k] is None:
                continue
            mine = replaced[k] or pair
            yard = (
                self._yard(after, places[k], mine) if k in places else self._yard(self.judge.table, k, mine)
            )
            was = _positive(self.judge.table.read(k, "rel_l2"), yard)
            before += was
            gone += was - _positive(after.read(places[k], "rel_l2"), yard) if k in places else 0.0
        share = min(1.0, max(0.0, gone / before)) if before > 0 else None
        self.shares[code] = share
        return share

    def _yard(self, table: TokenTable, place: int, pair: SitePair) -> float:
        yard = self.judge.noise(pair.boundary, quantile=TOP)
        errors = table.read(place, "rel_l2")
        known = errors[np.isfinite(errors)]
        return yard if self.has_floor or not len(known) else max(yard, float(np.quantile(known, TOP)))


def _positive(errors: NDArray[np.float32] | NDArray[np.float64], yard: float) -> float:
    """Mean over tokens of the positive log10 of error over yard."""
    with np.errstate(divide="ignore", invalid="ignore"):
        values = np.log10(errors.astype(np.float64) / yard)
    known = values[np.isfinite(errors)]
    return float(np.maximum(np.nan_to_num(known, neginf=0.0), 0.0).mean()) if len(known) else 0.0
