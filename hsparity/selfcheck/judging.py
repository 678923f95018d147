"""Deciding what a site holds: at the floor, and apart from every other explanation token by token."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hsparity.selfcheck.result import Claim, Fit, Verdict

LIMIT = (
    3.0  # x floor: three roundings; healthy captures of three engines measured 0.5 to 1.2 (docs/selfcheck.md)
)
ACCUSED = 4.0  # x floor: beyond it a claim is wrong although no other reading fits
APART = 1.5  # the runner-up's error over the winner's, or over the floor where that is larger
Z = 2.576  # 99 %
FEWEST = 12  # tokens; below, the 99 % interval of a median is open at one end

Key = tuple[str, str]  # site, reading


@dataclass(frozen=True, slots=True, eq=False)
class Errors:
    """One site read in one way, per token."""

    fit: Fit
    error_n: NDArray[np.float64]  # inf where the state or the log-probability is not finite
    coarse: float  # median floor under bf16 arithmetic: no smaller error is an accusation

    @property
    def fits(self) -> bool:
        return self.fit.error <= LIMIT * self.fit.floor

    @property
    def beyond(self) -> bool:
        """Whether even the low end of the median's 99 % interval lies beyond what bf16 explains."""
        count = len(self.error_n)
        rank = math.floor(count / 2 - Z * math.sqrt(count) / 2)
        explained = ACCUSED * float(
            np.nan_to_num(max(self.coarse, self.fit.floor))
        )  # NaN: nothing was finite
        return rank >= 0 and float(np.sort(self.error_n)[rank]) > explained


def wins(winner_n: NDArray[np.float64], other_n: NDArray[np.float64]) -> tuple[float, float]:
    """Share of tokens at which the winner's error is the smaller, and the low end of its 99 % Wilson interval.

    Tokens of equal error count half. Wilson, "Probable Inference", JASA 22 (1927).
    """
    count = len(winner_n)
    share = float((winner_n < other_n).mean() + (winner_n == other_n).mean() / 2) if count else 0.0
    spread = Z * math.sqrt(share * (1 - share) / count + Z**2 / (4 * count**2)) if count else math.inf
    return share, (share + Z**2 / (2 * count) - spread) / (1 + Z**2 / count) if count else 0.0


def margin(winner: Errors, other: Errors) -> float:
    """The other's error over the winner's, which counts as at least its floor."""
    below = max(winner.fit.error, winner.fit.floor)
    return other.fit.error / below if below > 0 else math.inf


def apart(winner: Errors, other: Errors) -> bool:
    """Whether the winner is better by more than chance and by more than the floor."""
    return wins(winner.error_n, other.error_n)[1] > 0.5 and margin(winner, other) >= APART


def same(one: Errors, other: Errors) -> bool:
    """Whether two readings say the same of the median token, within the floor."""
    with np.errstate(invalid="ignore"):
        return float(np.median(np.abs(one.error_n - other.error_n))) <= one.fit.floor


def judge(claimed: Key, rivals: list[Key], measured: Mapping[Key, Errors]) -> Claim:
    """The verdict on "this site holds this", against every rival explanation."""
    own = measured[claimed]
    ranked = sorted((measured[key] for key in rivals), key=lambda e: (e.fit.error, e.fit.site, e.fit.reading))
    best = ranked[0] if ranked else None
    fitting = next((e for e in ranked if e.fits), None)
    winner, other = (own, best) if own.fits or fitting is None else (fitting, own)
    verdict, found, reason = _verdict(own, best, fitting)
    return Claim(
        site=claimed[0],
        reading=claimed[1],
        verdict=verdict,
        reason=reason,
        claimed=own.fit,
        holds=found.fit.reading if found and found.fit.site == claimed[0] else "",
        lies_in=found.fit.site if found and found.fit.site != claimed[0] else "",
        runner_up=other.fit if other else None,
        margin=margin(winner, other) if other else math.nan,
        wins=wins(winner.error_n, other.error_n)[0] if other else math.nan,
    )


def _verdict(own: Errors, best: Errors | None, fitting: Errors | None) -> tuple[Verdict, Errors | None, str]:
    """The verdict, the explanation that was proved, and why."""
    count = len(own.error_n)
    if count < FEWEST:
        return Verdict.INCONCLUSIVE, None, f"{count} tokens are too few; {FEWEST} are the least"
    if own.fits:
        if best is None or apart(own, best):
            return Verdict.PASSED, own, f"{own.fit.ratio:.2g}x the floor"
        return Verdict.INCONCLUSIVE, None, f"{_named(best)} fits about as well"
    if fitting is not None:
        if apart(fitting, own):
            return Verdict.FAILED, fitting, f"{_named(fitting)} fits, {fitting.fit.ratio:.2g}x its floor"
        return Verdict.INCONCLUSIVE, None, f"{_named(fitting)} fits, but not plainly better than the claim"
    if own.beyond and math.isinf(own.fit.error):
        return Verdict.FAILED, None, "the states are not finite"
    if own.beyond:
        return Verdict.FAILED, None, f"{own.fit.ratio:.2g}x the floor, and no other reading fits"
    return (
        Verdict.INCONCLUSIVE,
        None,
        f"{own.fit.ratio:.2g}x the floor: more than rounding, too little to accuse",
    )


def _named(errors: Errors) -> str:
    return f"{errors.fit.site} as {errors.fit.reading}"
