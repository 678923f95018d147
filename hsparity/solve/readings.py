"""What each slot really is: the entry of the dictionary that fits it at the floor, well apart from the next."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hsparity.align.layers import medians
from hsparity.solve.dictionary import Bench, Entry, Measured
from hsparity.solve.forms import Form, site

# Without a floor: 16 half-ulps of bfloat16, what the rounding of tens of layers leaves.
CLOSE = 2.0**-5
PLAIN_MARGIN = 1.0  # decades to the runner-up without a floor
# With a floor the match is known to be at it, and the runner-up must be farther on nearly every token.
APART, WINS = np.log10(2.0), 0.95
FEWEST = 8  # distinct tokens: eight heads in a row have a chance of 1 in 256
# A gain nearer to 1 is no other hypothesis: truncation over a deep model shrinks states by up to a tenth.
GAINED = 0.15
FREEDOM = 1.25  # a fitted gain must fit that much better than none
SHORTLIST = 6

Noise = Callable[[Form, int], float]  # (form of the ruler, boundary) -> the largest error still at the floor


@dataclass(frozen=True, slots=True, eq=False)
class Slot:
    """A site to be read. `claimed` is the ruler's boundary it is said to be, `normed` whether as the final
    norm's output; None: nothing is said."""

    key: str
    claimed: int | None
    normed: bool = False
    allowance: float = 0.0  # error that its storage format alone makes
    side: str = "cand"  # "ref" | "cand": whose it is; both sides may spell a site alike


@dataclass(frozen=True, slots=True, eq=False)
class Reading:
    """What a slot is, by the data. `kind` is a finding's name; "" is a boundary as it stands."""

    slot: Slot
    kind: str
    number: int
    words: str
    error: float  # median relative error over the sampled tokens
    close: float  # the largest error still at the floor
    rival: str
    rival_error: float
    wins: float  # share of tokens on which it is closer than the rival
    proved: bool
    ruler_form: Form
    slot_form: Form
    gain: float = 1.0
    note: str = ""  # what else speaks for it
    hint: str = ""  # where to look, when nothing can be named
    undoable: bool = True
    reverse: bool = False  # the slot is as claimed, and the ruler's own site is what `kind` says
    floor_form: Form | None = None  # the floor's captures get this one, when not the ruler's

    @property
    def margin(self) -> float:
        """log10 of the rival's error over its own."""
        return float(np.log10(self.rival_error / self.error)) if self.error > 0 else float("inf")

    @property
    def at_floor(self) -> bool:
        return self.error <= self.close

    @property
    def as_claimed(self) -> bool:
        kind = "final-norm-applied" if self.slot.normed and not self.reverse else ""
        return self.kind == kind and self.number == self.slot.claimed and self.gain == 1.0


@dataclass(frozen=True, slots=True, eq=False)
class Hypothesis:
    """An entry with a gain, and its exact error per sampled token."""

    entry: Entry
    gain: float
    error_n: NDArray[np.float64]

    @property
    def error(self) -> float:
        known = self.error_n[np.isfinite(self.error_n)]
        return float(np.median(known)) if len(known) else float("nan")

    @property
    def score(self) -> float:
        return self.error * (FREEDOM if self.gain != 1.0 else 1.0)


class Reader:
    """Reads the slots of one side on one ruler."""

    def __init__(
        self,
        bench: Bench,
        ruler: int,
        side: int,
        dictionary: Sequence[Entry],
        noise: Noise,
        has_floor: bool,
        resolution: float,
    ) -> None:
        self.bench, self.ruler, self.side = bench, ruler, side
        self.dictionary, self.noise, self.has_floor = dictionary, noise, has_floor
        self.resolution = resolution

    def read(self, slots: Sequence[Slot]) -> list[Reading]:
        """The best reading of every slot whose errors are finite, proved or not."""
        forms = [site(s.key) for s in slots]
        measured = self.bench.measure(self.ruler, [e.form for e in self.dictionary], self.side, forms)
        if not measured.tokens:
            return []
        plain = medians(measured.errors_nes())
        gains = medians(measured.gain_nes())
        scaled = medians(measured.errors_nes(np.where(gains > 0, gains, np.nan)))
        tries = [
            (slot, self.dictionary[e], gain)
            for s, slot in enumerate(slots)
            for e, gain in self._shortlist(plain[:, s], gains[:, s], scaled[:, s])
        ]
        pairs = [(entry.form, Form(((slot.key, 1.0),), gain=gain)) for slot, entry, gain in tries]
        errors = self.bench.errors(self.ruler, self.side, pairs)
        tried: dict[str, list[Hypothesis]] = {slot.key: [] for slot in slots}
        for (slot, entry, gain), error_n in zip(tries, errors, strict=True):
            tried[slot.key].append(Hypothesis(entry, gain, error_n))
        found = (self.choose(slot, tried[slot.key], measured) for slot in slots)
        return [reading for reading in found if reading]

    def _shortlist(
        self, plain: NDArray[np.float32], gains: NDArray[np.float32], scaled: NDArray[np.float32]
    ) -> list[tuple[int, float]]:
        """The most promising entries, of each kind and boundary the best, with their gains."""
        options = [(float(plain[e]), e, 1.0) for e in range(len(plain)) if np.isfinite(plain[e])]
        for e, entry in enumerate(self.dictionary):
            if entry.scalable and np.isfinite(scaled[e]) and abs(np.log(max(gains[e], 1e-9))) > GAINED:
                options.append((float(scaled[e]) * FREEDOM, e, float(gains[e])))
        kept: dict[tuple[str, int, bool], tuple[int, float]] = {}
        for _, e, gain in sorted(options):
            entry = self.dictionary[e]
            kept.setdefault((entry.kind, entry.number, gain != 1.0), (e, gain))
            if len(kept) == SHORTLIST:
                break
        return list(kept.values())

    def choose(self, slot: Slot, tried: Sequence[Hypothesis], measured: Measured) -> Reading | None:
        """The best hypothesis against the next best of another tensor."""
        known = sorted((h for h in tried if np.isfinite(h.error)), key=lambda h: h.score)
        if not known:
            return None
        best = known[0]
        others = [
            h for h in known[1:] if (h.entry.kind, h.entry.number) != (best.entry.kind, best.entry.number)
        ]
        close = float(np.hypot(self.noise(best.entry.form, best.entry.number), slot.allowance))
        rival = others[0] if others else None
        both = np.isfinite(best.error_n)
        wins = 0.0
        if rival is not None:
            both &= np.isfinite(rival.error_n)
            wins = float((best.error_n[both] < rival.error_n[both]).mean()) if both.any() else 0.0
        error = max(best.error, self.resolution)
        rival_error = max(rival.error, self.resolution) if rival else float("nan")
        return Reading(
            slot=slot,
            kind=best.entry.kind,
            number=best.entry.number,
            words=best.entry.words + (f", times {best.gain:.4g}" if best.gain != 1.0 else ""),
            error=error,
            close=close,
            rival=rival.entry.words if rival else "",
            rival_error=rival_error,
            wins=wins,
            proved=self._proved(error, rival_error, wins, close, int(both.sum()), measured),
            ruler_form=best.entry.form,
            slot_form=Form(((slot.key, 1.0),), gain=best.gain),
            gain=best.gain,
        )

    def _proved(
        self, error: float, rival: float, wins: float, close: float, tokens: int, measured: Measured
    ) -> bool:
        distinct = len(np.unique(measured.entry_ne[:, 0])) if measured.tokens else 0
        return error <= close and min(tokens, distinct) >= FEWEST and self.apart(error, rival, wins)

    def apart(self, error: float, rival: float, wins: float) -> bool:
        """Whether the runner-up is plainly farther; with a floor known to be at it, twice as far on nearly
        every token is enough."""
        if not np.isfinite(rival):
            return False
        return bool(np.log10(rival / error) >= (APART if self.has_floor else PLAIN_MARGIN) and wins >= WINS)
