"""What a writer of a trainer's format declares."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from hsparity.capture.readers.base import Sample


class Sink(ABC):
    """One dataset being written into a folder that is new or empty, or was begun by the same writer."""

    @abstractmethod
    def add(self, index: int, sample: Sample) -> None:
        """Write sample number `index`, its states in slot order: the auxiliary slots, then the last state.

        A file is whole or absent, whenever the program is stopped. Raises OSError, E216 for a sample the format cannot
        hold (rows missing).
        """

    @abstractmethod
    def finish(self) -> None:
        """Write what lies beside the samples."""


@dataclass(frozen=True, slots=True)
class Layout:
    """What all samples share. `boundaries`: those of the auxiliary slots, where they are known."""

    model: str = ""
    boundaries: tuple[int, ...] = ()
    num_layers: int = 0
    note: str = ""  # where the states come from, for the record beside them


@dataclass(frozen=True, slots=True)
class Writer:
    """One format. `last_normed`: what its trainer takes the last state to be."""

    name: str  # the reader's name for the same format
    title: str
    last_normed: bool
    begin: Callable[[Path, Layout], Sink]
