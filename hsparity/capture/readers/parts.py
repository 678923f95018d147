"""From what a file holds to the parts of a sample, checked: ids, masks, states split into slots."""

from __future__ import annotations

import fcntl
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hsparity.capture.readers.base import Record, Sample, Slot, tensor_fault, wrong
from hsparity.capture.shards import INT32_MAX, read_header
from hsparity.errors import HsparityError

if TYPE_CHECKING:
    import torch


MOST = 1 << 24  # token ids of one sample in a list
MOST_SLOTS = 1 << 14


def table(record: Record, content: Any, needed: Sequence[str]) -> Mapping[str, Any]:
    """A file's content as a mapping that has the needed keys. Raises E216."""
    if not isinstance(content, Mapping):
        raise wrong(record, "no table of tensors", f"a dict with {', '.join(needed)}", shape_of(content))
    if missing := [key for key in needed if key not in content]:
        found = _keys(content, 12) or "nothing"
        raise wrong(record, f"lacks {', '.join(missing)}", ", ".join(needed), found)
    return content


def integers(record: Record, value: Any, name: str, length: int | None = None) -> NDArray[np.int64]:
    """Token ids or positions, int64 [T], from a tensor or list [T] or [1, T]. Raises E216."""
    import torch

    tensor = _flat(record, value, name, "integers [T]")
    if tensor.dim() == 2 and tensor.shape[0] == 1:
        tensor = tensor[0]
    if tensor.dim() != 1 or tensor.is_floating_point() or tensor.dtype == torch.bool or tensor.is_complex():
        raise wrong(record, name, "integers [T]", shape_of(tensor))
    found: NDArray[np.int64] = tensor.to(torch.int64).numpy()
    if len(found) and not 0 <= found.min() <= found.max() <= INT32_MAX:
        raise wrong(record, f"{name} out of range", f"0 to {INT32_MAX}", f"{found.min()} to {found.max()}")
    if length is not None and len(found) != length:
        raise wrong(record, f"{name} has another length", f"{length} of them", f"{len(found)}")
    return found


def mask(record: Record, value: Any, length: int, name: str = "loss_mask") -> NDArray[np.uint8] | None:
    """A loss mask, 0 or 1 [T], other whole numbers counting as 1; None where there is none. Raises E216."""
    import torch

    if value is None:
        return None
    tensor = _flat(record, value, name, f"0 or 1 [{length}]")
    if tensor.dim() == 2 and 1 in tensor.shape:
        tensor = tensor.reshape(-1)
    if tensor.dim() != 1 or len(tensor) != length:
        raise wrong(record, f"{name} has another length", f"[{length}] like the token ids", shape_of(tensor))
    # A null of Arrow's is a NaN by now, and that is not 0 either.
    if tensor.is_complex() or (tensor.is_floating_point() and bool((tensor - tensor.round() != 0).any())):
        raise wrong(record, f"{name} holds neither 0 nor 1", f"0 or 1 [{length}]", "fractions or nulls")
    return (tensor != 0).to(torch.uint8).numpy()


def _flat(record: Record, value: Any, name: str, expected: str) -> torch.Tensor:
    """A dense tensor, or a list [T] or [1, T], as a tensor. Raises E216."""
    import torch

    if isinstance(value, torch.Tensor):
        if fault := tensor_fault(value):
            raise wrong(record, name, expected, fault)
        return value
    # A few bytes of a pickle can nest a list in itself, or a thousand times in the next: counted before it is unfolded.
    rows = value if isinstance(value, (list, tuple)) else ()
    inner = [each for each in rows if isinstance(each, (list, tuple))]
    total = len(rows) + sum(map(len, inner))
    if total > MOST or any(isinstance(each, (list, tuple)) for row in inner for each in row):
        raise wrong(record, name, expected, f"{shape_of(value)}, nested")
    try:
        return torch.as_tensor(value)
    except (TypeError, ValueError, RuntimeError, OverflowError):
        raise wrong(record, name, expected, shape_of(value)) from None


def streams(
    record: Record,
    value: Any,
    name: str,
    *,
    rows: int | None = None,
    width: int | None = None,
    count: int | None = None,
) -> tuple[torch.Tensor, ...]:
    """States as one [R, H] tensor per slot.

    `value`: a list of [R, H]; [R, n, H]; [R, n x H] where `width` (H) or `count` (n) says how it splits; each also with
    a leading 1. Raises E216, also for a dtype that no state has.
    """
    import torch

    if isinstance(value, (list, tuple)):
        if len(value) > MOST_SLOTS or any(isinstance(each, (list, tuple)) for each in value):
            raise wrong(
                record, name, "a list of states [rows, hidden]", f"{shape_of(value)}, nested or too long"
            )
        parts = [part for each in value for part in streams(record, each, name, rows=rows, count=1)]
        if not parts or len({part.shape for part in parts}) > 1 or len({part.dtype for part in parts}) > 1:
            shapes = sorted({shape_of(part) for part in parts}) or ["an empty list"]
            raise wrong(record, name, "states of one shape and dtype", ", ".join(shapes[:4]))
        return tuple(parts)
    if not isinstance(value, torch.Tensor):
        raise wrong(record, name, "a tensor of states", shape_of(value))
    if fault := tensor_fault(value):
        raise wrong(record, name, "a tensor of states", fault)
    if not value.is_floating_point():
        hint = (
            "; bf16 bits? tensor.view(torch.bfloat16) brings them back" if value.element_size() == 2 else ""
        )
        raise wrong(record, name, "floating point", shape_of(value) + hint)
    value = value.detach()
    found = (
        value[0]
        if value.dim() in (3, 4) and value.shape[0] == 1 and (value.dim() == 4 or rows != 1)
        else value
    )
    if found.dim() == 2:
        wide = found.shape[1]
        pieces = count or (wide // width if width else 1)
        if pieces < 1 or wide % pieces or (width and wide != pieces * width):
            wanted = f"a multiple of {width}" if width else f"{pieces} states side by side"
            raise wrong(record, f"{name} is of another width", wanted, shape_of(value))
        found = found.reshape(found.shape[0], pieces, wide // pieces)
    if found.dim() != 3 or not found.shape[1] or not found.shape[2]:
        raise wrong(record, name, "[rows, hidden] or [rows, slots, hidden]", shape_of(value))
    if rows is not None and found.shape[0] != rows:
        raise wrong(
            record, f"{name} has another number of rows", f"{rows}, one for each token", shape_of(value)
        )
    if width and found.shape[2] != width:
        raise wrong(record, f"{name} is of another width", f"hidden size {width}", shape_of(value))
    return tuple(found[:, i] for i in range(found.shape[1]))


def safetensors(record: Record) -> dict[str, torch.Tensor]:
    """Every tensor of a safetensors file. Raises E206, and E218 while another process writes it."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    refuse_locked(record.path)
    read_header(record.path)
    try:
        return dict(load_file(record.path))
    except (SafetensorError, OSError, ValueError, RuntimeError) as error:
        raise HsparityError(
            "E206", f"shard is truncated or damaged: {record.path}", (str(error)[:160],)
        ) from None


def refuse_locked(path: Path) -> None:
    """Raises E218 while the producer holds the lock file beside `path` (vLLM's connector does so as it writes)."""
    beside = path.with_name(path.name + ".lock")
    if not beside.is_file():
        return
    try:
        with beside.open("rb") as handle:
            fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        raise HsparityError(
            "E218",
            f"{path} is still being written",
            (f"another process holds {beside.name}",),
            "wait for the engine to finish the request, then try again",
        ) from None
    except OSError:
        return  # a lock that cannot be opened says nothing


def shape_of(value: Any) -> str:
    """A value in a few words: "bfloat16 [12, 256]", "a list of 3"."""
    import torch

    if isinstance(value, torch.Tensor):
        return f"{str(value.dtype).removeprefix('torch.')} {list(value.shape)}"
    if isinstance(value, (list, tuple)):
        return f"a list of {len(value)}"
    if isinstance(value, Mapping):
        return f"a dict with {_keys(value, 8)}"
    return "nothing" if value is None else type(value).__name__


def _keys(table: Mapping[Any, Any], most: int) -> str:
    """The first keys; what is neither text nor a number by its type alone: it may be endless."""
    return ", ".join(
        str(key)[:60]
        if isinstance(key, str) or (type(key) is int and abs(key) < 1 << 64)
        else type(key).__name__
        for key in islice(table, most)
    )


def last_and_aux(
    record: Record, last: tuple[str, Any], aux: tuple[str, Any], rows: int
) -> tuple[tuple[torch.Tensor, ...], torch.Tensor]:
    """The aux states, one [R, H] each, and the last state [R, H], whose width says how aux [R, n x H] splits.

    Each comes as (name, value). Raises E216.
    """
    (state,) = streams(record, last[1], last[0], rows=rows, count=1)
    return streams(record, aux[1], aux[0], rows=rows, width=state.shape[1]), state


@dataclass(frozen=True, slots=True, eq=False)
class Placed(Sample):
    """A sample of a format whose places may differ from file to file: it brings them along."""

    places: tuple[Slot, ...] = ()


def places(sample: Sample) -> tuple[Slot, ...]:
    """The places that a sample brought along."""
    return sample.places if isinstance(sample, Placed) else ()


class Kept:
    """Remembers the content of the file opened last: a file of several samples is opened once."""

    def __init__(self, load: Callable[[Path], Any]) -> None:
        self._load = load
        self._path: Path | None = None
        self._content: Any = None

    def get(self, path: Path) -> Any:
        """Raises what the loader raises."""
        if path != self._path:
            self._path = self._content = None
            self._content = self._load(path)
            self._path = path
        return self._content
