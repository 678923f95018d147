"""ModelOpt's collected hidden states: `<conversation_id>.pt`, a dict each.

`input_ids` int64 [T], `hidden_states` [T, H] (the last state), `aux_hidden_states` [T, k x H], `loss_mask` [T] and
`conversation_id`; `hidden_states_prenorm` True where the last state was taken before the norm. Dumps made through
older TensorRT-LLM name the aux states `hidden_state_features`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hsparity.capture.readers import listing, parts, pickled
from hsparity.capture.readers.base import LAST, Dataset, Reader, Record, Said, Sample, Slot
from hsparity.capture.readers.look import Look

NAME = "modelopt"
FILES = r"(.*/)?[^/]+\.pt"
AUX_KEYS = ("aux_hidden_states", "hidden_state_features")


class ModelOpt(Dataset):
    """See the module's docstring."""

    format = NAME

    def said(self) -> Said:
        return Said(
            producer=NAME,
            unknown=(
                "layer ids",
                "whether the last state is normed, unless hidden_states_prenorm says so",
                "which engine computed the states",
                "model",
                "version",
            ),
            notes=(
                *listing.passed_over(self.look, FILES),
                "ModelOpt's dumps through Transformers and TensorRT-LLM count layer outputs, id k being boundary k + 1; "
                "its dump through vLLM hands the same ids over as boundary k",
                "the last state of a dump through vLLM is taken before the norm, and no hidden_states_prenorm says so",
            ),
        )

    def records(self) -> Sequence[Record]:
        return listing.in_order(self.look, FILES)

    def read(self, record: Record) -> Sample:
        raw = parts.table(record, pickled.load(record.path), ("input_ids", "hidden_states"))
        name = aux_key(raw) or AUX_KEYS[0]
        parts.table(record, raw, (name,))
        ids = parts.integers(record, raw["input_ids"], "input_ids")
        aux, last = parts.last_and_aux(
            record, ("hidden_states", raw["hidden_states"]), (name, raw[name]), len(ids)
        )
        # Only the flag itself says anything: dumps of un-normed states without it are about.
        normed = False if raw.get("hidden_states_prenorm") is True else None
        return parts.Placed(
            ids,
            (*aux, last),
            loss_mask=parts.mask(record, raw.get("loss_mask"), len(ids)),
            places=(
                *(Slot(f"{name}[{i}]") for i in range(len(aux))),
                Slot("hidden_states", LAST, normed=normed),
            ),
        )

    def slots(self, sample: Sample) -> tuple[Slot, ...]:
        return parts.places(sample)


def aux_key(raw: Mapping[str, Any]) -> str | None:
    """The name under which a file holds its aux states."""
    return next((key for key in AUX_KEYS if key in raw), None)


def _recognise(look: Look) -> str | None:
    return listing.first(look, FILES, look.pickled, _says)


def _says(raw: Any) -> str | None:
    import torch

    if not isinstance(raw, Mapping) or not {"input_ids", "hidden_states"} <= set(raw):
        return None
    name = aux_key(raw)
    if name is None or not all(isinstance(raw[key], torch.Tensor) for key in (name, "hidden_states")):
        return None
    return f".pt files with hidden_states beside {name}"


READER = Reader(NAME, "ModelOpt hidden states", _recognise, ModelOpt)
