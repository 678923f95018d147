"""What a difference is measured against, and the judgement of one site by it (decision 8 of the
architecture).

Across engines or kernels the yardstick is e0: per boundary and token, the relative L2 error of Transformers
in bf16 to Transformers in fp32, that is, what bf16 arithmetic alone costs. The reference and the candidate
are each judged by their own error to fp32 against e0, the pair by its error over sqrt(2) (two independent
errors of size e0 lie sqrt(2) e0 apart). Expert flips hit other tokens in every engine, so distributions are
compared, never token with token:

* bulk: the ratio of medians, with a 95 % bootstrap interval for this site alone. Both distributions are about the
  same tokens, so they are drawn together (paired; whole prompts when there are eight or more, whose tokens are
  not independent). It accuses only when the ratio is above the limit at once over every site: `simultaneous`
  studentises the log ratio by the spread of its resamples and takes Student's t at 0.025 / (K sites x SETS sets
  of errors) with one degree of freedom less than there are clusters (Bonferroni: it needs no independence, and
  neighbouring boundaries have none). If no true ratio exceeds the limit, the probability that any of a
  comparison's sites is called DIVERGED by its bulk is 2.5 % at most, as far as t fits the log ratio; measured
  rates are in docs/floors.md. Above the limit with the 95 % interval but not over all sites: INCONCLUSIVE, as is an
  interval across the limit.
* tail: the share of tokens beyond limit x the 95th percentile of e0. Errors that are `limit` times e0 have 5
  % there; a pair has twice that, because a jump on either side is a jump of the pair. What 5 % may really be
  when the percentile comes from N tokens is the upper end of its Wilson interval; INCONCLUSIVE when the lower
  end of the share's own 95 % Wilson interval exceeds it, DIVERGED when it exceeds `limit` times it. That
  factor is what allows for the number of sites: errors that are exactly `limit` times e0 are accused by it with
  probability 2.6e-4 at 32 tokens, 4.9e-5 at 128 and 1e-6 at 512 (beta-binomial, the percentile being one of N
  tokens too), so over 62 sites with 1.6 %, 0.3 % and 0.01 %; smaller errors less.
* extremes: k tokens beyond limit x the largest e0. If both sets of N errors come from one distribution, the k
  largest of the 2N are all on one side with probability C(2N-k, N) / C(2N, N) < 2^-k, less still with the
  limit between. Over K sites p < 0.01 needs k >= log2(100 K): DIVERGED; p < 0.05 at one site (k = 5) is
  INCONCLUSIVE. Fewer happen: some tokens amplify whatever rounding they meet, other ones in every engine (on SmolLM2
  a healthy SGLang has one at 2.6 times the largest e0). If errors have a finite variance (a tail index of 2 or more)
  the largest of N exceeds c times the largest of another N with probability 1 / (1 + c^2) at most: below 5 % for
  c = FAR x limit = 4.5. A token beyond that, over its own e0 and over the third largest (one odd token of the floor
  excuses no other), is INCONCLUSIVE, and named; one whose error is as large as its state (>= 1) is not rounding at
  all: DIVERGED. Where e0 jumps in a model that routes tokens to experts (its third largest
  value is over five times its median at some boundary), a flip may hit any boundary first, so that value stands for
  all of them.

A side stored in bf16 that stands below e0 by more than the limit says that e0 is no floor but a fault of its own:
INCONCLUSIVE. So are two sides that both diverge from fp32 and agree with each other: then they share what sets them
apart (the same quantised weights), or the floor is of another model or another tensor.

Each test is made on all channels and again without the massive ones: neither can hide the other. e0 is never
taken below half a unit in the last place of the storage dtype.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from hsparity.model import LOST, Ratio, Verdict

LIMIT = 1.5
RESAMPLES = 500
CLUSTERS = 512
PROMPT_CLUSTERS = 8
FEWEST_TOKENS = 16
ACCUSING_TOKENS = (
    32  # healthy mixture-of-experts models stood beyond the floor on 15 to 19 tokens, on 21 and more never
)
SETS = 6  # of errors at a site: ref, cand and pair, on all channels and without the massive ones
ERROR_RATE = 0.025  # of a false accusation by the bulk, over all sites and sets of one comparison
TAIL = 0.05
HEAVY = 5.0
FAR = 3.0
SUSPICIOUS = 5
THIRD = 3
Z95 = 1.959964
SEED = 8  # the same result, the same bytes
NAMES = {"ref": "reference", "cand": "candidate", "pair": "pair"}

Vector = NDArray[np.float64]


@dataclass(slots=True, eq=False)
class Bootstrap:
    """Resampling weights over clusters of consecutive tokens, drawn once for all sites."""

    cluster_n: NDArray[np.int64]  # [N]
    weights: NDArray[np.float32]  # [RESAMPLES, clusters]
    _last: tuple[Vector, Vector] | None = None  # one yardstick serves several errors in a row

    @classmethod
    def over(cls, prompt_lengths: Sequence[int]) -> Bootstrap:
        """Clusters are prompts when there are enough of them, else tokens; at most 512 either way."""
        tokens = sum(prompt_lengths)
        if len(prompt_lengths) >= PROMPT_CLUSTERS:
            units = np.repeat(np.arange(len(prompt_lengths)), prompt_lengths)
        else:
            units = np.arange(tokens)
        count = int(units[-1]) + 1 if tokens else 0
        clusters = min(count, CLUSTERS)
        cluster_n = units * clusters // max(count, 1)
        draw = np.random.default_rng(SEED).multinomial(
            clusters, np.full(clusters, 1 / max(clusters, 1)), RESAMPLES
        )
        return cls(cluster_n, draw.astype(np.float32))

    def yard_medians(self, yard: Vector) -> Vector:
        """`medians`, kept for the next call with the same array."""
        if self._last is None or self._last[0] is not yard:
            self._last = (yard, self.medians(yard))
        return self._last[1]

    def medians(self, values: Vector) -> Vector:
        """The median of each resample, [RESAMPLES]; NaN are left out."""
        known = np.isfinite(values)
        values, cluster_n = values[known], self.cluster_n[known]
        clusters = self.weights.shape[1]
        # The resampled median stays near the middle: 65 thresholds within 4 standard errors are enough.
        reach = min(0.5, 2.0 / math.sqrt(clusters))
        marks = np.unique(np.quantile(values, np.linspace(0.5 - reach, 0.5 + reach, 65)))
        bins = len(marks) + 1
        place = np.searchsorted(marks, values, "left")
        counts = np.bincount(cluster_n * bins + place, minlength=clusters * bins).reshape(clusters, bins)
        below = self.weights @ counts.cumsum(1)[:, :-1].astype(np.float32)
        half = 0.5 * (self.weights @ counts.sum(1).astype(np.float32))
        at = np.clip((below < half[:, None]).sum(1), 0, len(marks) - 1)
        before = np.maximum(at - 1, 0)
        rows = np.arange(len(at))
        step = below[rows, at] - below[rows, before]
        share = np.where(step > 0, (half - below[rows, before]) / np.where(step > 0, step, 1), 1.0)
        result: Vector = marks[before] + np.clip(share, 0, 1) * (marks[at] - marks[before])
        return result


@dataclass(frozen=True, slots=True, eq=False)
class Errors:
    """One site's errors per token, [N] each; NaN where a capture lacks the token. `yard` is clamped
    already."""

    of: str  # "ref", "cand", "pair", with " rest" when massive channels are left out
    error: Vector
    yard: Vector


@dataclass(frozen=True, slots=True)
class Ceiling:
    """The yardstick error that the extremes of a site are held against, beside the site's own."""

    pooled: (
        float  # the third largest of the site where that is largest; used where the yardstick is heavy-tailed
    )
    heavy: bool

    def of(self, yard: Vector, limit: float) -> float:
        """The largest error of a site that is no extreme; NaN in `yard` are left out."""
        return limit * max(float(np.nanmax(yard)), self.pooled if self.heavy else 0.0)

    def third(self, yard: Vector) -> float:
        """The third largest yardstick error of a site (finite `yard`), or the pooled one."""
        return max(_third(yard), self.pooled if self.heavy else 0.0)


def _third(known: Vector) -> float:
    """One odd token says nothing of others; three do."""
    return float(np.sort(known)[-min(THIRD, len(known))])


def ceiling(yards: Sequence[Vector], routed: bool) -> Ceiling:
    """From the clamped yardstick of every site; pooled only for models that route tokens to experts."""
    heavy, pooled = False, 0.0
    if not routed:
        return Ceiling(pooled, heavy)
    for yard in yards:
        known = yard[np.isfinite(yard)]
        if len(known):
            top = _third(known)
            pooled = max(pooled, top)
            heavy = heavy or top > HEAVY * float(np.median(known))
    return Ceiling(pooled, heavy)


def beyond(errors: Errors, top: Ceiling, limit: float = LIMIT) -> NDArray[np.bool_]:
    """Which tokens are extremes, bool [N]."""
    with np.errstate(invalid="ignore"):
        result: NDArray[np.bool_] = errors.error > top.of(errors.yard, limit)
    return result


@dataclass(frozen=True, slots=True)
class Interval:
    """A ratio of medians and two intervals: 95 % for it alone, and the one that all of `tests` ratios lie in with
    95 %."""

    median: float
    low: float
    high: float
    low_all: float
    high_all: float


def simultaneous(errors: Errors, bootstrap: Bootstrap, tests: int) -> Interval:
    """The ratio of medians of errors over yardstick with its intervals; all ends equal the ratio when fewer than
    FEWEST_TOKENS tokens are known.

    The studentised bootstrap of the log ratio (Davison and Hinkley, Bootstrap Methods, 1997, section 5.2) with
    Bonferroni's level: 500 resamples hold no quantile at 0.025 / 372, but they do hold a standard error.
    """
    known, yard = errors.error[np.isfinite(errors.error)], errors.yard[np.isfinite(errors.yard)]
    median = float(np.median(known) / np.median(yard))
    if min(len(known), len(yard)) < FEWEST_TOKENS:
        return Interval(median, median, median, median, median)
    spread = bootstrap.medians(errors.error) / bootstrap.yard_medians(errors.yard)
    low, high = (float(q) for q in np.quantile(spread, (0.025, 0.975)))
    if not 0 < median < math.inf or not 0 < low <= high < math.inf:
        return Interval(median, low, high, min(low, median), max(high, median))
    logs = np.log(spread[(spread > 0) & np.isfinite(spread)])
    # The wider of two estimates: resamples of a median are lumpy.
    error = max(float(logs.std()), math.log(high / low) / (2 * Z95))
    reach = math.exp(student(ERROR_RATE / max(tests, 1), bootstrap.weights.shape[1] - 1) * error)
    return Interval(median, low, high, min(low, median / reach), max(high, median * reach))


def student(upper: float, degrees: int) -> float:
    """The quantile of Student's t that `upper` of it lies above; Cornish-Fisher to the third order in 1/degrees
    (Abramowitz and Stegun 26.7.5), within 1 % from 15 degrees on and 5 % from 7."""
    z, n = NormalDist().inv_cdf(1.0 - upper), max(degrees, 1)
    first = (z**3 + z) / 4
    second = (5 * z**5 + 16 * z**3 + 3 * z) / 96
    third = (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384
    return z + first / n + second / n**2 + third / n**3


def judge(
    errors: Errors, bootstrap: Bootstrap, top: Ceiling, sites: int, limit: float = LIMIT, sets: int = SETS
) -> Ratio:
    """One set of errors against its yardstick over N tokens of one of `sites` sites, each judged by `sets` sets.

    The record's interval is the 95 % one of this site alone; an accusation by the bulk took that of all sites.
    """
    known, yard = errors.error[np.isfinite(errors.error)], errors.yard[np.isfinite(errors.yard)]
    if not len(known) or not len(yard):
        nan = math.nan
        reason = "the floor's captures hold none of these tokens"
        return Ratio(errors.of, nan, nan, nan, limit, 0, nan, nan, Verdict.INCONCLUSIVE, reason)
    who = errors.of.split()[0]
    tokens = min(len(known), len(yard))
    found_at = simultaneous(errors, bootstrap, sites * sets)
    median, low, high = found_at.median, found_at.low, found_at.high
    largest = top.of(yard, limit)
    share = float((known > limit * np.quantile(yard, 0.95)).mean())
    found = _Tests(
        tokens=tokens,
        median=median,
        low=low,
        high=high,
        low_all=found_at.low_all,
        sites=sites,
        limit=limit,
        largest=largest,
        beyond=int(beyond(errors, top, limit).sum()),
        far=int((errors.error > FAR * limit * np.fmax(top.third(yard), errors.yard)).sum()),
        lost=int((known >= max(largest, LOST)).sum()),
        fewest=fewest_beyond(sites),
        share=share,
        share_low=wilson(share, len(known))[0],
        allowed=wilson(TAIL * (2 if who == "pair" else 1), len(yard))[1],
    )
    verdict, reason = found.word()
    reason = f"{NAMES[who]}: {reason}" + (
        " (massive channels left out)" if errors.of.endswith("rest") else ""
    )
    return Ratio(errors.of, median, low, high, limit, found.beyond, share, found.share_low, verdict, reason)


@dataclass(frozen=True, slots=True)
class _Tests:
    """The figures of the three tests."""

    tokens: int
    median: float
    low: float
    high: float
    low_all: float
    sites: int
    limit: float
    largest: float
    beyond: int
    far: int
    lost: int
    fewest: int
    share: float
    share_low: float
    allowed: float

    def word(self) -> tuple[Verdict, str]:
        """The verdict and its reason: the first test that speaks, accusations first."""
        enough = self.tokens >= FEWEST_TOKENS
        bulk = f"{self.median:.2g}× the floor (95 % {self.low:.2g} to {self.high:.2g})"
        tail = f"{self.share:.0%} of tokens beyond {self.limit:g}× the floor's 95th percentile"
        extremes = f"{tokens_of(self.beyond)} beyond {self.largest:.2g}, {self.limit:g}× the floor's largest"
        far = f"{tokens_of(self.far)} beyond {FAR * self.largest:.2g}, {FAR * self.limit:g}× the floor's largest"
        doubtful = (
            f"{bulk}: above the limit {self.limit:g} here, but {self.low_all:.2g} over all {self.sites} sites is not; "
            "more prompts settle it"
        )
        crosses = f"{bulk}: the interval crosses the limit {self.limit:g}; more prompts settle it"
        few = f"{tokens_of(self.tokens)} are too few for an interval: {FEWEST_TOKENS} are needed"
        sure = self.tokens >= ACCUSING_TOKENS
        beyond = Verdict.DIVERGED if sure else Verdict.INCONCLUSIVE
        doubt = (
            "" if sure else f"; {tokens_of(self.tokens)} are too few to accuse: {ACCUSING_TOKENS} are needed"
        )
        tests = (
            (enough and self.low_all > self.limit, beyond, f"{bulk}, the limit is {self.limit:g}{doubt}"),
            (self.lost > 0, Verdict.DIVERGED, f"{tokens_of(self.lost)} off by as much as the state itself"),
            (not enough, Verdict.INCONCLUSIVE, few),
            (self.share_low > self.limit * self.allowed, beyond, f"{tail}{doubt}"),
            (self.beyond >= self.fewest, beyond, f"{extremes}{doubt}"),
            (self.low > self.limit, Verdict.INCONCLUSIVE, doubtful),
            (self.high > self.limit, Verdict.INCONCLUSIVE, crosses),
            (self.share_low > self.allowed, Verdict.INCONCLUSIVE, tail),
            (self.far > 0, Verdict.INCONCLUSIVE, far),
            (self.beyond >= SUSPICIOUS, Verdict.INCONCLUSIVE, extremes),
        )
        return next(((v, reason) for holds, v, reason in tests if holds), (Verdict.PARITY, bulk))


def tokens_of(count: int) -> str:
    """`1 token`, `2 tokens`."""
    return f"{count} token{'s' * (count != 1)}"


def fewest_beyond(sites: int) -> int:
    """Tokens beyond the floor's largest error that chance does not explain: 2^-k x sites < 0.01."""
    return math.ceil(math.log2(100 * max(sites, 1)))


def wilson(share: float, count: int, z: float = Z95) -> tuple[float, float]:
    """The 95 % Wilson interval of a share of `count`."""
    centre = share + z * z / (2 * count)
    spread = z * math.sqrt(share * (1 - share) / count + z * z / (4 * count * count))
    whole = 1 + z * z / count
    return max(0.0, (centre - spread) / whole), min(1.0, (centre + spread) / whole)
