"""From the table of per-token figures to one `SiteDelta` per site, with its verdict."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from hsparity import registry
from hsparity.align.tokens import PromptRows
from hsparity.allowance import ROWS, Allowance
from hsparity.floor import LIMIT, Bootstrap, Ceiling, Errors, ceiling, judge, tokens_of
from hsparity.metrics.base import Metric
from hsparity.model import Floor, Quantiles, Ratio, SiteDelta, TokenRef, Verdict
from hsparity.pairing import SitePair
from hsparity.table import TokenTable
from hsparity.yardstick import OWN_WORDS, Roles

SINK = 10.0
OWN_SIZE = 0.5  # an error of half the state needs no statistics
CLOSER = 10.0  # times closer to each other than to fp32: the sides are one thing, the floor another
SQRT2 = math.sqrt(2.0)
ORDER = {Verdict.PARITY: 0, Verdict.INCONCLUSIVE: 1, Verdict.DIVERGED: 2, Verdict.MISSING: 2}

Vector = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Terms:
    """What sites are judged on."""

    roles: Roles
    same_run: bool  # both sides are one engine run twice: repeats may then accuse
    tol: float | None
    resolution: float
    limit: float = LIMIT
    stored_bf16: bool = False  # both sides hold bf16 states
    routed: bool = False  # tokens choose experts: an error may jump at any layer


def quantiles(values: Vector, metric: Metric | None = None) -> Quantiles:
    """Over the finite values; NaN throughout when there are none."""
    known = values[np.isfinite(values)].astype(np.float64)
    if not len(known):
        return Quantiles(*[math.nan] * 5)
    p05, p50, p95, p99 = (float(q) for q in np.quantile(known, (0.05, 0.5, 0.95, 0.99)))
    worst = known[np.argmax(metric.badness(known) if metric else known)]
    return Quantiles(p05, p50, p95, p99, float(worst))


class Judge:
    """Builds the deltas of one pass."""

    def __init__(
        self, table: TokenTable, pairs: Sequence[SitePair], prompts: Sequence[PromptRows], terms: Terms
    ) -> None:
        self.table, self.pairs, self.prompts, self.terms = table, pairs, prompts, terms
        self.bootstrap = Bootstrap.over([len(p.positions) for p in prompts])
        self.allowance = Allowance(table, pairs, terms.roles, terms.resolution)
        self.widened: dict[int, float] = {}  # site -> how much more than e0 some of its rows were allowed
        self.tops = {s: self._ceiling(s) for s in ("", "_rest")} if self.has_floor else {}

    def yard(self, site: int, suffix: str = "") -> Vector:
        """The yardstick per token, clamped at the resolution; NaN where the floor lacks the token."""
        values = self.table.read(site, "e0" + suffix).astype(np.float64)
        return np.maximum(values, self.terms.resolution)

    @property
    def has_floor(self) -> bool:
        return self.terms.roles.kind != "none"

    @property
    def scale(self) -> float:
        """The pair's error where both sides are at the floor, over the yardstick."""
        return SQRT2 if self.terms.roles.kind == "bf16-reference" else 1.0

    def noise(self, boundary: int | None, suffix: str = "", quantile: float = 0.5) -> float:
        """The pair error that is at the floor at a boundary: the yardstick's quantile, else the storage
        resolution."""
        known = self.yard_quantiles(suffix, quantile)
        if not known:
            return self.terms.resolution
        numbers = sorted(known)
        place = numbers[-1] if boundary is None else boundary
        return self.scale * float(np.interp(place, numbers, [known[n] for n in numbers]))

    def yard_quantiles(self, suffix: str = "", quantile: float = 0.5) -> dict[int, float]:
        """Boundary -> a quantile of the yardstick over tokens; empty without a floor."""
        found: dict[int, float] = {}
        for k, pair in enumerate(self.pairs):
            if self.has_floor and pair.boundary is not None:
                yard = self.yard(k, suffix)
                if np.isfinite(yard).any():
                    found[pair.boundary] = float(np.nanquantile(yard, quantile))
        return found

    def _ceiling(self, suffix: str) -> Ceiling:
        return ceiling([self._held(k, suffix) for k in range(len(self.pairs))], self.terms.routed)

    def _held(self, site: int, suffix: str) -> Vector:
        """The yardstick that the pair is judged by, [N]: in units of the engine's own floor where that is all there is."""
        yard = self.yard(site, suffix)
        if not self.allowance.scales_yardstick:
            return yard
        return yard / self.allowance.factors(site, suffix, np.full(len(yard), self.terms.resolution))

    def delta(self, site: int, massive: Sequence[int]) -> SiteDelta:
        """The site's figures and verdict."""
        pair = self.pairs[site]
        known = registry.metrics()
        read = {name: self.table.read(site, name).astype(np.float64) for name in self.table.columns}
        bad = np.array([np.nansum(read["bad_ref"]), np.nansum(read["bad_cand"])])
        sinks = self._sinks(read["ref_norm"])
        compared = int(np.isfinite(read["bad_ref"]).sum())
        ratios = self._ratios(site)
        verdict, reason = self._verdict(site, read, compared, ratios)
        rest = {n: np.where(sinks, np.nan, read["rest_" + n]) for n in ("rel_l2", "cosine")}
        return SiteDelta(
            ref=pair.ref,
            cand=pair.cand,
            requested=pair.requested,
            tokens=compared,
            metrics={name: quantiles(read[name], metric) for name, metric in known.items()},
            rest={name: quantiles(values, known[name]) for name, values in rest.items()},
            massive_channels=tuple(int(c) for c in massive),
            massive_rel_l2=quantiles(read["massive_rel_l2"]) if len(massive) else None,
            sink_tokens=int(sinks.sum()),
            sink_rel_l2=quantiles(read["rel_l2"][sinks]) if sinks.any() else None,
            nonfinite=(int(bad[0]), int(bad[1])),
            bit_equal=int(np.nansum(read["equal"])),
            worst=self._worst(read["rel_l2"]),
            floor=self._floor(site),
            ratios=ratios,
            verdict=verdict,
            reason=reason,
        )

    @staticmethod
    def _sinks(norm: Vector) -> NDArray[np.bool_]:
        known = norm[np.isfinite(norm)]
        if not len(known):
            return np.zeros(len(norm), bool)
        with np.errstate(invalid="ignore"):
            result: NDArray[np.bool_] = norm > SINK * np.median(known)
        return result

    def _worst(self, error: Vector) -> TokenRef | None:
        if not np.isfinite(error).any():
            return None
        return self.token(int(np.nanargmax(error)), float(np.nanmax(error)))

    def token(self, n: int, value: float) -> TokenRef:
        """The aligned token n, named by prompt and position."""
        prompt = next(p for p in self.prompts if n < p.stop)
        place = n - prompt.start
        return TokenRef(prompt.prompts[0], int(prompt.positions[place]), int(prompt.token_ids[place]), value)

    def _floor(self, site: int) -> Quantiles | None:
        kind = self.terms.roles.kind
        if kind == "none":
            return None
        yard = self.yard(site)
        return (
            quantiles(yard * (SQRT2 if kind == "bf16-reference" else 1.0))
            if np.isfinite(yard).any()
            else None
        )

    def e0(self, site: int) -> Quantiles | None:
        """The yardstick's own quantiles."""
        if not self.has_floor:
            return None
        values = self.yard(site)
        return quantiles(values) if np.isfinite(values).any() else None

    def errors(self, site: int) -> list[tuple[Errors, Ceiling]]:
        """Every set of errors the site is judged by, with the ceiling of its extremes; empty without a
        floor."""
        if not self.has_floor:
            return []
        found = []
        for suffix, rest in (("", ""), ("_rest", " rest")):
            yard = self.yard(site, suffix)
            names = {"pair": "rest_rel_l2" if rest else "rel_l2"}
            if self.terms.roles.kind == "bf16-reference":
                names = {"ref": "ref_error" + suffix, "cand": "cand_error" + suffix, **names}
            for of, column in names.items():
                error = self.table.read(site, column).astype(np.float64)
                allowed = yard
                if of == "pair":
                    error /= self.scale
                    error, allowed = self._excused(site, suffix, error, yard)
                found.append((Errors(of + rest, error, allowed), self.tops[suffix]))
        return found

    def _excused(self, site: int, suffix: str, error: Vector, yard: Vector) -> tuple[Vector, Vector]:
        """The pair's errors and yardstick, with what its engine differs by from itself allowed."""
        allowance = self.allowance
        if not allowance.speaks:
            return error, yard
        if allowance.scales_yardstick:
            held = self._held(site, suffix)
            return error * held / yard, held
        factor_n = allowance.factors(site, suffix, self.scale * yard)
        if not suffix:
            self.widened[site] = float(factor_n.max(initial=1.0))
        return error / factor_n, yard

    def _ratios(self, site: int) -> tuple[Ratio, ...]:
        found = [
            judge(errors, self.bootstrap, top, len(self.pairs), self.terms.limit)
            for errors, top in self.errors(site)
        ]
        most = self.widened.get(site, 1.0)
        if most > 1.0:
            note = f"; {ROWS[self.terms.roles.wider[0].kind]} allowed {most:.2g}× that"
            found = [replace(r, reason=r.reason + note) if r.of.startswith("pair") else r for r in found]
        return tuple(found)

    def _verdict(
        self, site: int, read: dict[str, Vector], compared: int, ratios: Sequence[Ratio]
    ) -> tuple[Verdict, str]:
        pair = self.pairs[site]
        equal_n = read["equal"] == 1
        bad_ref_n, bad_cand_n = read["bad_ref"] > 0, read["bad_cand"] > 0
        absent = len(equal_n) - compared
        if not compared:
            return Verdict.INCONCLUSIVE, "no token was compared"
        if (bad_ref_n != bad_cand_n).any():
            side = "candidate" if (bad_cand_n & ~bad_ref_n).any() else "reference"
            count = int((bad_ref_n != bad_cand_n).sum())
            return Verdict.DIVERGED, f"NaN or Inf in the {side} only, {tokens_of(count)}"
        if absent:
            return Verdict.DIVERGED, f"{tokens_of(absent)} of {len(equal_n)} have no state here on one side"
        if equal_n.all() and not ratios:
            verdict, reason = Verdict.PARITY, f"equal in every bit, {tokens_of(compared)}"
        else:
            verdict, reason = self._by_terms(site, read, ratios, bool(equal_n.all()))
        both = int((bad_ref_n & bad_cand_n).sum())
        if both and verdict is Verdict.PARITY:
            return Verdict.INCONCLUSIVE, f"NaN or Inf on both sides, {tokens_of(both)} could not be compared"
        # The embedding of an untrained pad token may be zero; a later state never is.
        zero = int((equal_n & (read["ref_norm"] == 0)).sum()) if pair.boundary != 0 else 0
        if zero and verdict is Verdict.PARITY:
            return (
                Verdict.INCONCLUSIVE,
                f"{tokens_of(zero)} all zero on both sides: nothing was captured there",
            )
        open_ = verdict is Verdict.PARITY or np.nanmedian(read["rel_l2"]) < OWN_SIZE
        if open_ and pair.boundary != 0 and self._alike(read["ref_norm"]):
            return Verdict.INCONCLUSIVE, f"all {len(equal_n)} rows are equal: nothing tells tokens apart"
        return verdict, reason

    def _alike(self, norm: Vector) -> bool:
        """Whether the states of every prompt's tokens are all equal, although the tokens are not."""
        parts = [
            (norm[p.start : p.stop], p.token_ids) for p in self.prompts if len(np.unique(p.token_ids)) > 1
        ]
        return bool(parts) and all(np.isfinite(x).all() and x.min() == x.max() for x, _ in parts)

    def _by_terms(
        self, site: int, read: dict[str, Vector], ratios: Sequence[Ratio], equal: bool
    ) -> tuple[Verdict, str]:
        terms = self.terms
        if terms.tol is not None:
            error = read["rel_l2"]
            beyond = int((error > terms.tol).sum())
            if beyond:
                return Verdict.DIVERGED, f"{beyond} of {tokens_of(len(error))} beyond --tol {terms.tol:g}"
            return Verdict.PARITY, f"every token within --tol {terms.tol:g}"
        if not ratios:
            return Verdict.INCONCLUSIVE, "not equal in every bit, and no floor says what is noise"
        worst = max(ratios, key=lambda r: ORDER[r.verdict])
        if terms.roles.kind == "repeat":
            return self._by_repeat(site, worst, ratios, equal)
        of = {side: [r for r in ratios if r.of.split()[0] == side] for side in ("ref", "cand", "pair")}
        apart = [r for side in ("ref", "cand") for r in of[side] if r.low > r.limit]
        far = min((r.median for r in apart), default=0.0)
        close = CLOSER * SQRT2 * max(r.median for r in of["pair"]) < far
        agree = close or all(r.verdict is Verdict.PARITY for r in of["pair"])
        if agree and {r.of.split()[0] for r in apart} == {"ref", "cand"}:
            return (
                Verdict.INCONCLUSIVE,
                f"the sides agree, and both are {far:.2g}× the floor or more from fp32: "
                "they share what sets them apart, or the floor is of another model",
            )
        if worst.verdict is Verdict.PARITY:
            low = next((r for r in (*of["ref"], *of["cand"]) if self._below(r)), None)
            if low is not None:
                side = "reference" if low.of.startswith("ref") else "candidate"
                return (
                    Verdict.INCONCLUSIVE,
                    f"the {side} is only {low.median:.2g}× the floor: its bf16 capture errs more than bf16 does",
                )
            if equal:
                return Verdict.PARITY, f"equal in every bit, {tokens_of(len(read['equal']))}"
            return Verdict.PARITY, of["cand"][0].reason
        return worst.verdict, worst.reason

    def _below(self, ratio: Ratio) -> bool:
        """A bf16 side plainly below e0. Errors of exactly zero are an embedding, or an fp32 capture in bf16."""
        return self.terms.stored_bf16 and 0.0 < ratio.high < 1.0 / ratio.limit

    def _by_repeat(
        self, site: int, worst: Ratio, ratios: Sequence[Ratio], equal: bool
    ) -> tuple[Verdict, str]:
        if equal:
            return Verdict.PARITY, "equal in every bit"
        if worst.verdict is Verdict.DIVERGED and not self.terms.same_run:
            return (
                Verdict.INCONCLUSIVE,
                f"{worst.reason}; repeats of one engine do not say what another may differ by",
            )
        noise, most = self.allowance.excess(site)
        if worst.verdict is Verdict.PARITY and noise > most:
            what = OWN_WORDS[self.terms.roles.own]
            return (
                Verdict.INCONCLUSIVE,
                f"no more than {what} of this engine, but that is {noise:.2g} where rounding is at most {most:.2g}: "
                "fp32 and bf16 settle it (hsparity floor --only fp32,bf16)",
            )
        if worst.verdict is Verdict.PARITY:
            return worst.verdict, next(r.reason for r in ratios if r.of == "pair")
        return worst.verdict, worst.reason


def floor_record(judge_: Judge, source: str, deltas: Sequence[SiteDelta]) -> Floor:
    """What the differences were measured against."""
    terms = judge_.terms
    if terms.tol is not None:
        return Floor("tolerance", f"--tol {terms.tol:g}", terms.tol, terms.resolution)
    kind = terms.roles.kind
    if kind == "none" and deltas and all(d.bit_equal == d.tokens and d.tokens for d in deltas if d.requested):
        return Floor("bit-equal", "both sides are equal in every bit", terms.limit, terms.resolution)
    if terms.roles.wider:
        most, rows = max(judge_.widened.values(), default=1.0), ROWS[terms.roles.wider[0].kind]
        allowed = f"{rows} allowed up to {most:.2g}× that" if most > 1.0 else f"{rows} needed no more"
        source = f"{source}: {allowed}"
    e0 = {p.ref: q for k, p in enumerate(judge_.pairs) if (q := judge_.e0(k)) is not None}
    return Floor(kind, source, terms.limit, terms.resolution, e0)


def missing_delta(boundary: int, side: str) -> SiteDelta:
    """A requested boundary that one side did not hand over."""
    key = f"boundary.{boundary:03d}"
    reason = f"the {'reference' if side == 'ref' else 'candidate'} did not hand over this layer"
    return SiteDelta(
        key, key, True, 0, {}, {}, (), None, 0, None, (0, 0), 0, None, None, (), Verdict.MISSING, reason
    )
