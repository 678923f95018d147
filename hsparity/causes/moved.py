"""Sites that lie at another boundary than claimed: shifted, exchanged, or holding what another slot holds."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hsparity.evidence import Evidence
    from hsparity.locate import Located
    from hsparity.model import SlotMatch
    from hsparity.pairing import SitePair
    from hsparity.solve.readings import Reading


COMMON = 0.8  # share of the boundaries that one shift must move to be the shift of the whole list


@dataclass(frozen=True, slots=True)
class Moved:
    """A site that lies elsewhere than claimed."""

    match: SlotMatch
    claimed: int  # where the claim puts it, in the ruler's count and with the offset that was asked for
    shift: int  # ref boundary - cand boundary beyond that offset

    @property
    def site(self) -> str:
        return self.match.cand


@dataclass(frozen=True, slots=True, eq=False)
class Places:
    """Every site whose place was tested, and those that lie elsewhere."""

    evidence: Evidence
    main: Located
    claims: dict[str, int]  # site -> the ruler's boundary it is said to be
    moved: tuple[Moved, ...]

    @property
    def common(self) -> int | None:
        """The one shift of the whole list: of every slot, or of nearly every boundary; None when there is
        none."""
        if not self.moved:
            return None
        shifts = [m.shift for m in self.moved]
        most = max(set(shifts), key=lambda s: (shifts.count(s), -abs(s)))
        slots = all(site.startswith("slot.") for site in self.claims)
        return most if shifts.count(most) >= (1.0 if slots else COMMON) * len(self.claims) else None

    @property
    def exchanged(self) -> tuple[Moved, ...]:
        """Sites whose boundaries are each other's: a permutation of what was claimed, and no common shift."""
        if self.common is not None:
            return ()
        left = list(self.moved)
        while True:
            claimed, best = {m.claimed for m in left}, [m.match.best for m in left]
            kept = [
                m
                for m in left
                if m.match.best in claimed and m.claimed in best and best.count(m.match.best) == 1
            ]
            if len(kept) == len(left):
                return tuple(kept)
            left = kept

    @property
    def repeated(self) -> tuple[tuple[Moved, str], ...]:
        """Slots that hold the boundary that another slot holds, with that slot: the one that is in place, else
        the first.

        Where every boundary is captured a shifted one always repeats a neighbour: that is an offset, unless
        it is that neighbour's copy bit for bit, or three hold one boundary."""
        if self.common is not None:
            return ()
        away = {m.site for m in self.moved}
        best = {m.site: m.match.best for m in self.moved}
        holders: dict[int, list[str]] = {}
        for site in sorted(self.claims, key=lambda s: (s in away, self.claims[s])):
            holders.setdefault(best.get(site, self.claims[site]), []).append(site)
        pairs = [(m, holders[m.match.best][0]) for m in self.moved if holders[m.match.best][0] != m.site]
        if all(m.site.startswith("slot.") for m in self.moved):
            return tuple(pairs)
        many = [(m, twin) for m, twin in pairs if len(holders[m.match.best]) > 2]
        one_buffer = len(pairs) == len(self.moved) and all(self._equal(m.site, twin) for m, twin in pairs)
        return tuple(pairs if one_buffer else many)

    def _equal(self, one: str, other: str) -> bool:
        """Whether two sites of the side are equal in every bit."""
        source = self.evidence.cand if self.main.side == "cand" else self.evidence.ref
        for prompt in source.prompts:
            spans = source.span(prompt.id, one), source.span(prompt.id, other)
            if prompt.rows and None not in spans:
                rows = [source.block(prompt.id, key, 0, prompt.rows) for key in (one, other)]
                return bool((rows[0] == rows[1]).all())
        return False

    @property
    def shifted(self) -> tuple[Moved, ...]:
        """The rest: sites of another layer."""
        named = {m.site for m in self.exchanged} | {m.site for m, _ in self.repeated}
        return tuple(m for m in self.moved if m.site not in named)

    @property
    def side(self) -> str:
        return "the candidate's" if self.main.side == "cand" else "the reference's"

    def explain(self, code: str, moved: Iterable[Moved], common: int = 0) -> float | None:
        """Share of the excess that goes away when these sites are put where they belong; `common` also
        moves the boundaries that were not found elsewhere."""
        return self.evidence.explain(code, self._undone(moved, common))

    def _undone(self, moved: Iterable[Moved], common: int) -> list[SitePair | None]:
        from dataclasses import replace

        from hsparity.pairing import boundaries_of

        evidence, main = self.evidence, self.main
        shifts = {m.site: m.shift for m in moved}
        sign = 1 if main.side == "cand" else -1
        held = boundaries_of(evidence.ref if main.ruler == "ref" else evidence.cand)
        out: list[SitePair | None] = []
        for k, pair in enumerate(evidence.pairs):
            if pair.boundary is None:
                out.append(None)
                continue
            site = pair.cand if main.ruler == "ref" else pair.ref
            shift = shifts.get(site, 0 if site.startswith("slot.") else common)
            reading = evidence.solution.places.get(k)
            if not shift:
                out.append(pair)
            elif (
                evidence.solution.pairs[k] is not pair
                and reading is not None
                and _put_back(reading, site, shift, sign)
            ):
                out.append(evidence.solution.pairs[k])  # with it a fault that hides the shift
            elif main.ruler == "ref":
                number = pair.boundary + shift
                key = held.get(number)
                out.append(replace(pair, ref=key, boundary=number, floor_site=key) if key else None)
            else:
                target = held.get(pair.boundary - evidence.query.offset - shift)
                out.append(replace(pair, cand=target) if target else None)
        return out


def _put_back(reading: Reading, site: str, shift: int, sign: int) -> bool:
    """Whether undoing the reading of a site also undoes this shift of it."""
    claimed = reading.slot.claimed
    return reading.slot.key == site and claimed is not None and sign * (reading.number - claimed) == shift


def places(evidence: Evidence) -> Places | None:
    """The sites of one side on the boundaries of the other; None when there is no neighbour to be confused
    with."""
    evidence = evidence.slots
    cross = [f for f in evidence.located if f.ruler in ("ref", "cand") and f.ruler != f.side]
    if not cross or not evidence.alignment.offset_testable:
        return None
    main = cross[0]
    claims = _claims(evidence, main)
    return Places(evidence, main, claims, tuple(_moved(evidence, main, claims)))


def _claims(evidence: Evidence, main: Located) -> dict[str, int]:
    from hsparity.locate import expected
    from hsparity.solve.solution import named

    read = {r.slot.key: r for r in evidence.solution.readings}
    found = {}
    for fit in main.fits:
        claimed = expected(main, fit, evidence.query.offset)
        if claimed is None or fit.located.normed or fit.located.key == "final_norm":
            continue
        reading = read.get(fit.located.key)
        if reading is None and (fit.best.key == "final_norm" or fit.best.normed):
            continue
        # What fits nothing has no place; a lone boundary on the ruler has no rival and tests nothing.
        if reading is not None and (
            reading.kind == "unknown-stream" or not (named(reading) or fit.margin >= 1.0)
        ):
            continue
        if fit.margin == fit.margin:
            found[fit.located.key] = claimed
    return found


def _moved(evidence: Evidence, main: Located, claims: dict[str, int]) -> list[Moved]:
    sign = 1 if main.side == "cand" else -1
    last = evidence.num_layers
    known = [
        m for m in evidence.alignment.slots if m.side == main.name and m.cand in claims and m.best <= last
    ]
    found = [
        Moved(m, claims[m.cand], sign * (m.best - claims[m.cand])) for m in known if m.best != claims[m.cand]
    ]
    slots_only = all(p.key.startswith("slot.") for p in main.matrix.located if p.number is not None)
    plain = [m for m in found if m.match.proved]
    # A boundary list is shifted as a whole; a lone unproved misfit in it is a near tie, not an offset.
    return found if slots_only or len(plain) * 2 > len(claims) else plain


def lines(moved: Iterable[Moved]) -> list[str]:
    """The measured evidence of each site."""
    return [
        f"{m.site}: boundary {m.match.best} at {m.match.error:.2g}, "
        f"next best boundary {m.match.runner_up} at {m.match.runner_up_error:.2g}"
        + ("" if m.match.proved else " (not proved)")
        for m in list(moved)[:4]
    ]


def rival(moved: Iterable[Moved]) -> str:
    """The runner-up that came nearest."""
    m = min((m.match for m in moved), key=lambda m: m.margin)
    return f"boundary {m.runner_up}, {10**m.margin:.2g}× farther ({m.cand})"


def proved(moved: Iterable[Moved]) -> bool:
    """Whether most of them are proved."""
    known = [m.match.proved for m in moved]
    return sum(known) * 2 > len(known)
