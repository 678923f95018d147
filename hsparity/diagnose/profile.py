"""The error of the accused side over depth: where it leaves the floor, and what it is at the tokens that a cause
would spare."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hsparity.diagnose.tokens import Tokens, tokens_of
from hsparity.evidence import Evidence
from hsparity.model import Ratio, Verdict

MOST_TOKENS = 32768  # of a comparison that the diagnosis looks at, evenly spread
TAIL = 0.95

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Profile:
    """Errors of one side over its yardstick at K boundaries and N tokens."""

    side: str  # "ref", "cand": own error to fp32; "pair": the difference of the two
    boundaries: tuple[int, ...]  # [K], ascending
    error_kn: Matrix
    yard_kn: Matrix
    pair_kn: Matrix  # difference of the two sides over the reference's norm
    apart_kn: NDArray[np.bool_]  # tokens whose states on the two sides are not equal in every bit
    ratios: tuple[Ratio, ...]  # [K], of all channels
    tokens: Tokens
    limit: float

    def ratio(self, k: int, chosen: NDArray[np.bool_] | None = None) -> float:
        """Median error over median yardstick at boundary number k, of all tokens or the chosen ones."""
        error, yard = self.error_kn[k], self.yard_kn[k]
        if chosen is not None:
            error, yard = error[chosen], yard[chosen]
        known = np.isfinite(error) & np.isfinite(yard)
        return float(np.median(error[known]) / np.median(yard[known])) if known.any() else float("nan")

    def beyond_n(self, k: int) -> NDArray[np.bool_]:
        """Tokens in the tail: their error exceeds limit x the yardstick's 95th percentile, [N]."""
        with np.errstate(invalid="ignore"):
            found: NDArray[np.bool_] = self.error_kn[k] > self.limit * np.nanquantile(self.yard_kn[k], TAIL)
        return found

    @property
    def onset(self) -> int | None:
        """Number (0..K-1) of the first boundary that is beyond the floor, held against all boundaries at once."""
        return next((k for k, r in enumerate(self.ratios) if r.verdict is Verdict.DIVERGED), None)

    @property
    def bulk(self) -> int | None:
        """Number of the first boundary whose median is beyond the floor; None where few tokens carry the error."""
        found = (k for k, r in enumerate(self.ratios) if r.verdict is Verdict.DIVERGED and r.low > r.limit)
        return next(found, None)


def accused(evidence: Evidence) -> str:
    """Whose error is beyond the floor: "ref", "cand", "both", or "pair" when no fp32 says; "" when nobody's is."""
    sites = [d for d in evidence.deltas if d.requested and d.verdict is Verdict.DIVERGED]
    own = {
        r.of.split()[0]
        for d in sites
        for r in d.ratios
        if r.verdict is Verdict.DIVERGED and r.of[:4] != "pair"
    }
    if len(own) == 1:
        return own.pop()
    return "both" if own else "pair" if sites else ""


def profile_of(evidence: Evidence, side: str) -> Profile | None:
    """The profile of one side, or of the pair; None without a floor or without boundaries."""
    judge = evidence.judge
    places = sorted((p.boundary, k) for k, p in enumerate(evidence.pairs) if p.boundary is not None)
    if not evidence.has_floor or not places or not evidence.rows.tokens:
        return None
    chosen = _spread(evidence.rows.tokens)
    column = {"ref": "ref_error", "cand": "cand_error", "pair": "rel_l2"}[side]
    scale = judge.scale if side == "pair" else 1.0
    error = np.stack([judge.table.read(k, column)[chosen].astype(np.float64) / scale for _, k in places])
    yard = np.stack([judge.yard(k)[chosen] for _, k in places])
    if not np.isfinite(error).any():
        return None
    pair = np.stack([judge.table.read(k, "rel_l2")[chosen].astype(np.float64) for _, k in places])
    apart = np.stack([judge.table.read(k, "equal")[chosen] != 1 for _, k in places])
    ratios = [_ratio(evidence.deltas[k].ratios, side) for _, k in places]
    kept = [i for i, r in enumerate(ratios) if r is not None]
    return Profile(
        side,
        tuple(int(places[i][0] or 0) for i in kept),
        error[kept],
        yard[kept],
        pair[kept],
        apart[kept],
        tuple(r for r in ratios if r is not None),
        tokens_of(evidence.rows.prompts, evidence.ref, evidence.cand).taken(chosen),
        judge.terms.limit,
    )


def _ratio(ratios: Sequence[Ratio], side: str) -> Ratio | None:
    """The side's ratio; with massive channels left out where only that one is beyond."""
    found = {r.of: r for r in ratios}
    whole, rest = found.get(side), found.get(f"{side} rest")
    if whole is not None and rest is not None and whole.verdict is not Verdict.DIVERGED:
        return rest if rest.verdict is Verdict.DIVERGED else whole
    return whole


def _spread(count: int) -> NDArray[np.int64]:
    step = -(-count // MOST_TOKENS)
    return np.arange(0, count, step, dtype=np.int64)
