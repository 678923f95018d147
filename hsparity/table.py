"""Per-token figures of every site: exact quantiles in bounded memory, whatever the number of tokens.

Twenty-one float32 per site and token are a thousandth of the states they describe. Up to 64 MB stay in memory,
more go to an unlinked temporary file, one site of which is read at a time. Tables of parts of the tokens
merge by placing their columns side by side: no figure is ever recomputed from another.
"""

from __future__ import annotations

import os
import tempfile
import weakref
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from hsparity.errors import HsparityError

IN_MEMORY_BYTES = 64 << 20


class TokenTable:
    """float32 [sites, columns, tokens]. Threads may write disjoint tokens at once; every token of every site
    is written."""

    def __init__(
        self, sites: int, columns: Sequence[str], tokens: int, in_memory: int = IN_MEMORY_BYTES
    ) -> None:
        self.columns = {name: i for i, name in enumerate(columns)}
        self.shape = (sites, len(self.columns), tokens)
        self._memory: NDArray[np.float32] | None = None
        self._file = -1
        size = 4 * sites * len(self.columns) * tokens
        if size <= in_memory:
            self._memory = np.empty(self.shape, np.float32)
            return
        try:
            self._file, name = tempfile.mkstemp(prefix="hsparity-")
            weakref.finalize(self, os.close, self._file)
            os.unlink(name)
            os.posix_fallocate(self._file, 0, size)
        except OSError as error:
            message = f"no room for {size / 1e9:.1f} GB of per-token figures in {tempfile.gettempdir()}"
            help_text = "set TMPDIR to a folder with more room"
            raise HsparityError("E205", message, (str(error),), help_text) from None

    def write(self, site: int, start: int, values: NDArray[np.float32]) -> None:
        """Put the figures [columns, n] of tokens [start, start + n)."""
        if self._memory is not None:
            self._memory[site, :, start : start + values.shape[1]] = values
            return
        for column in range(values.shape[0]):
            data = np.ascontiguousarray(values[column], np.float32)
            os.pwrite(self._file, data.data, self._offset(site, column, start))

    def read(self, site: int, column: str) -> NDArray[np.float32]:
        """One figure of one site, [tokens]; NaN where nothing was compared."""
        index = self.columns[column]
        if self._memory is not None:
            return self._memory[site, index]
        tokens = self.shape[2]
        data = os.pread(self._file, 4 * tokens, self._offset(site, index, 0))
        return np.frombuffer(data, np.float32)

    def _offset(self, site: int, column: int, token: int) -> int:
        return 4 * ((site * self.shape[1] + column) * self.shape[2] + token)

    def merge(self, part: TokenTable, start: int) -> None:
        """Take over another table's tokens as tokens [start, …) of this one."""
        for site in range(self.shape[0]):
            values = np.stack([part.read(site, name) for name in self.columns])
            self.write(site, start, values)
