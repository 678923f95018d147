"""speculators v0 and v1: `data_<i>.pt` beside `data_config.json`, as speculators 0.3 and 0.4 wrote them.

v1: `input_ids` int64 [T], `hidden_states` a list of [T, H] (the last is the verifier's last state), `loss_mask` [T].
v0: `hidden_state` [T, 3H] and `target` [T, H] in place of `hidden_states`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from hsparity.capture.readers import parts, pickled
from hsparity.capture.readers.base import LAST, Dataset, Reader, Record, Said, Sample, Slot
from hsparity.capture.readers.look import Look, number_in, read_json

NAME = "speculators-v1"
FILES = r"(.*/)?data_\d+\.pt"
CONFIG = "data_config.json"


class SpeculatorsV1(Dataset):
    """See the module's docstring."""

    format = NAME

    def said(self) -> Said:
        config = self._config
        version = str(config.get("version", "") or "")
        ids = self._ids
        unknown = ["whether the last state is normed"]
        if not ids:
            unknown.insert(0, f"layer ids ({CONFIG} has none)")
        return Said(
            producer="speculators",
            version=version or "0.4.0",
            model=_text(config, "model_id", "target_model", "model", "verifier_name_or_path"),
            unknown=tuple(unknown),
            notes=("speculators 0.3 and 0.4 count layer outputs: id k is boundary k + 1",),
            settings={"native_ids": list(ids)} if ids else {},
        )

    def records(self) -> Sequence[Record]:
        look = Look(self.path)
        return tuple(
            Record(
                Path(name).stem if "/" not in name else name.removesuffix(".pt"),
                number_in(name),
                look.file(name),
            )
            for name in look.matching(FILES)
        )

    def read(self, record: Record) -> Sample:
        raw = parts.table(record, pickled.load(record.path), ("input_ids",))
        ids = parts.integers(record, raw["input_ids"], "input_ids")
        if "hidden_states" in raw:
            states = parts.streams(record, raw["hidden_states"], "hidden_states", rows=len(ids))
        else:
            raw = parts.table(record, raw, ("hidden_state", "target"))
            target = parts.streams(record, raw["target"], "target", rows=len(ids), count=1)
            width = target[0].shape[1]
            fused = parts.streams(record, raw["hidden_state"], "hidden_state", rows=len(ids), width=width)
            states = (*fused, *target)
        return Sample(ids, states, loss_mask=parts.mask(record, raw.get("loss_mask"), len(ids)))

    def slots(self, sample: Sample) -> tuple[Slot, ...]:
        count = len(sample.states)
        ids = self._ids
        # The ids listed are those of every state, or of all but the last.
        known = dict(enumerate(ids)) if len(ids) in (count, count - 1) else {}
        return tuple(
            Slot(f"hidden_states[{i}]", LAST if i == count - 1 else "aux", known.get(i)) for i in range(count)
        )

    @cached_property
    def _config(self) -> Mapping[str, Any]:
        folder = self.path if self.path.is_dir() else self.path.parent
        file = folder / CONFIG
        found = read_json(file) if file.is_file() else {}
        return found if isinstance(found, dict) else {}

    @cached_property
    def _ids(self) -> tuple[int, ...]:
        config = self._config
        for scope in (config, *(v for v in config.values() if isinstance(v, dict))):
            for key in ("layer_ids", "target_layer_ids", "eagle_aux_hidden_state_layer_ids"):
                value = scope.get(key)
                if isinstance(value, list) and value and all(type(i) is int for i in value):
                    return tuple(value)
        return ()


def _text(config: Mapping[str, Any], *keys: str) -> str:
    scopes = (config, *(v for v in config.values() if isinstance(v, dict)))
    return next((str(s[k]) for s in scopes for k in keys if isinstance(s.get(k), str)), "")


def _recognise(look: Look) -> str | None:
    raw = look.pickled(FILES)
    if not isinstance(raw, Mapping) or "input_ids" not in raw:
        return None
    if isinstance(raw.get("hidden_states"), list):
        return "data_<i>.pt with a list hidden_states" + (f" and {CONFIG}" if CONFIG in look.names else "")
    if {"hidden_state", "target"} <= set(raw):
        return "data_<i>.pt with hidden_state and target (v0)"
    return None


READER = Reader(NAME, "speculators v1 (0.3, 0.4)", _recognise, SpeculatorsV1)
