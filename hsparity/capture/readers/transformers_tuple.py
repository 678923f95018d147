"""Transformers' `hidden_states` tuples, saved by whoever called the model.

torch.save: a tuple or list of [B, T, H], or a dict with it as `hidden_states` beside `input_ids` [B, T] and
`attention_mask` [B, T]. safetensors: `hidden_states.0` (or `hidden_states_0`) and so on, [B, T, H] or [T, H], beside
the same. Entries that were not asked for are None, or absent.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hsparity.capture.readers import listing, parts, pickled
from hsparity.capture.readers.base import (
    AUX,
    LAST,
    Dataset,
    Reader,
    Record,
    Said,
    Sample,
    Slot,
    guarded,
    tensor_fault,
    wrong,
)
from hsparity.capture.readers.look import Look
from hsparity.capture.shards import Tensor, read_header
from hsparity.errors import HsparityError

if TYPE_CHECKING:
    import torch

NAME = "transformers"
STATES = "hidden_states"
PICKLED = r"(.*/)?[^/]+\.(pt|pth|bin|pkl)"
TENSORS = r"(.*/)?[^/]+\.safetensors"
ANY = f"{PICKLED}|{TENSORS}"
NUMBERED = re.compile(STATES + r"[._]([0-9]{1,6})")


class TransformersTuple(Dataset):
    """See the module's docstring."""

    format = NAME

    def __init__(self, path: Path, spelled: str) -> None:
        super().__init__(path, spelled)
        self._kept = parts.Kept(pickled.load)

    def said(self) -> Said:
        return Said(
            producer="hf",
            unknown=(
                "whether entry 0 is the embedding or the output of layer 0",
                "whether the last entry is normed",
                "model",
                "version",
            ),
            notes=(
                *listing.passed_over(self.look, ANY),
                "Transformers' hidden_states[i] is boundary i, the embedding being 0; asked for by a list of ids in 5.17 "
                "to 5.22 it is boundary i + 1, without the embedding",
                "the last entry is the state after the final norm, by Transformers' convention; "
                "tie_last_hidden_states=False (5.18 on) leaves it before the norm",
            ),
        )

    def records(self) -> Sequence[Record]:
        return self._records

    @cached_property
    def _records(self) -> tuple[Record, ...]:
        return listing.several(self.look, ANY, self._batch)

    def _batch(self, path: Path) -> int:
        """How many samples a file holds; 1 for one that cannot be read, so that reading it says why."""
        try:
            with guarded(path):
                if path.suffix == ".safetensors":
                    headers = read_header(path)
                    shapes = [t.shape for key, t in headers.items() if NUMBERED.fullmatch(key)]
                    held = path.stat().st_size
                else:
                    entries, _ = split(self._kept.get(path))
                    shapes = [tuple(e.shape) for e in entries.values()]
                    held = max((e.untyped_storage().nbytes() for e in entries.values()), default=0)
        except HsparityError:
            return 1
        # A header can claim any number of samples without rows.
        return max((s[0] for s in shapes if len(s) == 3 and 0 < math.prod(s) <= held), default=1)

    def read(self, record: Record) -> Sample:
        if record.path.suffix == ".safetensors":
            content: Any = parts.safetensors(record)
        else:
            content = self._kept.get(record.path)
        entries, beside = split(content)
        if not entries:
            raise wrong(record, "no hidden_states", "a tuple of [1, T, H]", parts.shape_of(content))
        shapes = {parts.shape_of(e): e for e in entries.values()}
        first = next(iter(entries.values()))
        if len(shapes) > 1 or first.dim() not in (2, 3):
            raise wrong(record, STATES, "states [1, T, H] of one shape and dtype", ", ".join([*shapes][:4]))
        if not first.numel():
            raise wrong(record, STATES, "at least one row", parts.shape_of(first))
        batch = first.shape[0] if first.dim() == 3 else 1
        if not record.part < batch:
            raise wrong(record, STATES, f"at least {record.part + 1} samples", parts.shape_of(first))
        length = first.shape[-2]
        ids = _of(record, beside, "input_ids", batch, length)
        kept = _of(record, beside, "attention_mask", batch, length)
        if batch > 1 and kept is None:
            raise wrong(
                record,
                f"{batch} samples side by side, and nothing says what is padding",
                "attention_mask [B, T]",
                "none",
            )
        rows = np.flatnonzero(kept) if kept is not None else None
        if rows is not None and not len(rows):
            raise wrong(record, "attention_mask", "tokens", "padding alone")
        numbers = sorted(entries)
        states = []
        for number in numbers:
            entry = entries[number]
            one = entry[record.part] if entry.dim() == 3 else entry
            (state,) = parts.streams(record, one, f"{STATES}[{number}]", rows=length, count=1)
            states.append(state if rows is None or len(rows) == length else state[rows])
        if ids is not None and rows is not None:
            ids = ids[rows]
        last = _length(content, numbers) - 1
        slots = tuple(Slot(f"{STATES}[{n}]", LAST if n == last else AUX, native_id=n) for n in numbers)
        return parts.Placed(ids, tuple(states), places=slots)

    def slots(self, sample: Sample) -> tuple[Slot, ...]:
        return parts.places(sample)


def split(content: Any) -> tuple[dict[int, torch.Tensor], Mapping[str, Any]]:
    """The tensors of a file by their number in the tuple, and what lies beside them; {} where it holds no such tuple."""
    import torch

    beside: Mapping[str, Any] = content if isinstance(content, Mapping) else {}
    if isinstance(content, Mapping) and STATES not in content:
        numbered = {m: value for key, value in content.items() if (m := NUMBERED.fullmatch(str(key)))}
        return {int(m[1]): v for m, v in numbered.items() if isinstance(v, torch.Tensor)}, beside
    states = content[STATES] if isinstance(content, Mapping) else content
    if not isinstance(states, (list, tuple)):
        return {}, beside
    if not all(e is None or isinstance(e, torch.Tensor) for e in states):
        return {}, beside
    return {i: e for i, e in enumerate(states) if e is not None}, beside


def _length(content: Any, numbers: Sequence[int]) -> int:
    """How long the tuple was, None entries counted; 0 where a choice of numbered entries does not tell."""
    if not isinstance(content, Mapping) or STATES in content:
        return len(content[STATES] if isinstance(content, Mapping) else content)
    return len(numbers) if list(numbers) == list(range(len(numbers))) else 0


def _of(record: Record, beside: Mapping[str, Any], key: str, batch: int, length: int) -> Any:
    """The sample's row of `input_ids` or `attention_mask`, int64 [T]; None where there is none."""
    import torch

    value = beside.get(key)
    if value is None:
        return None
    if isinstance(value, torch.Tensor) and value.dim() == 2 and value.shape[0] == batch:
        value = value[record.part]
        if value.dtype == torch.bool and not tensor_fault(value):
            value = value.to(torch.int64)
    return parts.integers(record, value, key, length)


def _recognise(look: Look) -> str | None:
    return listing.first(look, TENSORS, look.tensors, _says_tensors) or listing.first(
        look, PICKLED, look.pickled, _says_pickled
    )


def _says_tensors(headers: Mapping[str, Tensor]) -> str | None:
    count = sum(1 for key in headers if NUMBERED.fullmatch(key))
    return f"safetensors with {STATES}.0 and so on, {count} of them" if count else None


def _says_pickled(content: Any) -> str | None:
    entries, beside = split(content)
    # A bare tuple of matrices could be anything, and a list of them beside ids is speculators'.
    ranks = (2, 3) if beside and not isinstance(beside.get(STATES), list) else (3,)
    if len(entries) < 2 or not all(e.dim() in ranks for e in entries.values()):
        return None
    return f"a tuple of {len(entries)} states [B, T, H]"


READER = Reader(NAME, "Transformers hidden_states", _recognise, TransformersTuple)
