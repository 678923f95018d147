"""One way of feeding the head: which tensor goes into each slot, for the rows of one prompt."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from hsparity.align.tokens import PromptRows
from hsparity.capture.source import Source
from hsparity.solve.forms import Form


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """The tensor for one slot: a form of the sites of `source`, whose rows are those of place `side` in the alignment."""

    source: Source
    side: int
    form: Form


@dataclass(frozen=True, slots=True, eq=False)
class Noise:
    """A slot's noise: what two floor captures of a site differ by, token by token, each with a random sign."""

    fp32: Source
    bf16: Source
    places: tuple[int, int]  # in the alignment
    key: str


@dataclass(frozen=True, slots=True, eq=False)
class Feeding:
    """Parts in the order in which fc takes them. `moved`: prompt -> the candidate's (prompt, row) of every position, -1 where no
    row holds that token's state and the reference's stands in."""

    key: str
    words: str
    parts: tuple[Part, ...]
    moved: Mapping[str, Moved] | None = None
    noise: tuple[Noise, ...] = ()
    stands_in: tuple[str, ...] = ()
    note: str = ""
    codes: tuple[str, ...] = ()  # the findings that it undoes


@dataclass(frozen=True, slots=True, eq=False)
class Moved:
    """For each position of a prompt, which row of which prompt of the candidate holds its state. Both [n]."""

    prompts: tuple[str, ...]
    row_n: NDArray[np.int64]


def fed_rows(feeding: Feeding, p: PromptRows, originals: Sequence[Part]) -> torch.Tensor:
    """The head's input float32 [n, slots x H] for the rows of one prompt. `originals`: the reference's own parts, which stand in
    for rows that the candidate lacks."""
    columns = []
    for i, part in enumerate(feeding.parts):
        rows = _rows(part, p, feeding.moved, originals[i])
        if feeding.noise:
            rows = rows + _noise(feeding.noise[i], p, i)
        columns.append(rows)
    return torch.cat(columns, dim=1)


def _rows(part: Part, p: PromptRows, moved: Mapping[str, Moved] | None, original: Part) -> torch.Tensor:
    place = moved.get(p.prompts[0]) if moved and part.side == 1 else None
    if place is None:
        return formed(part, p.prompts[part.side], p.rows[part.side])
    base = formed(original, p.prompts[0], p.rows[0]).clone()
    owners = np.array(place.prompts)
    for name in sorted({n for n in place.prompts if n}):
        here = np.flatnonzero((owners == name) & (place.row_n >= 0))
        base[torch.from_numpy(here)] = formed(part, name, place.row_n[here])
    return base


def formed(part: Part, prompt: str, rows: NDArray[np.int64]) -> torch.Tensor:
    """A part's rows float32 [n, H] of one prompt of its source. Raises KeyError where it lacks a site."""

    def read(key: str) -> torch.Tensor | None:
        return part.source.rows(prompt, key, rows) if part.source.span(prompt, key) else None

    made = part.form.make(read, prompt, rows)
    if made is None:
        raise KeyError(f"{part.source.path}: prompt {prompt} lacks {', '.join(part.form.sites)}")
    return made.float()


def _noise(noise: Noise, p: PromptRows, slot: int) -> torch.Tensor:
    exact, rounded = (
        source.rows(p.prompts[place], noise.key, p.rows[place]).float()
        for source, place in zip((noise.fp32, noise.bf16), noise.places, strict=True)
    )
    # The sign is random: the size and the direction of rounding are kept, what it did to this very text is not.
    draw = torch.Generator().manual_seed(p.start * 31 + slot)
    sign = torch.randint(0, 2, (len(exact), 1), generator=draw) * 2 - 1
    return (rounded - exact) * sign
