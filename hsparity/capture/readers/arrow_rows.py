"""The Arrow dataset beside a folder of states: `data-*.arrow` as `datasets` saves it, memory-mapped, a row at a time."""

from __future__ import annotations

import importlib
import re
from bisect import bisect_right
from functools import cached_property
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hsparity.capture.readers.base import is_regular
from hsparity.capture.readers.look import Look, natural, read_json
from hsparity.errors import HsparityError

ARROW = r"(?:data-[0-9]+-of-[0-9]+|dataset)\.arrow"
STATE = "state.json"
INSTALL = "pip install 'hsparity[arrow]'"


class ArrowRows:
    """A folder that `datasets` saved. `fault` says in a few words why its rows cannot be read, "" where they can."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @property
    def fault(self) -> str:
        return self._opened[1]

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    def row(self, number: int, column: str) -> NDArray[Any] | None:
        """One row's list as an array [T]; None where the dataset has no such column or the row holds none.

        Raises IndexError for a row that is not there, E206 for a damaged one.
        """
        if not 0 <= number < len(self):
            raise IndexError(number)
        which = bisect_right(self._ends, number)
        table = self._opened[0][which]
        if column not in table.column_names:
            return None
        one = table.column(column).slice(number - (self._ends[which - 1] if which else 0), 1)
        try:
            one.validate(full=True)  # offsets that lead out of the file would be followed
        except ValueError as error:
            raise HsparityError(
                "E206", f"row {number} of {self.folder} is damaged", (str(error)[:160],)
            ) from None
        values = getattr(one[0], "values", None)
        # A copy: what is mapped is read-only, and torch warns of that.
        return None if values is None else np.array(values.to_numpy(zero_copy_only=False))

    @cached_property
    def _ends(self) -> list[int]:
        return list(accumulate(table.num_rows for table in self._opened[0]))

    @cached_property
    def _opened(self) -> tuple[list[Any], str]:
        """The tables in row order, and the fault."""
        try:
            arrow = importlib.import_module("pyarrow")
        except ImportError:
            return [], f"{INSTALL} brings the reader of the Arrow dataset beside it"
        try:
            tables = []
            for name in self._files():
                with arrow.memory_map(str(self.folder / name)) as mapped:
                    tables.append(arrow.ipc.open_stream(mapped).read_all())
            return tables, ""
        except HsparityError as error:
            return [], error.message
        except Exception as error:  # Arrow has errors of many kinds
            lines = str(error).splitlines() or [type(error).__name__]
            return [], f"{self.folder.name}: {lines[0][:120]}"

    def _files(self) -> list[str]:
        """The file names in row order, as state.json lists them. Raises ValueError for names that lead elsewhere."""
        held = sorted((p.name for p in self.folder.iterdir() if _is_arrow(p)), key=natural)
        if not (self.folder / STATE).is_file():
            return held
        state = read_json(self.folder / STATE)
        if not isinstance(state, dict) or not isinstance(state.get("_data_files"), list):
            raise ValueError(f"{STATE} lists no _data_files")
        if state.get("_indices_data_files"):
            raise ValueError(f"{STATE} puts the rows in another order by an index, which is not read")
        listed = [entry["filename"] for entry in state["_data_files"]]
        if held and not listed:
            raise ValueError(f"{STATE} lists no _data_files")
        if odd := [name for name in listed if name not in held]:
            raise ValueError(f"{STATE} lists {odd[0]!r}, which is no Arrow file of this folder")
        return listed


def _is_arrow(path: Path) -> bool:
    return bool(re.fullmatch(ARROW, path.name)) and is_regular(path)


def beside(look: Look) -> tuple[ArrowRows | None, str]:
    """The Arrow dataset that belongs to a path of states, and why there is none.

    It lies inside the path; or the path is its folder `hidden_states`, or a file in that.
    """
    path = look.path
    if path.is_dir():
        names = look.matching(rf"(.*/)?{ARROW}")
        found = sorted({(path / name).parent for name in names})
        above = [path.parent] if path.resolve().name == "hidden_states" else []
    else:
        found = []
        above = [path.parent, *([path.parent.parent] if path.parent.name == "hidden_states" else [])]
    found = found or [folder for folder in above if any(map(_is_arrow, folder.iterdir()))]
    if len(found) > 1:
        return None, f"{len(found)} Arrow datasets lie there: name the folder of one of them"
    return (ArrowRows(found[0]), "") if found else (None, "no Arrow dataset lies beside the states")
