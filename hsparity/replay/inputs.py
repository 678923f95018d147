"""What a capture holds for a replay: the layers between two captured boundaries, and the prompts that are whole."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from hsparity.capture.shards import DTYPE_NAMES, HALF_ULP
from hsparity.capture.source import Source
from hsparity.errors import HsparityError
from hsprobe.schema import Site

# Float32 kernels order their sums differently, which one float32 run cannot show of itself: the parts of vLLM's layers
# lie up to 7e-7 from Transformers'.
FLOAT32_NOISE = 2.0**-20
DTYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}


@dataclass(frozen=True, slots=True, eq=False)
class Whole:
    """A prompt whose rows are positions 0 to n - 1; `order` [n] is where they lie in the capture."""

    name: str
    order: NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Side:
    """One side of a replay: its capture and what of it can be replayed."""

    role: str  # "ref" | "cand"
    source: Source
    prompts: tuple[Whole, ...]
    notes: tuple[str, ...]

    @property
    def lengths(self) -> tuple[int, ...]:
        return tuple(len(p.order) for p in self.prompts)

    @property
    def dtype(self) -> torch.dtype:
        """What the floor is computed in: the capture's dtype, bfloat16 for states stored narrower."""
        return DTYPES.get(self.source.manifest.dtype, torch.bfloat16)

    def layers(self) -> tuple[int, ...]:
        """The 0-based layers whose input and output boundary are both captured."""
        found = {site.index for key in self.source.sites() if (site := Site.parse(key)).kind == "boundary"}
        return tuple(sorted(k for k in found if k + 1 in found))

    def has(self, key: str) -> bool:
        return all(self.source.span(p.name, key) is not None for p in self.prompts)

    def read(self, prompt: Whole, key: str) -> torch.Tensor:
        """A site's rows [n, width] in position order, in the dtype on disk."""
        return self.source.rows(prompt.name, key, prompt.order)

    def feed(self, prompt: Whole, key: str) -> torch.Tensor:
        """`read` for what a layer is fed with. Raises E236 for NaN, Inf and zeros throughout: what follows from those says
        nothing of the layer."""
        found = self.read(prompt, key)
        bad = int((~torch.isfinite(found.float()).all(1)).sum())
        if bad or (key.startswith("boundary.") and not found.float().any()):
            what = f"{bad} of {len(found)} rows are not finite (NaN or Inf)" if bad else "all rows are zero"
            raise HsparityError(
                "E236",
                f"{self.source.path} cannot be replayed at {key}",
                (f"prompt {prompt.name}: {what}",),
                "hsparity compare says where that begins (HS303); --layers leaves such a layer out",
            )
        return found

    def resolution(self, key: str) -> float:
        """Half a unit in the last place of a site as it is stored, relative to the value; what float32 sums cost."""
        span = self.source.span(self.prompts[0].name, key)
        name = DTYPE_NAMES.get(span.dtype, "float32") if span else self.source.manifest.dtype
        return FLOAT32_NOISE if name == "float32" else HALF_ULP[name]


def open_side(role: str, source: Source, tokens: int) -> Side:
    """A side with whole prompts of at most `tokens` tokens together, one at least.

    Raises E230 for a capture without two neighbouring boundaries, E234 for one without a whole prompt.
    """
    whole, notes = _whole_prompts(source)
    side = Side(role, source, tuple(whole), notes)
    if not side.layers():
        held = ", ".join(k for k in source.sites() if k.startswith("boundary")) or "none"
        raise HsparityError(
            "E230",
            f"{source.path} holds no decoder layer's input and output",
            (
                f"boundaries it holds: {held}",
                "layer k is replayed from boundary k and held against boundary k + 1",
            ),
            "hsparity capture … --sites 'boundary.*,attn_out.*,mlp_out.*,router_logits.*,experts.*'",
        )
    if not whole:
        raise HsparityError(
            "E234",
            f"no prompt of {source.path} is whole",
            notes,
            "attention needs every row from position 0 on: capture with prefix caching off, all rows",
        )
    kept = _within(whole, tokens)
    if len(kept) < len(whole):
        count = sum(len(p.order) for p in kept)
        notes = (*notes, f"{role}: {len(kept)} of {len(whole)} prompts replayed, {count} tokens (--tokens)")
    return Side(role, source, tuple(kept), notes)


def _whole_prompts(source: Source) -> tuple[list[Whole], tuple[str, ...]]:
    whole: list[Whole] = []
    broken: list[str] = []
    boundaries = [key for key in source.sites() if key.startswith("boundary.")]
    for prompt in source.prompts:
        positions = source.positions(prompt.id)
        order = np.argsort(positions, kind="stable").astype(np.int64)
        full = len(positions) > 0 and bool((positions[order] == np.arange(len(positions))).all())
        if full and all(source.span(prompt.id, key) is not None for key in boundaries):
            whole.append(Whole(prompt.id, order))
        else:
            broken.append(prompt.id)
    shown = ", ".join(broken[:6]) + (", …" if len(broken) > 6 else "")
    plural = "s" * (len(broken) != 1)
    notes = (
        (f"{source.path}: {len(broken)} prompt{plural} with missing rows left out ({shown})",)
        if broken
        else ()
    )
    return whole, notes


def _within(whole: Sequence[Whole], tokens: int) -> list[Whole]:
    """The first prompts that fit; the first one always."""
    kept: list[Whole] = []
    used = 0
    for prompt in whole:
        if kept and used + len(prompt.order) > tokens:
            continue
        kept.append(prompt)
        used += len(prompt.order)
    return kept
