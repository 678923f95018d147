"""Slots that no entry of the dictionary explains: wrong amounts of a branch, another basis, a mixture, or
something between two boundaries."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from hsparity.pairing import boundaries_of
from hsparity.solve.branches import (
    Branches,
    amounts,
    between,
    branches,
    fit,
    lies_between,
    share_of_rank,
)
from hsparity.solve.dictionary import Entry
from hsparity.solve.forms import Form, normed, site
from hsparity.solve.readings import FEWEST, Reader, Reading

if TYPE_CHECKING:
    from hsparity.solve.solution import Given


class Unresolved:
    """Tries what the dictionary cannot hold, in a fixed order; the first that stands at the floor is taken."""

    def __init__(self, reader: Reader, given: Given) -> None:
        self.reader, self.given = reader, given
        self.bench, self.ruler, self.side = reader.bench, reader.ruler, reader.side
        source = given.sources[reader.ruler]
        self.held = boundaries_of(source)
        self.layers = branches(self.held, source.sites())
        scale = source.manifest.model_config.get("routed_scaling_factor")
        self.routed_scale = float(scale) if isinstance(scale, (int, float)) and scale else None

    def read(self, reading: Reading) -> Reading:
        """A better reading than the dictionary's best, or that one."""
        for attempt in (self._reversed, self._amounts, self._between, self._rank):
            found = attempt(reading)
            if found is not None:
                return found
        return reading

    def _nearby(self, reading: Reading) -> Iterable[Branches]:
        """The layers that could have made the slot: below the claimed boundary and the best fit."""
        numbers = dict.fromkeys(n for n in (reading.slot.claimed, reading.number) if n is not None)
        return [self.layers[n - 1] for n in numbers if n - 1 in self.layers]

    def _reversed(self, reading: Reading) -> Reading | None:
        """The ruler's last boundary is normed already: norming the slot makes the two equal."""
        norm, claimed = self.given.norm, reading.slot.claimed
        if norm is None or reading.slot.normed or claimed is None or claimed not in self.held:
            return None
        key = self.held[claimed]
        entry = Entry(
            "final-norm-applied", claimed, site(key), f"boundary {claimed}, normed like the other side's"
        )
        found = self._against(reading, entry, normed(reading.slot.key, norm))
        return found and replace(found, reverse=True, floor_form=normed(key, norm))

    def _amounts(self, reading: Reading) -> Reading | None:
        slot = site(reading.slot.key)
        for layer in self._nearby(reading):
            found = fit(self.bench, self.ruler, self.side, slot, layer)
            entry = amounts(layer, found, self.routed_scale) if found else None
            if entry is None:
                continue
            better = self._against(reading, entry)
            if better is not None:
                return better
        return None

    def _against(self, reading: Reading, entry: Entry, slot_form: Form | None = None) -> Reading | None:
        """The entry as a reading with the dictionary's best as its rival, when it is at the floor."""
        import numpy as np

        own = slot_form or site(reading.slot.key)
        errors = self.bench.errors(self.ruler, entry.form, self.side, own)
        known = errors[np.isfinite(errors)]
        if not len(known):
            return None
        error = max(float(np.median(known)), self.reader.resolution)
        close = float(np.hypot(self.reader.noise(entry.form, entry.number), reading.slot.allowance))
        rivals = self.bench.errors(self.ruler, reading.ruler_form, self.side, reading.slot_form)
        both = np.isfinite(errors) & np.isfinite(rivals)
        wins = float((errors[both] < rivals[both]).mean()) if both.any() else 0.0
        if error > close:
            return None
        return Reading(
            slot=reading.slot,
            kind=entry.kind,
            number=entry.number,
            words=entry.words,
            error=error,
            close=close,
            rival=reading.words,
            rival_error=reading.error,
            wins=wins,
            proved=self.reader.apart(error, reading.error, wins) and int(both.sum()) >= FEWEST,
            ruler_form=entry.form,
            slot_form=own,
        )

    def _between(self, reading: Reading) -> Reading | None:
        claimed = reading.slot.claimed
        if claimed is None:
            return None
        for number, kind in ((claimed, "aliased-capture"), (claimed - 1, "mid-layer")):
            found = between(self.bench, self.ruler, self.side, site(reading.slot.key), self.held, number)
            if found is None or not lies_between(found):
                continue
            form = Form(((self.held[number], 1.0 - found.amount), (self.held[number + 1], found.amount)))
            words = f"boundary {number} plus a part of the update of layer {number}"
            note = (
                f"what is left after boundary {number} points along the update of layer {number} "
                f"(cosine {found.cosine:.2f}, with any other update at most {found.other:.2f})"
            )
            return replace(
                reading,
                kind=kind,
                number=claimed,
                words=words,
                ruler_form=form,
                slot_form=site(reading.slot.key),
                gain=1.0,
                proved=False,
                note=note,
                rival=reading.words,
            )
        return None

    def _rank(self, reading: Reading) -> Reading | None:
        for layer in self._nearby(reading):
            found = fit(self.bench, self.ruler, self.side, site(reading.slot.key), layer)
            if found is None or not share_of_rank(found, layer):
                continue
            number = layer.layer + 1
            note = (
                f"the attention output of layer {layer.layer} is whole ({found.attn:.2f}×), of its MLP output "
                f"{found.mlp:.2f} is there and {found.left:.2g} of the state is unlike it, as one rank's share is"
            )
            return replace(
                reading,
                kind="partial-sum",
                number=number,
                words=f"boundary {number} with one rank's part of the MLP output",
                proved=False,
                note=note,
                rival=reading.words,
            )
        return None
