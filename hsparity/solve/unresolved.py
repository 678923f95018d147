"""Slots that no entry of the dictionary explains: wrong amounts of a branch, another basis, a mixture, or
something between two boundaries."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray

from hsparity.pairing import boundaries_of
from hsparity.solve.basis import Rotation, find_permutation, find_rotation
from hsparity.solve.branches import (
    Branches,
    amounts,
    between,
    branches,
    fit,
    lies_between,
    rank_share,
    summed,
)
from hsparity.solve.dictionary import Entry
from hsparity.solve.forms import Basis, Form, normed, site
from hsparity.solve.gains import name_gain, row_sets
from hsparity.solve.mixture import find_mixture
from hsparity.solve.readings import FEWEST, GAINED, Reader, Reading

if TYPE_CHECKING:
    from hsparity.solve.solution import Given


TRIES = 4  # slots that an attempt may fail on before it is given up
STACK_BYTES = 96 << 20  # rows of all boundaries at once


class Unresolved:
    """Tries what the dictionary cannot hold, in a fixed order; the first that stands at the floor is taken."""

    def __init__(self, reader: Reader, given: Given) -> None:
        self.reader, self.given = reader, given
        self.bench, self.ruler, self.side = reader.bench, reader.ruler, reader.side
        source = given.sources[reader.ruler]
        self.held = boundaries_of(source)
        self.numbers = list(self.held)
        self.forms = [site(key) for key in self.held.values()]
        self.failed: Counter[str] = Counter()
        self.layers = branches(self.held, source.sites())
        scale = source.manifest.model_config.get("routed_scaling_factor")
        self.routed_scale = float(scale) if isinstance(scale, (int, float)) and scale else None

    def read(self, reading: Reading, k: int) -> Reading:
        """A better reading than the dictionary's best, or that one. Sets of rows with gains of their own hide
        behind a median that is at the floor, so they are looked for first."""
        found = self._rows_gain(reading, k)
        if found is not None or reading.at_floor:
            return found or reading
        for attempt in (self._reversed, self._amounts, self._basis, self._mixture, self._rank, self._between):
            if self.failed[attempt.__name__] >= TRIES:
                continue
            found = attempt(reading)
            if found is not None:
                self.failed[attempt.__name__] = 0
                return found
            # These look at every boundary: what explains none of several slots is not tried on all.
            self.failed[attempt.__name__] += attempt in (self._basis, self._mixture, self._between)
        return reading

    def _rows_gain(self, reading: Reading, k: int) -> Reading | None:
        """Sets of rows that are a constant times what they are said to be."""
        claimed, pair = reading.slot.claimed, self.given.pairs[k]
        # An 8-bit format saturates the sinks' massive channels: those rows shrink, and that is the storage's doing.
        if claimed is None or reading.slot.normed or reading.slot.allowance or self.ruler != 0:
            return None
        cosine = self.given.figures(k, "cosine").astype(np.float64)
        gain_n = cosine * self.given.figures(k, "norm_ratio")
        sets = row_sets(gain_n)
        odd = [s for s in sets if abs(np.log(abs(s.value) or 1e-30)) > GAINED]
        if len(sets) < 2 or not odd:
            return None
        close = float(np.hypot(self.reader.noise(site(pair.ref), claimed), reading.slot.allowance))
        apart = np.sqrt(np.maximum(1.0 - cosine**2, 0.0))
        if any(np.median(apart[s.rows]) > close for s in sets):
            return None
        values = np.ones(len(gain_n), np.float32)
        for one in odd:
            values[one.rows] = one.value
        counts = ", ".join(f"{len(s.rows)} rows times {s.value:.4g}" for s in odd)
        names = [n for s in odd for n in self._known(s.value)]
        return replace(
            reading,
            kind="rows-gain",
            number=claimed,
            words=f"boundary {claimed}, {counts}",
            error=float(np.median(apart)),
            close=close,
            rival=f"boundary {claimed} as it stands",
            rival_error=float(max(abs(s.value - 1.0) for s in odd)),
            proved=sum(len(s.rows) for s in odd) >= 2,
            gain=1.0,
            ruler_form=site(pair.ref),
            slot_form=Form(((reading.slot.key, 1.0),), row_gains=self._by_row(values)),
            note="; ".join(names[:2]) and f"the factor is {'; '.join(dict.fromkeys(names[:2]))}",
        )

    def _known(self, value: float) -> list[str]:
        manifest = self.given.sources[self.ruler].manifest
        return name_gain(value, manifest.hidden_size, manifest.model_config)

    def _by_row(self, values: NDArray[np.float32]) -> dict[str, NDArray[np.float32]]:
        """Gains of aligned tokens as gains of the slot side's rows, per prompt."""
        found = {}
        for prompt in self.given.prompts:
            rows = prompt.rows[self.side]
            gains = np.ones(int(rows.max(initial=0)) + 1, np.float32)
            gains[rows] = values[prompt.start : prompt.stop]
            found[prompt.prompts[self.side]] = gains
        return found

    def _basis(self, reading: Reading) -> Reading | None:
        """The boundary in another order of channels, or rotated."""
        numbers, forms = self.numbers, self.forms
        both = self._both(reading, masked=False)
        if both is None:
            return None
        ref_nkh, cand_nh = both
        noises = [self.reader.noise(form, n) for n, form in zip(numbers, forms, strict=True)]
        claimed = reading.slot.claimed
        order = [claimed] if claimed in self.held else []
        rotation = find_rotation([ref_nkh[:, i] for i in range(len(numbers))], cand_nh, noises)
        order += [numbers[rotation.boundary]]
        for number in dict.fromkeys(order):
            i = numbers.index(number)
            moved = find_permutation(ref_nkh[:, i], cand_nh, noises[i])
            if moved is not None:
                basis = Basis(order=torch.from_numpy(moved.undo.copy()))
                words = f"boundary {number} with its channels in another order ({moved.pattern() or 'no pattern'})"
                entry = Entry("channels-permuted", number, forms[i], words)
                note = f"{moved.moved} channels moved, {100 * moved.matched:.0f} % match another one within noise"
                found = self._against(reading, entry, Form(((reading.slot.key, 1.0),), basis=basis))
                return found and replace(found, note=note)
        return self._rotated(reading, rotation) if rotation.found else None

    def _both(self, reading: Reading, masked: bool) -> tuple[torch.Tensor, torch.Tensor] | None:
        """The ruler's rows [n, K, H] and the slot's [n, H], of tokens that are finite and not zero in all."""
        width = self.given.sources[self.ruler].manifest.hidden_size
        limit = STACK_BYTES // (4 * width * len(self.forms))
        ref_nkh = self.bench.whole(self.ruler, self.forms, masked, limit)
        cand_nh = self.bench.whole(self.side, [site(reading.slot.key)], masked, limit)[:, 0]
        if len(ref_nkh) != len(cand_nh):
            return None
        sizes = torch.cat([torch.linalg.vector_norm(rows, dim=-1) for rows in (ref_nkh, cand_nh[:, None])], 1)
        kept = (sizes.isfinite() & (sizes > 0)).all(1)
        if int(kept.sum()) < 2 * FEWEST:
            return None
        return (ref_nkh, cand_nh) if bool(kept.all()) else (ref_nkh[kept], cand_nh[kept])

    def _rotated(self, reading: Reading, rotation: Rotation) -> Reading | None:
        numbers = self.numbers
        number, form = numbers[rotation.boundary], self.forms[rotation.boundary]
        basis = None if rotation.map_hh is None else Basis(rotation=torch.from_numpy(rotation.map_hh))
        note = (
            f"inner products of rows agree to {rotation.gram_error:.2g} (noise allows {rotation.gram_noise:.2g}, next best "
            f"boundary {rotation.runner_up_error:.2g}) while the rows are {rotation.row_error:.2g} apart"
        )
        if rotation.held_out is not None:
            note += f"; a rotation fitted on other rows leaves {rotation.held_out:.2g}"
        runner = numbers[rotation.runner_up] if rotation.runner_up is not None else None
        return replace(
            reading,
            kind="rotated-basis",
            number=number,
            words=f"boundary {number} in another basis",
            error=rotation.gram_error,
            close=rotation.gram_noise,
            rival=f"boundary {runner} in another basis" if runner is not None else "",
            rival_error=rotation.runner_up_error,
            wins=0.0,
            proved=rotation.runner_up_error >= 2 * rotation.gram_error,
            gain=1.0,
            ruler_form=form,
            slot_form=Form(((reading.slot.key, 1.0),), basis=basis),
            note=note,
        )

    def _mixture(self, reading: Reading) -> Reading | None:
        """A fixed mix of boundaries: no boundary of this model, whatever the layer."""
        numbers, forms = self.numbers, self.forms
        both = self._both(reading, masked=True)
        if both is None:
            return None
        ref_nkh, cand_nh = both
        noises = [self.reader.noise(form, n) for n, form in zip(numbers, forms, strict=True)]
        found = find_mixture([ref_nkh[:, i] for i in range(len(numbers))], cand_nh, noises)
        if found is None or not found.found:
            return None
        parts = [(numbers[i], c) for i, c in zip(found.boundaries, found.coefficients, strict=True)]
        form = Form(tuple((self.held[n], float(c)) for n, c in parts))
        words = "a mix: " + " ".join(f"{c:+.2f} × boundary {n}" for n, c in parts)
        near = max(parts, key=lambda part: abs(part[1]))[0]
        return replace(
            reading,
            kind="unknown-stream",
            number=near,
            words=words,
            error=found.residual,
            close=max(reading.close, found.residual),
            rival=f"boundary {numbers[found.single]} times a constant",
            rival_error=found.single_residual,
            wins=0.0,
            proved=found.margin >= 2.0,
            gain=1.0,
            ruler_form=form,
            slot_form=site(reading.slot.key),
        )

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
            for apart in (False, True):
                found = fit(self.bench, self.ruler, self.side, slot, layer, apart)
                entry = amounts(layer, found, self.routed_scale) if found else None
                better = self._against(reading, entry) if entry else None
                if better is not None:
                    return better
        return None

    def _against(self, reading: Reading, entry: Entry, slot_form: Form | None = None) -> Reading | None:
        """The entry as a reading with the dictionary's best as its rival, when it is at the floor."""
        own = slot_form or site(reading.slot.key)
        tried = [(entry.form, own), (reading.ruler_form, reading.slot_form)]
        errors, rivals = self.bench.errors(self.ruler, self.side, tried)
        known = errors[np.isfinite(errors)]
        if not len(known):
            return None
        error = max(float(np.median(known)), self.reader.resolution)
        close = float(np.hypot(self.reader.noise(entry.form, entry.number), reading.slot.allowance))
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

    def _rank(self, reading: Reading) -> Reading | None:
        """One rank's share of the MLP output after the whole attention: no proof, since nothing says what the
        share should be, but two figures that must agree."""
        for layer in self._nearby(reading):
            found = rank_share(self.bench, self.ruler, self.side, site(reading.slot.key), layer)
            if found is None or not found.ranks:
                continue
            number = layer.layer + 1
            note = (
                f"beyond boundary {layer.layer} and the attention of layer {layer.layer} it holds a part of the MLP output with "
                f"projection {found.projection:.2f} and squared size {found.square:.2f}: one of {found.ranks} ranks"
            )
            return replace(
                reading,
                kind="partial-sum",
                number=number,
                words=f"boundary {number} with one rank's part of the MLP output",
                proved=False,
                note=note,
                rival=reading.words,
                undoable=False,
            )
        return None

    def together(self, readings: Sequence[Reading]) -> dict[str, Reading]:
        """Slots that look like ranks' shares of one boundary, proved when their sum is that boundary."""
        groups: dict[int, list[Reading]] = {}
        for reading in readings:
            if reading.kind == "partial-sum" and not reading.undoable:
                groups.setdefault(reading.number, []).append(reading)
        found: dict[str, Reading] = {}
        for number, members in groups.items():
            keys = [r.slot.key for r in members]
            layer = self.layers[number - 1]
            error = summed(self.bench, self.ruler, self.side, keys, layer)
            # The noise of every slot, and of the middle that all but one of them repeat, adds up.
            close = self.reader.noise(site(layer.above), number) * np.sqrt(2 * len(keys) - 1)
            apart = all(r.error >= 2 * error for r in members)
            if error <= close and apart:
                note = f"{' + '.join(keys)} less what they repeat is boundary {number} at {error:.2g}"
                found |= {r.slot.key: replace(r, proved=True, note=f"{r.note}; {note}") for r in members}
        return found

    def _between(self, reading: Reading) -> Reading | None:
        """No name without the reference's branches, only where to look."""
        claimed = reading.slot.claimed
        for number in (claimed, claimed - 1) if claimed is not None else ():
            found = between(self.bench, self.ruler, self.side, site(reading.slot.key), self.held, number)
            if found is not None and lies_between(found):
                hint = (
                    f"{reading.slot.key}: what is left after boundary {number} points along the update of layer {number} "
                    f"(cosine {found.cosine:.2f}, with any other at most {found.other:.2f}): taken inside that layer, changed "
                    "by it in place, or one rank's part"
                )
                return replace(reading, hint=hint)
        return None
