"""Squared distances per token between two captures, at the boundaries that stand for the whole stack."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from hsprobe.schema import Site

from ..align.tokens import RowAlignment, align_rows
from ..capture.source import Source
from ..errors import HsparityError
from ..model import Comparison
from ..query import Query
from ..yardstick import assign

NONE: Mapping[str, Mapping[str, str]] = {}
BOUNDARIES = 8  # at most, evenly spaced, the last one among them
ROWS = 2048

Vector = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Place:
    """One boundary as each side calls it."""

    boundary: int | None  # None: a slot that the data did not place
    ref: str
    cand: str


def places(comparison: Comparison) -> tuple[Place, ...]:
    """The boundaries to measure at: sites that both sides hold, the embeddings and the final norm left out."""
    landed = {s.cand: s.best for s in comparison.alignment.slots if s.side.startswith("cand")}
    found = []
    for delta in comparison.deltas:
        site = Site.parse(delta.ref)
        if not delta.tokens or site.kind not in ("boundary", "slot"):
            continue
        number = site.index if site.kind == "boundary" else landed.get(delta.cand)
        if number != 0:
            found.append(Place(number, delta.ref, delta.cand))
    # Slots are what an engine hands over; where hooks read the same boundaries, those say it without aliasing.
    found = [p for p in found if "slot." not in p.ref + p.cand] or found
    if len(found) <= BOUNDARIES:
        return tuple(found)
    chosen = np.unique(np.linspace(0, len(found) - 1, BOUNDARIES).round().astype(int))
    return tuple(found[i] for i in chosen)


def site_of(boundary: int, layers: int) -> str:
    """The site key of a boundary; layers + 1 stands for the final norm."""
    return Site("boundary", boundary).key if boundary <= layers else "final_norm"


class Bench:
    """The aligned tokens of a pair, N in all, and distances over them."""

    def __init__(self, ref: Source, cand: Source, chosen: Sequence[Place], tokens: str | None = None) -> None:
        self.ref, self.cand, self.places = ref, cand, tuple(chosen)
        self.query = Query(tokens=tokens)
        self.rows = align_rows(ref, cand, (), self.query)

    @property
    def lengths(self) -> list[int]:
        """Aligned tokens per prompt."""
        return [len(p.positions) for p in self.rows.prompts]

    def squared(self, left: Source, right: Source, renamed: Mapping[str, Mapping[str, str]] = NONE) -> Vector:
        """|left - right|^2 / |left|^2 per place and token, [places, N]. `left` holds the reference's sites, `right` the
        candidate's, or what `renamed` calls them by role; NaN where one of them lacks the token or the site."""
        refs, cands = renamed.get("ref", {}), renamed.get("cand", {})
        pairs = [(refs.get(p.ref, p.ref), cands.get(p.cand, p.cand)) for p in self.places]
        return self._measure(self._aligned((left, right)), (left, right), pairs)

    def moved(self, before: Source, after: Source, role: str, renamed: Mapping[str, str]) -> Vector:
        """|after - before|^2 / |before|^2 of one side, [places, N]."""
        own = [p.ref if role == "ref" else p.cand for p in self.places]
        pairs = [(key, renamed.get(key, key)) for key in own]
        return self._measure(self._aligned((before, after)), (before, after), pairs)

    def floor(self, floors: Sequence[Source]) -> Vector | None:
        """2 e0^2, what two independent bf16 errors make, [places, N]; None without the captures for it. Raises E211."""
        if not floors:
            return None
        sources = (self.ref, self.cand, *floors)
        roles = assign(self.ref, self.cand, floors)
        if roles.fp32 is None or roles.bf16 is None or any(p.boundary is None for p in self.places):
            return None
        pair = (sources[roles.fp32], sources[roles.bf16])
        last = pair[0].manifest.num_layers
        keys = [site_of(p.boundary, last) for p in self.places if p.boundary is not None]
        return 2.0 * self._measure(self._aligned(pair), pair, [(k, k) for k in keys])

    def _aligned(self, sources: Sequence[Source]) -> RowAlignment:
        """The same N tokens, with the rows of `sources` in place of the sides'."""
        try:
            found = align_rows(self.ref, self.cand, sources, self.query)
        except HsparityError as error:
            raise HsparityError(
                error.code, f"a variant does not align: {error.message}", error.notes
            ) from error
        prompts = [replace(p, rows=p.rows[2:], prompts=p.prompts[2:]) for p in found.prompts]
        return RowAlignment(prompts, found.mismatches, found.shared_tokens)

    def _measure(
        self, rows: RowAlignment, sources: Sequence[Source], keys: Sequence[tuple[str, str]]
    ) -> Vector:
        out = np.full((len(keys), rows.tokens), np.nan)
        for prompt in rows.prompts:
            both = np.flatnonzero((prompt.rows[0] >= 0) & (prompt.rows[1] >= 0))
            for start in range(0, len(both), ROWS):
                some = both[start : start + ROWS]
                for k, (left, right) in enumerate(keys):
                    named = ((sources[0], 0, left), (sources[1], 1, right))
                    if any(s.span(prompt.prompts[i], key) is None for s, i, key in named):
                        continue
                    x, y = (
                        s.rows(prompt.prompts[i], key, prompt.rows[i][some]).float() for s, i, key in named
                    )
                    norm = x.double().square().sum(1).numpy()
                    with np.errstate(divide="ignore", invalid="ignore"):
                        out[k, prompt.start + some] = (x - y).double().square().sum(1).numpy() / norm
        return out
