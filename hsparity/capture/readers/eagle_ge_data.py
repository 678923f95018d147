"""EAGLE-1/2 ge_data: `<job>/data_<i>.ckpt` with `input_ids` [T], `hidden_state` [T, H] and `loss_mask` [T].

Written by eagle/ge_data/ge_data_all_*.py on EAGLE's branch v1: `hidden_states[-1]` of Transformers, in float16.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hsparity.capture.readers import listing, parts, pickled
from hsparity.capture.readers.base import LAST, Dataset, Reader, Record, Said, Sample, Slot
from hsparity.capture.readers.look import Look

NAME = "eagle-ge-data"
FILES = r"(.*/)?data_[0-9]+\.ckpt"
KEYS = ("input_ids", "hidden_state", "loss_mask")
OTHERS = {
    "aux_hidden_state",
    "hidden_states",
    "target",
}  # with one of these it is SpecForge's or speculators'


class EagleGeData(Dataset):
    """See the module's docstring."""

    format = NAME
    last_normed = True  # training applies the lm_head alone

    def said(self) -> Said:
        return Said(
            producer="eagle",
            unknown=("the model", "whether the state is normed"),
            notes=(
                *listing.passed_over(self.look, FILES, numbers=True),
                "By EAGLE's convention the one state is Transformers' hidden_states[-1]: the last, after the final"
                " norm, computed in float16.",
                "Each job numbers its own folder from 0.",
            ),
        )

    def records(self) -> Sequence[Record]:
        return listing.numbered(self.look, FILES)

    def read(self, record: Record) -> Sample:
        raw = parts.table(record, pickled.load(record.path), KEYS[:2])
        ids = parts.integers(record, raw["input_ids"], "input_ids")
        states = parts.streams(record, raw["hidden_state"], "hidden_state", rows=len(ids), count=1)
        return Sample(ids, states, loss_mask=parts.mask(record, raw.get("loss_mask"), len(ids)))

    def slots(self, sample: Sample) -> tuple[Slot, ...]:
        return (Slot("hidden_state", LAST),)


def _fits(raw: Any) -> str | None:
    if not isinstance(raw, Mapping) or not set(KEYS) <= set(raw) or OTHERS & set(raw):
        return None
    # SpecForge's have a leading axis.
    return "data_<i>.ckpt with one hidden_state" if getattr(raw["hidden_state"], "ndim", 0) == 2 else None


def _recognise(look: Look) -> str | None:
    return listing.first(look, FILES, look.pickled, _fits)


READER = Reader(NAME, "EAGLE-1/2 ge_data", _recognise, EagleGeData)
