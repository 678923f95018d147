"""speculators v0 and v1: `data_<i>.pt`, for v1 beside `data_config.json`, as speculators 0.3 and 0.4 wrote them.

v1: `input_ids` int64 [T], `hidden_states` a list of [T, H] (the last is the verifier's last state), `loss_mask` [T].
v0: `hidden_state` [T, 3H] and `target` [T, H] in place of `hidden_states`; speculators 0.3 still reads it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

from hsparity.capture.readers import listing, parts, pickled
from hsparity.capture.readers.base import LAST, Dataset, Reader, Record, Said, Sample, Slot, wrong
from hsparity.capture.readers.look import Look, read_json
from hsparity.capture.shards import INT32_MAX
from hsparity.errors import HsparityError

NAME = "speculators-v1"
FILES = r"(.*/)?data_[0-9]+\.pt"
CONFIG = "data_config.json"


class SpeculatorsV1(Dataset):
    """See the module's docstring."""

    format = NAME
    last_normed = False  # 0.4 applies the verifier's norm itself

    def said(self) -> Said:
        unknown = ["whether the last state is normed"]
        if not self._ids:
            unknown.insert(0, f"layer ids ({self._config_fault or f'{CONFIG} lists none'})")
        version, model = (
            _text(self._config, "speculators_version"),
            _text(self._part("model"), "target_model_path"),
        )
        if not model:
            unknown.append("the model")
        notes = [
            "speculators 0.3 and 0.4 count layer outputs: id k is boundary k + 1, ascending whatever the list."
        ]
        if self._layout == "v0":
            unknown.append("which version wrote it")
            notes = [
                "v0 is speculators' first layout; what its three states are was never written down in it."
            ]
        else:
            notes.append(
                "The last state is stored before the final norm; 0.3 trained on it so, 0.4 norms it first."
            )
        # Of a version that is not told, what both have in common.
        either = "" if self._layout == "v0" else "0.3 or 0.4"
        return Said(
            "speculators",
            version or either,
            model,
            unknown=tuple(unknown),
            notes=(*listing.passed_over(self.look, FILES, numbers=True), *notes),
        )

    def records(self) -> Sequence[Record]:
        return listing.numbered(self.look, FILES)

    def read(self, record: Record) -> Sample:
        raw = parts.table(record, pickled.load(record.path), ("input_ids",))
        ids = parts.integers(record, raw["input_ids"], "input_ids")
        if (own := _layout_of(raw)) and own != self._layout:
            raise wrong(record, "another layout than the first file", self._layout, own)
        if self._layout == "v0":
            raw = parts.table(record, raw, ("hidden_state", "target"))
            target = parts.streams(record, raw["target"], "target", rows=len(ids), count=1)
            width = target[0].shape[1]
            fused = parts.streams(record, raw["hidden_state"], "hidden_state", rows=len(ids), width=width)
            states = (*fused, *target)
        else:
            listed = parts.table(record, raw, ("hidden_states",))["hidden_states"]
            if not isinstance(listed, (list, tuple)):
                raise wrong(record, "hidden_states", "a list of [T, H]", parts.shape_of(listed))
            states = parts.streams(record, listed, "hidden_states", rows=len(ids))
        mask = parts.mask(record, raw.get("loss_mask"), len(ids))
        return Sample(ids, states, loss_mask=mask, warnings=self._doubts(len(states)))

    def slots(self, sample: Sample) -> tuple[Slot, ...]:
        count = len(sample.states)
        ids = dict(enumerate(self._ids)) if len(self._ids) == count else {}
        if self._layout == "v0":
            return (*(Slot(f"hidden_state[{i}]") for i in range(count - 1)), Slot("target", LAST))
        return tuple(
            Slot(f"hidden_states[{i}]", LAST if i == count - 1 else "aux", ids.get(i)) for i in range(count)
        )

    def _doubts(self, count: int) -> tuple[str, ...]:
        """Where the configuration is of other files than these."""
        if not self._ids or len(self._ids) == count:
            return ()
        listed = ", ".join(map(str, self._ids))
        return (f"{CONFIG} lists {len(self._ids)} layers ({listed}), it holds {count} states",)

    @cached_property
    def _layout(self) -> str:
        """ "v0" or "v1": that of the first file that shows one."""
        return listing.first(self.look, FILES, self.look.pickled, _layout_of) or "v1"

    @cached_property
    def _found(self) -> tuple[Mapping[str, Any], str]:
        """data_config.json, and what is wrong with it."""
        names = self.look.matching(FILES)
        # Beside the data, also where the folder above was named.
        file = (self.look.file(names[0]) if names else self.path / CONFIG).parent / CONFIG
        if not file.is_file():
            return {}, f"no {CONFIG}"
        try:
            found = read_json(file)
        except HsparityError:
            return {}, f"{CONFIG} cannot be read"
        return (found, "") if isinstance(found, dict) else ({}, f"{CONFIG} cannot be read")

    @property
    def _config(self) -> Mapping[str, Any]:
        return self._found[0]

    @property
    def _config_fault(self) -> str:
        return self._found[1]

    def _part(self, name: str) -> Mapping[str, Any]:
        part = self._config.get(name)
        return part if isinstance(part, dict) else {}

    @cached_property
    def _ids(self) -> tuple[int, ...]:
        """The ids of every state, the last included, as the states come: the worker keeps a set of them and stores a
        layer's state as it passes (data_generation/custom_worker.py)."""
        ids = self._part("hidden_states").get("layer_ids")
        if isinstance(ids, list) and all(type(i) is int and 0 <= i <= INT32_MAX for i in ids):
            return tuple(sorted(set(ids)))
        return ()


def _text(config: Mapping[str, Any], key: str) -> str:
    value = config.get(key)
    return value if isinstance(value, str) else ""


def _layout_of(raw: Any) -> str | None:
    if not isinstance(raw, Mapping) or "input_ids" not in raw:
        return None
    listed = raw.get("hidden_states")
    if isinstance(listed, list) and all(getattr(state, "ndim", 2) == 2 for state in listed):
        return "v1"
    return "v0" if {"hidden_state", "target"} <= set(raw) else None


def _recognise(look: Look) -> str | None:
    layout = listing.first(look, FILES, look.pickled, _layout_of)
    if layout == "v0":
        return "data_<i>.pt with hidden_state and target (v0)"
    if layout == "v1":
        return "data_<i>.pt with a list hidden_states" + (f" and {CONFIG}" if CONFIG in look.names else "")
    return None


READER = Reader(NAME, "speculators v1 (0.3, 0.4)", _recognise, SpeculatorsV1)
