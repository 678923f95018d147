"""What a reader of a foreign format declares, and what it hands over: a dataset of samples, read one at a time."""

from __future__ import annotations

import math
import stat
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import NDArray

from hsparity.capture.shards import DTYPE_NAMES
from hsparity.errors import HsparityError

if TYPE_CHECKING:
    import torch

    from hsparity.capture.readers.look import Look
    from hsparity.capture.source import Source

AUX, LAST = "aux", "last"


@dataclass(frozen=True, slots=True)
class Slot:
    """One place of a sample's states, as far as the files say what it is."""

    label: str  # the format's own name for it: "hidden_states[0]"
    role: str = AUX  # "aux": what a draft is fed; "last": what the target's lm_head is computed from
    native_id: int | None = None  # the producer's own id, where the files hold it
    normed: bool | None = None  # None: the files do not say
    site: str = ""  # a site key, where the files say that much (the plain form, captures)


@dataclass(frozen=True, slots=True)
class Record:
    """Where one sample is: enough to read it, cheap enough to list a million."""

    id: str  # unique in the dataset: "data_17"
    index: int  # its number in the dataset, ascending; gaps are missing samples
    path: Path  # the file that holds its states
    part: int = 0  # its place in a file that holds several
    side: Path | None = None  # a second file that belongs to it (a loss mask, ids)


def file_bytes(records: Sequence[Record]) -> int:
    """Bytes of the files that hold the records' states, each counted once."""
    return sum(path.stat().st_size for path in {r.path for r in records} if path.is_file())


@dataclass(frozen=True, slots=True, eq=False)
class Sample:
    """One sample, read whole.

    `token_ids` int [T], None where the files do not hold them. `states`: one [R, H] tensor per slot, in slot order, all
    of one dtype. `positions` int [R], None when row i is position i. `loss_mask` 0 or 1 [T]. `prefill`: how many of the
    T were the prompt, None for all of them.
    """

    token_ids: NDArray[np.int64] | None
    states: tuple[torch.Tensor, ...]
    positions: NDArray[np.int64] | None = None
    loss_mask: NDArray[np.uint8] | None = None
    prefill: int | None = None
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Said:
    """What the files say beside states. "" and None where they say nothing.

    `settings` go into the capture's; `modules`: a slot is some module's output, and need not be a boundary.
    """

    producer: str = ""  # "speculators": a name of `hsparity conventions` where there is one
    version: str = ""
    model: str = ""
    num_layers: int | None = None
    unknown: tuple[str, ...] = ()  # what a comparison would need and the files do not say, a phrase each
    notes: tuple[str, ...] = ()  # what a reader of the report should know of this format
    settings: Mapping[str, object] = field(default_factory=dict)


class Dataset(ABC):
    """A folder or file of samples in one format."""

    format: ClassVar[str]  # its reader's name
    last_normed: ClassVar[bool | None] = None  # what the format's trainer takes the last state to be

    claimed: int | None = (
        None  # how many auxiliary slots the user says there are, for files that do not say H
    )

    def __init__(self, path: Path, spelled: str) -> None:
        self.path, self.spelled = path, spelled

    @cached_property
    def look(self) -> Look:
        """What the path holds, listed once; whoever recognised the path hands over what it has listed."""
        from hsparity.capture.readers.look import Look

        return Look(self.path)

    @abstractmethod
    def said(self) -> Said:
        """What the files say; reads small files only."""

    @abstractmethod
    def records(self) -> Sequence[Record]:
        """Every sample there seems to be, by index; lists, and opens nothing large."""

    @abstractmethod
    def read(self, record: Record) -> Sample:
        """One sample. Raises HsparityError: E206 damaged, E216 not what the format promises, E217 holds code, E218 still
        being written."""

    @abstractmethod
    def slots(self, sample: Sample) -> tuple[Slot, ...]:
        """What the places of this sample's `states` are, as far as the files say."""


@dataclass(frozen=True, slots=True)
class Reader:
    """One format. `recognise` answers with the evidence in a few words, or None; `open` raises E2xx."""

    name: str  # as --format takes it: "speculators-v1"
    title: str  # as a report words it: "speculators v1 (0.3, 0.4)"
    recognise: Callable[[Look], str | None]
    open: Callable[[Path, str], Dataset | Source]

    def evidence(self, look: Look) -> str | None:
        """As `recognise`; content that it cannot bear is not of its format. Raises what listing the path raises."""
        names = look.names
        try:
            with guarded(look.path):
                return self.recognise(look) if names else None
        except HsparityError:
            return None


def is_regular(path: Path) -> bool:
    """Whether opening a path reads a file: a pipe would wait for its writer, a device never end."""
    try:
        return stat.S_ISREG(path.stat().st_mode)
    except (OSError, ValueError):
        return False


@contextmanager
def guarded(path: Path) -> Iterator[None]:
    """Raises E216 in place of whatever reading content raises that was made to break its reader."""
    try:
        yield
    except HsparityError:
        raise
    except Exception as error:
        lines = str(error).strip().splitlines() or ["no reason given"]
        what = f"{path} cannot be read as its format promises: {type(error).__name__}: {lines[0][:160]}"
        raise HsparityError("E216", what, help=_HELP) from None


def read_sample(dataset: Dataset, record: Record) -> Sample:
    """One sample, its states strided [R, H] on the CPU, of one shape and of one dtype that a capture can hold.

    Raises HsparityError alone: what `dataset.read` raises, and E216 for anything else that hostile content causes.
    """
    with guarded(record.path):
        return _checked(record, dataset.read(record))


def tensor_fault(value: torch.Tensor) -> str:
    """Why a tensor's values are not there to be read, "" where they are. Touches no value."""
    import torch

    if value.is_nested or value.layout != torch.strided:
        return f"a tensor of layout {str(value.layout).removeprefix('torch.')}"
    if value.device.type != "cpu":
        return f"a tensor on {value.device.type}, without values"
    if value.is_quantized:
        return "a quantised tensor"
    # One stored value can stand for any number: 8 bytes that unpack to 25 GB.
    claimed, held = math.prod(value.shape) * value.element_size(), value.untyped_storage().nbytes()
    return f"a tensor that claims {claimed} bytes and holds {held}" if claimed > held else ""


def _checked(record: Record, sample: Sample) -> Sample:
    """The sample as `read_sample` promises it; states of bf16 or fp16 beside float32 become float32, which is exact."""
    import torch

    states = sample.states
    if not states:
        raise wrong(record, "no states", "at least one slot", "none")
    for i, state in enumerate(states):
        kind = str(state.dtype).removeprefix("torch.")
        if fault := tensor_fault(state):
            raise wrong(record, f"state {i}", "a dense tensor", fault)
        if kind not in _DTYPES:
            raise wrong(record, f"state {i} has a dtype that no capture holds", ", ".join(_DTYPES), kind)
        if state.dim() != 2 or state.shape != states[0].shape:
            found = f"{list(state.shape)} beside {list(states[0].shape)}"
            raise wrong(record, f"state {i}", "[rows, hidden], as every slot", found)
    states = tuple(state.detach().resolve_conj().resolve_neg() for state in states)
    kinds = {state.dtype for state in states}
    if len(kinds) == 1:
        return replace(sample, states=states)
    names = ", ".join(sorted(str(k).removeprefix("torch.") for k in kinds))
    if not kinds <= {torch.float32, torch.bfloat16, torch.float16}:
        raise wrong(record, "states of several dtypes", "one dtype", names)
    told = f"its states are of several dtypes ({names}): all are taken to float32, which is exact"
    warnings = (*sample.warnings, told)
    return replace(sample, states=tuple(state.float() for state in states), warnings=warnings)


def wrong(record: Record, what: str, expected: str, found: str) -> HsparityError:
    """E216: a sample that does not hold what its format promises."""
    notes = (f"expected  {expected}", f"found     {found}")
    return HsparityError("E216", f"{record.path}: {what}", notes, _HELP)


_DTYPES = tuple(DTYPE_NAMES.values())
_HELP = "hsparity inspect PATH shows what the file holds; docs/formats.md has the format"
