"""A faulty slot without its fault: made of the candidate's own data, and held against the reference's before it is taken."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch

from hsparity.capture.source import Source
from hsparity.drafter.feedings import Part, formed
from hsparity.evidence import Evidence
from hsparity.metrics.kernel import Norm
from hsparity.solve.forms import Form, normed, site
from hsparity.solve.readings import Reading
from hsprobe.schema import Site

NEARER = 2.0  # times nearer to the reference's state than what was served: a neighbouring layer is not
SAMPLE = 256  # rows that this is seen on
OWN, ORDER = "the candidate's own states of the right boundaries", "the slots in the right order"
NORMED, TAKEN_OUT = "the final norm applied", "the constant or basis taken out"
SCALES = ("gain", "rows-gain", "rotated-basis", "channels-permuted")  # findings that slot_form takes out


@dataclass(frozen=True, slots=True, eq=False)
class Mender:
    """What it takes to mend the candidate's slots. `keys`: the candidate's, in order; `wanted`: the boundary that each ought to
    hold, None where nothing tells it; `readings`: of those that hold something else."""

    ref: tuple[Part, ...]
    cand: Source
    keys: tuple[str, ...]
    claims: tuple[str, ...]
    wanted: tuple[int | None, ...]
    readings: dict[int, Reading]
    evidence: Evidence
    norm: Norm | None
    own_ruler: bool  # the reference's slots were read on the candidate's boundaries

    def mend(self, i: int, fault: str = "") -> tuple[Part | None, str]:
        """The candidate's own tensor for slot i without the fault of that name, or without any; None where it holds none that is
        plainly nearer to the reference's."""
        reading = self.readings[i]
        scaled = not (reading.slot_form.is_plain or self.own_ruler)
        if scaled and fault in SCALES and reading.number != self.wanted[i]:
            return self._part(self._rescaled(reading, self.keys[i])), TAKEN_OUT
        served = self._distance(self._part(site(self.keys[i])), i)
        for form, words in self._tries(i):
            if self._distance(self._part(form), i) <= served / NEARER:
                kept = fault and fault not in SCALES and scaled and reading.number != self.wanted[i]
                return self._part(self._unscaled(form, reading) if kept else form), words
        return None, ""

    def _tries(self, i: int) -> Iterator[tuple[Form, str]]:
        reading, wanted, key = self.readings[i], self.wanted[i], self.keys[i]
        if self.own_ruler:
            form = reading.ruler_form
            if reading.slot_form.basis is None and not reading.slot_form.row_gains:
                words = f"the candidate's {reading.words}"
                yield replace(form, gain=form.gain / reading.slot_form.gain), words
            return
        for own in self._own(i):
            yield site(own), OWN
        for j, other in self.readings.items():
            if j != i and other.number == wanted and not other.kind:
                yield self._rescaled(other, self.keys[j]), ORDER
        layers = self.cand.manifest.num_layers
        if wanted == layers + 1 and reading.number == layers and not reading.kind and self.norm is not None:
            yield normed(key, self.norm), NORMED
        if reading.slot_form.is_plain:
            return
        if reading.number == wanted and reading.ruler_form.is_plain:
            yield self._rescaled(reading, key), TAKEN_OUT
        for own in self._own(i):
            yield self._rescaled(reading, own), f"{OWN}, {TAKEN_OUT}"

    def _own(self, i: int) -> Iterator[str]:
        """The candidate's own site of the right boundary, by its name and by what its other names turned out to hold."""
        held = self.cand.sites()
        names = [self.claims[i]]
        fed, reading, wanted = Site.parse(self.keys[i]), self.readings[i], self.wanted[i]
        if fed.kind == "boundary" and not reading.kind and wanted is not None:
            names.append(Site("boundary", max(wanted - (reading.number - fed.index), 0)).key)
        for name in names:
            if name in held and not name.startswith("slot."):
                yield name

    def _part(self, form: Form) -> Part:
        return Part(self.cand, 1, form)

    @staticmethod
    def _rescaled(reading: Reading, key: str) -> Form:
        """The site without the constant or basis that the reading found."""
        return replace(reading.slot_form, parts=((key, 1.0),))

    @staticmethod
    def _unscaled(form: Form, reading: Reading) -> Form:
        """The form with the constant that was served, which is another finding's."""
        return replace(form, gain=form.gain / reading.gain, row_gains={}, basis=None)

    def _distance(self, part: Part, i: int) -> float:
        """The median over rows of |part - ref| / |ref|, the rows being their tokens' own; infinite where none is finite."""
        found, left = [], SAMPLE
        for p in self.evidence.slots.rows.prompts:
            rows = [r[:left] for r in p.rows[:2]]
            wanted, mine = formed(self.ref[i], p.prompts[0], rows[0]), formed(part, p.prompts[1], rows[1])
            found.append((mine - wanted).norm(dim=1) / wanted.norm(dim=1).clamp_min(1e-30))
            left -= len(rows[0])
            if left <= 0:
                break
        errors = torch.cat(found) if found else torch.empty(0)
        errors = errors[errors.isfinite()]
        return float(errors.median()) if len(errors) else float("inf")
