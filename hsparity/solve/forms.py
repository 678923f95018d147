"""A tensor made of captured sites: which sites are summed, and what is done to the sum. Undoing a fault on
the captured data is comparing with another form."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray

from hsparity.metrics.kernel import Norm, apply_norm

Read = Callable[[str], "torch.Tensor | None"]  # site key -> rows [n, H] in the dtype on disk; None: not held
Parts = tuple[tuple[str, float], ...]


@dataclass(frozen=True, slots=True, eq=False)
class Basis:
    """A change of channels to undo: `order` int64 [H] says where each reference channel stands, or `rotation`
    float32 [H, H] with cand = ref @ rotation."""

    order: torch.Tensor | None = None
    rotation: torch.Tensor | None = None

    def undo(self, rows: torch.Tensor) -> torch.Tensor:
        """Rows [n, H] of the candidate in the reference's channels."""
        if self.order is not None:
            return rows.index_select(1, self.order)
        assert self.rotation is not None
        return rows @ self.rotation.T


@dataclass(frozen=True, slots=True, eq=False)
class Form:
    """The rows of `parts` (site, coefficient) summed, then normed, then divided by the gain and brought back
    to the basis."""

    parts: Parts
    norms: tuple[Norm, ...] = ()
    gain: float = 1.0
    row_gains: Mapping[str, NDArray[np.float32]] = field(default_factory=dict)  # prompt -> [R], by row
    basis: Basis | None = None

    @property
    def is_plain(self) -> bool:
        """Whether it is one site as it was captured."""
        return (
            len(self.parts) == 1
            and self.parts[0][1] == 1.0
            and not (self.norms or self.row_gains or self.basis)
            and self.gain == 1.0
        )

    @property
    def sites(self) -> tuple[str, ...]:
        return tuple(key for key, _ in self.parts)

    def make(
        self, read: Read, prompt: str = "", rows: NDArray[np.int64] | None = None
    ) -> torch.Tensor | None:
        """Rows [n, H]: float32, or in the dtype on disk when the form is plain. None when a site is not
        held. `prompt` and `rows` choose the rows' own gains."""
        if self.is_plain:
            return read(self.parts[0][0])
        total: torch.Tensor | None = None
        for key, coefficient in self.parts:
            block = read(key)
            if block is None:
                return None
            # A read may hand out a buffer that the next read overwrites: `float` copies unless it is fp32.
            part = block.to(torch.float32, copy=True)
            total = part.mul_(coefficient) if total is None else total.add_(part, alpha=coefficient)
        assert total is not None
        for norm in self.norms:
            apply_norm(total, norm)
        if self.gain != 1.0:
            total /= self.gain
        gains = self.row_gains.get(prompt)
        if gains is not None and rows is not None:
            total /= torch.from_numpy(gains[rows])[:, None]
        return self.basis.undo(total) if self.basis else total


def site(key: str) -> Form:
    """A site as it was captured."""
    return Form(((key, 1.0),))


def normed(key: str, *norms: Norm) -> Form:
    """A site with norms applied to it, in order."""
    return Form(((key, 1.0),), norms)
