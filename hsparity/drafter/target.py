"""What the target takes at each row: its own last state through the checkpoint's norm and lm_head, or the text itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from hsparity.capture.source import Source
from hsparity.errors import HsparityError
from hsparity.selfcheck.checkpoint import Head, open_head
from hsprobe.schema import Site

BLOCK_BYTES = 64 << 20  # of lm_head, read at a time


@dataclass(frozen=True, slots=True, eq=False)
class Target:
    """The last state of `source` is what the target's choice is made from; without a head the text stands for it."""

    source: Source | None
    site: str
    head: Head | None
    why: str

    def states(self, prompt: str, rows: NDArray[np.int64]) -> torch.Tensor | None:
        """lm_head's inputs float32 [n, H] at these rows of a prompt; None where the text stands for the target."""
        if self.source is None or self.head is None or self.source.span(prompt, self.site) is None:
            return None
        held = self.source.rows(prompt, self.site, rows).float()
        return held if self.site == "final_norm" else self.head.norm(held)

    def logits(self, states_nh: torch.Tensor) -> torch.Tensor:
        """Logits float32 [n, V], the weight read block by block."""
        assert self.head is not None
        rows = max(16, BLOCK_BYTES // (4 * self.head.weight.width))
        return torch.cat(
            [self.head.shape(states_nh @ w.T, start) for start, w in self.head.blocks(rows)], dim=1
        )


def find_target(sides: Sequence[tuple[str, Source]], model: Path) -> Target:
    """The first of these sides that holds its last state; the text where none does or its head cannot be read."""
    reasons = []
    for words, source in sides:
        site = _last_site(source)
        if not site:
            reasons.append(f"{words} holds no last state")
            continue
        try:
            head = open_head(model, source.manifest, source.norm())
        except HsparityError as error:
            if error.code != "E214":
                raise
            reasons.append(error.message)
            continue
        return Target(source, site, head, f"{words}'s {site} through {head.name}")
    return Target(None, "", None, f"the text's own next token ({'; '.join(reasons)})")


def _last_site(source: Source) -> str:
    held = source.sites()
    last = Site("boundary", source.manifest.num_layers).key
    return "final_norm" if "final_norm" in held else last if last in held else ""
