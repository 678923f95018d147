"""What the user asked to have compared: the boundaries that decide the verdict, and which tokens."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hsparity.capture.selection import number, select, short
from hsparity.errors import HsparityError

_LAST = np.iinfo(np.int32).max


def one_measure(tol: float | None, floors: Sequence[str]) -> None:
    """Raises E103 for a tolerance beside captures of a floor, which it would leave unread; "none" names no capture."""
    captures = [path for path in floors if path != "none"]
    if tol is not None and captures:
        raise HsparityError(
            "E103",
            "--tol and --floor exclude each other",
            (f"--tol {tol:g}", *(f"--floor {path}" for path in captures)),
            "the floor measures what is noise at each layer, --tol is one number for all of them; give one of the two",
        )


@dataclass(frozen=True, slots=True)
class Query:
    """The options of a comparison, as typed. `offset`: compare ref boundary r with cand boundary r -
    offset. Raises E102 for a `tol` that is not a finite positive number."""

    layers: str | None = None
    boundaries: str | None = None
    offset: int = 0
    tokens: str | None = None
    tol: float | None = None

    def __post_init__(self) -> None:
        # Nothing exceeds NaN, so it would make everything equal.
        if self.tol is not None and not 0 < self.tol < math.inf:
            message = f"bad --tol {self.tol}: not a finite number above 0"
            raise HsparityError("E102", message, help="a relative L2 error, such as 1e-2")

    @property
    def spelled(self) -> str:
        return f"--boundaries {self.boundaries}" if self.boundaries else f"--layers {self.layers or 'all'}"

    @property
    def everything(self) -> bool:
        """Whether whatever both sides hold is to be compared."""
        return (self.boundaries or self.layers or "all").strip().lower() == "all"

    def chosen_boundaries(self, num_layers: int) -> tuple[int, ...] | None:
        """The boundaries asked for, ascending; None for `all`. Raises E102, and E103 when both options are
        given."""
        chosen = select(self.layers, self.boundaries, num_layers)
        return None if self.everything else chosen

    def keeps(self, positions: NDArray[np.int32], prefill: int) -> NDArray[np.bool_]:
        """Which positions `--tokens` keeps, bool [R]; `prefill` of them belong to the prompt. Raises E102."""
        text = (self.tokens or "all").strip().lower()
        if text == "all":
            return np.ones(len(positions), bool)
        if text == "prefill":
            return positions < prefill
        if text == "decode":
            return positions >= prefill
        match = re.fullmatch(r"(\d*):(\d*)", text)
        start, stop = (number(match[1] or "0"), number(match[2] or str(_LAST))) if match else (0, 0)
        if stop <= start:
            why = "an empty slice" if match else "not a slice"
            message = f"bad --tokens {short(text)!r}: {why}"
            raise HsparityError("E102", message, help="all, prefill, decode, or a slice such as 0:128")
        return (positions >= start) & (positions < stop)


def span_text(numbers: tuple[int, ...]) -> str:
    """Ascending numbers as ranges: "0-3,7,9-11"."""
    groups = np.split(np.array(numbers), np.flatnonzero(np.diff(numbers) != 1) + 1) if numbers else []
    return ",".join(f"{g[0]}-{g[-1]}" if len(g) > 1 else f"{g[0]}" for g in groups)
