"""Where tensors lie in safetensors files, and reading their rows by pread into buffers that the caller
reuses."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hsparity.errors import HsparityError

if TYPE_CHECKING:
    import torch

ITEM_BYTES = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2, "F8_E4M3": 1, "F8_E5M2": 1, "I64": 8, "I32": 4}
INTEGERS = ("I64", "I32")
FLOATS = ("F64", "F32", "F16", "BF16", "F8_E4M3", "F8_E5M2")
# The names that manifests use, and half a unit in the last place of each relative to the value.
DTYPE_NAMES = {
    "F64": "float64",
    "F32": "float32",
    "F16": "float16",
    "BF16": "bfloat16",
    "F8_E4M3": "float8_e4m3fn",
    "F8_E5M2": "float8_e5m2",
}
HALF_ULP = {
    "float64": 2.0**-25,  # compared in float32
    "float32": 2.0**-25,
    "float16": 2.0**-12,
    "bfloat16": 2.0**-9,
    "float8_e4m3fn": 2.0**-5,
    "float8_e5m2": 2.0**-4,
}
INT32_MAX = 2**31 - 1
HEADER_LIMIT = 100 << 20  # the safetensors format's own


@dataclass(frozen=True, slots=True)
class Span:
    """Rows of one tensor in one file: row i starts at `offset + i * stride` and is `width` items of `dtype`
    long."""

    path: Path
    offset: int
    rows: int
    width: int
    dtype: str  # "BF16", "F32", "I32", …
    stride: int  # bytes from one row to the next

    @property
    def row_bytes(self) -> int:
        return self.width * ITEM_BYTES[self.dtype]


@dataclass(frozen=True, slots=True)
class Tensor:
    """One entry of a safetensors header."""

    dtype: str
    shape: tuple[int, ...]
    offset: int  # from the start of the file


def read_header(path: Path) -> dict[str, Tensor]:
    """The tensors of a safetensors file, without reading them. Raises E206 when the file is missing, cut
    short or garbled."""
    try:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            length = int.from_bytes(file.read(8), "little")
            if size < 8 or length > min(HEADER_LIMIT, size - 8):
                raise _broken(path, f"{size} bytes, its header alone claims {length}")
            raw = json.loads(file.read(length))
        tensors = {n: _tensor(t, 8 + length, size) for n, t in raw.items() if n != "__metadata__"}
    except FileNotFoundError:
        raise HsparityError("E206", f"shard is missing: {path}", help=HELP) from None
    except (
        OSError,
        ValueError,
        KeyError,
        TypeError,
        AttributeError,
        IndexError,
        OverflowError,
        RecursionError,
    ) as error:
        raise _broken(path, f"its header cannot be read ({error})") from None
    return tensors


def _tensor(raw: Any, base: int, size: int) -> Tensor:
    """One header entry of a file of `size` bytes whose data start at `base`. Raises ValueError when it does
    not fit."""
    shape = tuple(map(int, raw["shape"]))
    first, stop = map(int, raw["data_offsets"])
    wanted = math.prod(shape) * ITEM_BYTES.get(raw["dtype"], 0)
    if first < 0 or min(shape, default=0) < 0 or stop < first + wanted or base + stop > size:
        raise ValueError(f"{raw['dtype']} {list(shape)} at bytes {first} to {stop} of {size - base}")
    return Tensor(raw["dtype"], shape, base + first)


HELP = "copy the folder again (rsync -c), or capture it again"


def _broken(path: Path, why: str) -> HsparityError:
    return HsparityError("E206", f"shard is truncated or damaged: {path}", (why,), HELP)


def runs_of(rows: NDArray[np.int64]) -> list[tuple[int, int, int]]:
    """Row indices as runs of consecutive rows: (first row, one past the last, place of the first in
    `rows`)."""
    if not len(rows):
        return []
    cuts = np.flatnonzero(np.diff(rows) != 1) + 1
    starts = np.concatenate(([0], cuts))
    stops = np.concatenate((cuts, [len(rows)]))
    return [(int(rows[a]), int(rows[a]) + int(b - a), int(a)) for a, b in zip(starts, stops, strict=True)]


def read_into(span: Span, runs: Sequence[tuple[int, int, int]], into: memoryview) -> None:
    """Fill `into` (bytes, row after row) with the rows of `runs`. Raises E206 when the file ends early."""
    row = span.row_bytes
    descriptor = os.open(span.path, os.O_RDONLY)
    try:
        for first, stop, place in runs:
            if span.stride == row:
                _fill(
                    descriptor,
                    into[place * row : (place + stop - first) * row],
                    span.offset + first * row,
                    span.path,
                )
                continue
            for i in range(stop - first):
                start = (place + i) * row
                _fill(
                    descriptor, into[start : start + row], span.offset + (first + i) * span.stride, span.path
                )
    finally:
        os.close(descriptor)


def _fill(descriptor: int, into: memoryview, offset: int, path: Path) -> None:
    done = 0
    while done < len(into):
        got = os.preadv(descriptor, [into[done:]], offset + done)
        if not got:
            raise _broken(path, f"ends before byte {offset + len(into)}")
        done += got


def read_integers(span: Span) -> NDArray[np.int32]:
    """A whole tensor of ids or positions as int32 [rows]. Raises ValueError for one below 0 or above
    2**31 - 1."""
    kind = {"I32": "<i4", "I64": "<i8"}[span.dtype]
    data = np.empty(span.rows, kind)
    if span.rows:
        read_into(span, [(0, span.rows, 0)], data.data.cast("B"))
    if len(data) and not 0 <= data.min() <= data.max() <= INT32_MAX:
        raise ValueError(f"{data.min()} to {data.max()}")
    return data.astype(np.int32)


def as_torch(data: torch.Tensor, dtype: str, width: int) -> torch.Tensor:
    """Bytes (uint8 [n * row bytes]) as [n, width] of a safetensors dtype, without a copy."""
    import torch

    kinds: dict[str, Any] = {
        "F64": torch.float64,
        "F32": torch.float32,
        "F16": torch.float16,
        "BF16": torch.bfloat16,
        "F8_E4M3": torch.float8_e4m3fn,
        "F8_E5M2": torch.float8_e5m2,
        "I64": torch.int64,
        "I32": torch.int32,
    }
    return data.view(kinds[dtype]).view(-1, width)
