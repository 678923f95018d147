"""What engine dumps share: from one forward pass over a batch to the rows of each request."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from hsparity.capture.readers.base import Record, tensor_fault, wrong

if TYPE_CHECKING:
    import torch

# Modules whose output is as wide as the residual stream in every model.
AS_WIDE_AS_THE_STREAM = re.compile(
    r"(.*\.)?(embed_tokens|norm|input_layernorm|post_attention_layernorm|layers\.[0-9]+)(\.output(\.[0-9]+)?|\[[0-9]+\])?"
)


@dataclass(frozen=True, slots=True)
class Run:
    """The rows `first` to `stop` of a pass: one request's, from position `start` on."""

    first: int
    stop: int
    start: int

    @property
    def end(self) -> int:
        """One past the last position."""
        return self.start + self.stop - self.first


def requests(
    record: Record, positions: NDArray[np.int64], seq_lens: NDArray[np.int64]
) -> tuple[tuple[Run, ...], int]:
    """The requests of a pass in its order, and how many rows of padding follow them.

    `positions` int [R] of the rows, `seq_lens` int [B] of the requests after the pass. Raises E216 where the rows of a
    request do not lead up to its length.
    """
    found: list[Run] = []
    first = 0
    for i, length in enumerate(seq_lens.tolist()):
        start = int(positions[first]) if first < len(positions) else length
        stop = first + length - start
        # Whether the rows are there at all comes first: a length can be anything.
        known = start < length and stop <= len(positions)
        if not known or not np.array_equal(positions[first:stop], np.arange(start, length)):
            held = positions[first : first + 8].tolist()
            raise wrong(
                record, f"the rows of request {i} cannot be told", f"positions up to {length - 1}", f"{held}"
            )
        found.append(Run(first, stop, start))
        first = stop
    return tuple(found), len(positions) - first


def stream_like(
    record: Record, named: Iterable[tuple[str, torch.Tensor]], rows: int
) -> tuple[dict[str, torch.Tensor], int]:
    """The values that are as wide as the residual stream, [rows, H] of one dtype, and how many are so in another dtype.

    A label that comes again gets "#2" and so on. Raises E216 where nothing tells H.
    """
    wide: dict[str, torch.Tensor] = {}
    for label, value in named:
        if value.is_floating_point() and value.dim() == 2 and value.shape[0] == rows:
            if fault := tensor_fault(value):
                raise wrong(record, label, "a dense tensor", fault)
            again = sum(1 for known in wide if known.partition("#")[0] == label)
            wide[f"{label}#{again + 1}" if again else label] = value
    known = [v for label, v in wide.items() if AS_WIDE_AS_THE_STREAM.fullmatch(label)] or list(wide.values())
    widths = sorted({v.shape[1] for v in known})
    if len(widths) != 1:
        found = f"widths {', '.join(map(str, widths))}" if widths else f"no float values of {rows} rows"
        raise wrong(
            record, "no value tells the hidden size", "an output of embed_tokens, a norm or a layer", found
        )
    matching = {label: v for label, v in wide.items() if v.shape[1] == widths[0]}
    dtype = known[0].dtype
    kept = {label: v for label, v in matching.items() if v.dtype == dtype}
    return kept, len(matching) - len(kept)
