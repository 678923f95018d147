"""What a reader of a foreign format declares, and what it hands over: a dataset of samples, read one at a time."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import NDArray

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


def wrong(record: Record, what: str, expected: str, found: str) -> HsparityError:
    """E216: a sample that does not hold what its format promises."""
    notes = (f"expected  {expected}", f"found     {found}")
    help_text = "hsparity inspect PATH shows what the file holds; docs/formats.md has the format"
    return HsparityError("E216", f"{record.path}: {what}", notes, help_text)
