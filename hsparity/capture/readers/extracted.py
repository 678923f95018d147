"""What vLLM's hidden-state extraction leaves, in three formats: safetensors files of `hidden_states` [T, n, H] and
`token_ids` [T], where slot i is the i-th of the ids that were asked for, in ascending order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from hsparity.capture.readers import arrow_rows, listing, parts
from hsparity.capture.readers.arrow_rows import ArrowRows
from hsparity.capture.readers.base import LAST, Dataset, Record, Sample, Slot, wrong
from hsparity.capture.shards import Tensor

if TYPE_CHECKING:
    import torch

STATES, TOKENS, SCALES = "hidden_states", "token_ids", "hidden_states_scales"
NUMBERED = r"(.*/)?hs_[0-9]+\.safetensors"  # as speculators names them: by row of its dataset
ANY = r".*\.safetensors"
UNKNOWN = ("layer ids", "the model", "whether the last state is normed")


def layout_of(tensors: Mapping[str, Tensor]) -> str | None:
    """ "bf16 [T, n, H]" in a few words where a header is of this family; scales or none."""
    if not {STATES, TOKENS} <= set(tensors) <= {STATES, TOKENS, SCALES}:
        return None
    states, tokens = tensors[STATES], tensors[TOKENS]
    if len(states.shape) != 3 or len(tokens.shape) != 1:
        return None
    return f"{STATES} {states.dtype} {list(states.shape)}"


class Extracted(Dataset):
    """A folder of such files, or one."""

    def records(self) -> Sequence[Record]:
        return listing.numbered(self.look, NUMBERED) if self._numbered else listing.in_order(self.look, ANY)

    def read(self, record: Record) -> Sample:
        tensors = parts.table(record, parts.safetensors(record), (STATES, TOKENS))
        ids = parts.integers(record, tensors[TOKENS], TOKENS)
        held = tensors[STATES]
        if held.dim() != 3:
            raise wrong(record, STATES, "[tokens, slots, hidden]", parts.shape_of(held))
        states = parts.streams(record, self._values(record, tensors), STATES, rows=len(ids))
        return Sample(ids, states)

    def slots(self, sample: Sample) -> tuple[Slot, ...]:
        last = len(sample.states) - 1 if self._numbered else -1
        return tuple(
            Slot(f"{STATES}[:, {i}]", LAST if i == last else "aux") for i in range(len(sample.states))
        )

    def _values(self, record: Record, tensors: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """The states in the dtype that they stand for."""
        held = tensors[STATES]
        if SCALES in tensors or held.element_size() == 1:
            found = parts.shape_of(held) + (f" and {SCALES}" if SCALES in tensors else " without scales")
            raise wrong(record, STATES, "states as the model computed them", found)
        return held

    def _passed(self) -> tuple[str, ...]:
        """Notes on files that are no samples though they look so."""
        return listing.passed_over(self.look, NUMBERED if self._numbered else ANY, numbers=self._numbered)

    @cached_property
    def _numbered(self) -> bool:
        """Whether the files bear speculators' names: then the last slot is the last state, which it always adds."""
        return bool(self.look.matching(NUMBERED))


class WithRows(Extracted):
    """Such files beside the dataset that speculators made them from: file i belongs to its row i."""

    def read(self, record: Record) -> Sample:
        sample = super().read(record)
        rows = self._rows if self._numbered else None
        assert sample.token_ids is not None
        if rows is None or rows.fault:
            return sample
        count = len(sample.token_ids)
        try:
            ids = rows.row(record.index, "input_ids")
            mask = rows.row(record.index, "loss_mask")
        except IndexError:
            raise wrong(
                record,
                f"no row {record.index} in the dataset beside it",
                f"a row of {len(rows)}",
                record.path.name,
            ) from None
        if ids is not None:
            _same(record, parts.integers(record, ids, "input_ids of the dataset's row"), sample.token_ids)
        return Sample(sample.token_ids, sample.states, loss_mask=parts.mask(record, mask, count))

    def _missing(self) -> tuple[str, ...]:
        """What the dataset would tell, where it cannot be read."""
        if not self._numbered:
            return ("the loss mask",)
        rows, why = self._found
        if rows is None:
            return (f"the loss mask ({why})",)
        return (f"the loss mask ({rows.fault})",) if rows.fault else ()

    @cached_property
    def _found(self) -> tuple[ArrowRows | None, str]:
        return arrow_rows.beside(self.look)

    @property
    def _rows(self) -> ArrowRows | None:
        return self._found[0]


def _same(record: Record, row: np.ndarray, file: np.ndarray) -> None:
    """Raises E216 where a file's tokens are not those of its row."""
    shared = min(len(row), len(file))
    apart = np.flatnonzero(row[:shared] != file[:shared])
    if not len(apart) and len(row) == len(file):
        return
    what = [f"{len(row)} ids in row {record.index}", f"{len(file)} {TOKENS} in the file"]
    if len(apart):
        first = int(apart[0])
        what[0] += f", {int(row[first])} at position {first}"
        what[1] += f", {int(file[first])} at position {first}"
    first_apart = f"first at position {int(apart[0])}" if len(apart) else "in length only"
    raise wrong(record, f"its tokens are not those of its row, {first_apart}", what[0], what[1])
