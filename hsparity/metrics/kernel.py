"""Per-token sums of blocks of rows: float32 products in cache-sized pieces, float64 sums.

A row is cut into pieces of 128 channels; each piece's L2 norm is taken in float32, squared and added in
float64. Massive channels are gathered into a narrow buffer and zeroed in the wide one, so that the rest and
the massive part are each sums of squares: neither is ever the difference of two large numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

PIECE = 128
BUFFER_BYTES = 512 << 10  # one float32 buffer; three of them stay in a core's second-level cache
TINY = 1e-28  # float32 squares of values below 1e-19 vanish
FAR = 1e6  # square of a norm ratio beyond which a cosine from float32 pieces would be noise


@dataclass(frozen=True, slots=True, eq=False)
class BlockSums:
    """Sums of n rows, float64 [n]: `rest` leaves massive channels out, `massive` holds them alone."""

    norms: dict[
        int, tuple[NDArray[np.float64], NDArray[np.float64]]
    ]  # side -> (rest, massive) sum of squares
    diffs: dict[tuple[int, int], tuple[NDArray[np.float64], NDArray[np.float64]]]
    largest: NDArray[np.float64]  # max |side 1 - side 0|
    equal: NDArray[np.bool_]  # sides 0 and 1 equal in every bit
    nonfinite: NDArray[np.int64]  # [2, n] NaN or Inf elements of sides 0 and 1


@dataclass(frozen=True, slots=True, eq=False)
class Norm:
    """A final RMSNorm to apply to a side before comparing: scale float32 [H] (1 + weight already added where
    it applies)."""

    scale: torch.Tensor
    eps: float


class Kernel:
    """The buffers of one thread for rows of one width. `pairs` are the sides to subtract; (0, 1) must be
    among them."""

    def __init__(self, width: int, sides: int, pairs: Sequence[tuple[int, int]]) -> None:
        self.width, self.sides, self.pairs = width, sides, tuple(pairs)
        pieces = -(-width // PIECE)
        self.step = max(1, BUFFER_BYTES // (4 * pieces * PIECE))
        # One buffer for sides and differences: an operation on all of them is one call. Columns past `width` stay
        # zero, so every row is whole pieces.
        self._wide = torch.zeros(sides + len(self.pairs), self.step, pieces * PIECE)
        self._norms = torch.empty(sides + len(self.pairs), 0, pieces)

    def run(self, blocks: Sequence[torch.Tensor], massive: torch.Tensor) -> BlockSums:
        """Sums of `blocks` (one [n, H] per side, any float dtype); `massive` int64 [m] channels to keep
        apart."""
        n = blocks[0].shape[0]
        if self._norms.shape[1] < n:
            self._norms = torch.empty(self._norms.shape[0], n, self._norms.shape[2])
        narrow = torch.empty(self.sides, n, len(massive))
        top = torch.empty(2, n)
        for a in range(0, n, self.step):
            self._piece(blocks, a, min(a + self.step, n), massive, narrow=narrow, top=top)
        thin = [narrow[i] for i in range(self.sides)] + [narrow[j] - narrow[i] for i, j in self.pairs]
        rest = _squares(self._norms[:, :n])
        apart = _squares(torch.stack([torch.linalg.vector_norm(t, dim=1) for t in thin]).unsqueeze(2))
        largest = torch.maximum(top[0], top[1].neg_())
        if len(massive):
            largest = torch.maximum(largest, thin[self.sides + self.pairs.index((0, 1))].abs().amax(1))
        figures = (rest, apart, largest.double().numpy())
        self._mend(blocks, massive, figures)
        sums = BlockSums(
            {i: (rest[i], apart[i]) for i in range(self.sides)},
            {p: (rest[self.sides + k], apart[self.sides + k]) for k, p in enumerate(self.pairs)},
            figures[2],
            np.zeros(n, bool),
            np.zeros((2, n), np.int64),
        )
        self._compare_bits(blocks, sums)
        self._count_nonfinite(blocks, sums)
        return sums

    def _piece(
        self,
        blocks: Sequence[torch.Tensor],
        start: int,
        stop: int,
        massive: torch.Tensor,
        *,
        narrow: torch.Tensor,
        top: torch.Tensor,
    ) -> None:
        """Rows [start, stop): norms of pieces, massive channels and extremes of the difference, into the
        buffers."""
        n = stop - start
        wide = self._wide[:, :n]
        sides = wide[: self.sides]
        for i, block in enumerate(blocks):
            target = wide[i, :, : self.width]
            target.copy_(block[start:stop])
        narrow[:, start:stop] = sides.index_select(2, massive)
        sides.index_fill_(2, massive, 0.0)
        for k, (i, j) in enumerate(self.pairs, self.sides):
            torch.sub(wide[j], wide[i], out=wide[k])
            if (i, j) == (0, 1):
                # amax and amin together are eight times as fast as a maximum norm here.
                torch.amax(wide[k], 1, out=top[0, start:stop])
                torch.amin(wide[k], 1, out=top[1, start:stop])
        pieces = wide.view(len(wide), n, -1, PIECE)
        torch.linalg.vector_norm(pieces, dim=3, out=self._norms[:, start:stop])

    def _mend(
        self,
        blocks: Sequence[torch.Tensor],
        massive: torch.Tensor,
        out: tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]],
    ) -> None:
        """Recompute in float64 the rows whose squares left the range of float32, and those of very unequal
        size."""
        rest, apart, largest = out
        whole = rest[: self.sides] + apart[: self.sides]
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            odd = ~np.isfinite(rest + apart).all(0) | (whole < TINY).any(0)
            odd |= whole.max(0) > FAR * whole.min(0)
            # A difference of exactly zero is an equal row, not a vanished square.
            diffs = (rest + apart)[self.sides :]
            odd |= ((diffs > 0) & (diffs < TINY)).any(0)
        rows = np.flatnonzero(odd)
        if not len(rows):
            return
        index = torch.from_numpy(rows)
        exact = [b[index].double() for b in blocks]
        inside = torch.zeros(self.width, dtype=torch.bool)
        inside[massive] = True
        for k in range(self.sides + len(self.pairs)):
            if k < self.sides:
                values = exact[k]
            else:
                i, j = self.pairs[k - self.sides]
                values = exact[j] - exact[i]
                if (i, j) == (0, 1):
                    largest[rows] = values.abs().amax(1).numpy()
            rest[k, rows] = values[:, ~inside].square().sum(1).numpy()
            apart[k, rows] = values[:, inside].square().sum(1).numpy()

    def _compare_bits(self, blocks: Sequence[torch.Tensor], sums: BlockSums) -> None:
        if blocks[0].dtype != blocks[1].dtype:
            return
        rest, apart = sums.diffs[0, 1]
        with np.errstate(invalid="ignore"):
            rows = np.flatnonzero(~(rest + apart > 0))  # NaN rows can be equal in every bit too
        if len(rows):
            kind = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[blocks[0].element_size()]
            index = torch.from_numpy(rows)
            left, right = (b.view(kind)[index] for b in blocks[:2])
            sums.equal[rows] = (left == right).all(1).numpy()

    def _count_nonfinite(self, blocks: Sequence[torch.Tensor], sums: BlockSums) -> None:
        for i in range(2):
            rest, apart = sums.norms[i]
            rows = np.flatnonzero(~np.isfinite(rest + apart))
            if len(rows):
                values = blocks[i][torch.from_numpy(rows)].double()
                sums.nonfinite[i, rows] = (~values.isfinite()).sum(1).numpy()


def _squares(norms: torch.Tensor) -> NDArray[np.float64]:
    """Squares of float32 norms of pieces [k, n, pieces], added per row in float64: [k, n]."""
    result: NDArray[np.float64] = norms.double().square_().sum(2).numpy()
    return result


def apply_norm(rows: torch.Tensor, norm: Norm) -> None:
    """RMSNorm in place, rows [n, H] float32 or float64."""
    mean = rows.square().mean(1, keepdim=True)
    rows.mul_((mean + norm.eps).rsqrt_()).mul_(norm.scale)
