"""SpecForge 0.1 and 0.2: `rows_<a>-<b>/data_<i>.ckpt` or `.ckpt.gz`, as scripts/prepare_hidden_states.py writes them.

`input_ids` [T], `loss_mask` [T], and by the draft that it is for: EAGLE-3 `aux_hidden_state` [1, T, nH] and
`hidden_state` [1, T, H]; DSpark `hidden_states` [1, T, nH] and `target_last_hidden_states` [1, T, H]; DFlash and Domino
`hidden_states` [1, T, nH] alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

from hsparity.capture.readers import listing, parts, pickled
from hsparity.capture.readers.base import LAST, Dataset, Reader, Record, Said, Sample, Slot, wrong
from hsparity.capture.readers.look import Look
from hsparity.errors import HsparityError

NAME = "specforge"
FILES = r"(.*/)?data_[0-9]+\.ckpt(\.gz)?"
# Auxiliary and last state by their names in the files; OfflineCaptureLayout in specforge/algorithms/*/providers.py.
EAGLE3 = ("aux_hidden_state", "hidden_state")
DSPARK = ("hidden_states", "target_last_hidden_states")
DFLASH = ("hidden_states", "")


class SpecForge(Dataset):
    """See the module's docstring. `claimed`: how many auxiliary states the user names, for files that do not show it."""

    format = NAME
    last_normed = True  # training applies the lm_head alone
    claimed: int | None = None

    def said(self) -> Said:
        last = self._layout[1]
        notes = [
            *listing.passed_over(self.look, FILES, numbers=True),
            "SpecForge hands its ids to SGLang, which for most families takes id k for boundary k + 1, ascending.",
            "Numbers may be missing: a record with a NaN is not written.",
            "A batch is padded to its longest sample: rows at the end with token 0 and loss mask 0 may be padding.",
        ]
        if last:
            notes.append(f"By SpecForge's convention {last} is the last state after the final norm.")
        unknown = ("layer ids", "the model", *(("whether the last state is normed",) if last else ()))
        return Said(producer="specforge", version="0.1 or 0.2", unknown=unknown, notes=tuple(notes))

    def records(self) -> Sequence[Record]:
        return listing.numbered(self.look, FILES)

    def read(self, record: Record) -> Sample:
        raw = parts.table(record, pickled.load(record.path), ("input_ids",))
        ids = parts.integers(record, raw["input_ids"], "input_ids")
        aux, last = self._layout
        if (own := _layout_of(raw)) and own != self._layout:
            raise wrong(record, "another layout than the first file", _words(self._layout), _words(own))
        parts.table(record, raw, (aux, *((last,) if last else ())))
        if last:
            ends = parts.streams(record, _unbatched(raw[last]), last, rows=len(ids), count=1)
            width = ends[0].shape[1]
            states = (*parts.streams(record, _unbatched(raw[aux]), aux, rows=len(ids), width=width), *ends)
        elif self.claimed:
            states = parts.streams(record, _unbatched(raw[aux]), aux, rows=len(ids), count=self.claimed)
        else:
            raise _unsplit(record, aux, raw[aux])
        return Sample(ids, states, loss_mask=parts.mask(record, raw.get("loss_mask"), len(ids)))

    def slots(self, sample: Sample) -> tuple[Slot, ...]:
        aux, last = self._layout
        count = len(sample.states) - bool(last)
        found = [Slot(f"{aux}[{i}]") for i in range(count)]
        return (*found, Slot(last, LAST)) if last else tuple(found)

    @cached_property
    def _layout(self) -> tuple[str, str]:
        """That of the first file that shows one."""
        return listing.first(self.look, FILES, self.look.pickled, _layout_of) or EAGLE3


def _layout_of(raw: Any) -> tuple[str, str] | None:
    if not isinstance(raw, Mapping) or "input_ids" not in raw:
        return None
    return next((pair for pair in (EAGLE3, DSPARK, DFLASH) if {p for p in pair if p} <= set(raw)), None)


def _unbatched(value: Any) -> Any:
    """[1, T, nH] as [T, nH]: of one token it would look like [T, n, H]."""
    return value[0] if getattr(value, "ndim", 0) == 3 and value.shape[0] == 1 else value


def _words(pair: tuple[str, str]) -> str:
    return " and ".join(name for name in pair if name)


def _unsplit(record: Record, name: str, value: Any) -> HsparityError:
    """E216: states side by side, and nothing that tells how wide one is."""
    return HsparityError(
        "E216",
        f"{record.path}: {name} is several states side by side, and nothing beside it tells how wide one is",
        (f"found     {parts.shape_of(value)}",),
        "say what they are, in order: --slots 1,9,17",
    )


def _fits(raw: Any) -> str | None:
    pair = _layout_of(raw)
    return f"data_<i>.ckpt with {_words(pair)}" if pair else None


def _recognise(look: Look) -> str | None:
    return listing.first(look, FILES, look.pickled, _fits)


READER = Reader(NAME, "SpecForge offline (0.1, 0.2)", _recognise, SpecForge)
