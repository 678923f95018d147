"""TensorRT-LLM's save-hidden-states mode: `<prefix>_<iter>.pt`, a list of dicts, one for each request.

`id` (a running number), `input_ids` int64 [T], `hidden_state` [T, H] and, where more than one layer was captured,
`aux_hidden_states` [T, k x H] (`hidden_state_features` in older versions).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from hsparity.capture.readers import listing, parts, pickled
from hsparity.capture.readers.base import LAST, Dataset, Reader, Record, Said, Sample, Slot, guarded, wrong
from hsparity.capture.readers.look import Look
from hsparity.capture.readers.modelopt import aux_key
from hsparity.capture.shards import INT32_MAX
from hsparity.errors import HsparityError

NAME = "trtllm"
FILES = r"(.*/)?[^/]+_[0-9]+\.pt"


class TensorrtLlm(Dataset):
    """See the module's docstring."""

    format = NAME

    def __init__(self, path: Path, spelled: str) -> None:
        super().__init__(path, spelled)
        self._kept = parts.Kept(pickled.load)

    def said(self) -> Said:
        return Said(
            producer="tensorrt-llm",
            unknown=("layer ids", "whether the last state is normed", "model", "version"),
            notes=(
                *listing.passed_over(self.look, FILES),
                "TensorRT-LLM counts layer outputs: id k is boundary k + 1, ascending; id -1, the state after the "
                "final norm, goes last",
                "TensorRT-LLM's hidden_state is the state after the final norm, by its convention",
                "the mode cuts a request's rows from the start of a buffer: it assumes one request at a time, no chunked "
                "prefill and no block reuse",
            ),
        )

    def records(self) -> Sequence[Record]:
        return self._records

    @cached_property
    def _records(self) -> tuple[Record, ...]:
        found: list[tuple[str, Path, int, Any]] = []
        for name in self.look.matching(FILES):
            path, stem = self.look.file(name), name.removesuffix(".pt")
            try:
                with guarded(path):
                    content = self._kept.get(path)
            except HsparityError:
                content = None
            # What holds no list of requests is one record, so that reading it says what is wrong.
            entries = content if isinstance(content, list) and content else [None]
            for part, entry in enumerate(entries):
                number = entry.get("id") if isinstance(entry, Mapping) else None
                found.append((stem if len(entries) == 1 else f"{stem}[{part}]", path, part, number))
        numbers = [number for *_, number in found]
        # The running numbers show gaps, as long as no second prefix counts from the start again.
        if not all(type(n) is int and 0 <= n <= INT32_MAX for n in numbers) or len(set(numbers)) < len(
            numbers
        ):
            numbers = list(range(len(found)))
        records = [Record(i, n, path, part) for (i, path, part, _), n in zip(found, numbers, strict=True)]
        return tuple(sorted(records, key=lambda r: r.index))

    def read(self, record: Record) -> Sample:
        content = self._kept.get(record.path)
        if not isinstance(content, list) or not record.part < len(content):
            raise wrong(record, "no requests", "a list of dicts", parts.shape_of(content))
        raw = parts.table(record, content[record.part], ("input_ids", "hidden_state"))
        ids = parts.integers(record, raw["input_ids"], "input_ids")
        name = aux_key(raw)
        if name is None:
            states = parts.streams(record, raw["hidden_state"], "hidden_state", rows=len(ids), count=1)
            return parts.Placed(ids, states, places=(Slot("hidden_state", LAST),))
        aux, last = parts.last_and_aux(
            record, ("hidden_state", raw["hidden_state"]), (name, raw[name]), len(ids)
        )
        label = "hidden_state"
        # Where the last state is among the layers asked for, the file holds it a second time, as the last aux state.
        if len(aux) > 1 and _same(aux[-1], last):
            label = f"hidden_state and {name}[{len(aux) - 1}]"
            aux = aux[:-1]
        slots = (*(Slot(f"{name}[{i}]") for i in range(len(aux))), Slot(label, LAST))
        return parts.Placed(ids, (*aux, last), places=slots)

    def slots(self, sample: Sample) -> tuple[Slot, ...]:
        return parts.places(sample)


def _same(one: Any, other: Any) -> bool:
    """Whether two tensors of one shape and dtype hold the same bits."""
    import torch

    return torch.equal(one.contiguous().view(torch.uint8), other.contiguous().view(torch.uint8))


def _recognise(look: Look) -> str | None:
    return listing.first(look, FILES, look.pickled, _says)


def _says(raw: Any) -> str | None:
    if not isinstance(raw, list) or not raw or not isinstance(raw[0], Mapping):
        return None
    if not {"id", "input_ids", "hidden_state"} <= set(raw[0]):
        return None
    return f"<prefix>_<iter>.pt, a list of dicts with {', '.join(map(str, raw[0]))}"


READER = Reader(NAME, "TensorRT-LLM saved hidden states", _recognise, TensorrtLlm)
