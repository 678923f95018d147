"""Why the first rows of prompts are absent: a prefix cache, or all chunks but the last."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from hsparity.align.tokens import common_prefix

BLOCK = 16  # the smallest cache block that engines use by default


@dataclass(frozen=True, slots=True)
class RowFault:
    """One named pattern. `rows` are spans as text, `count` how many rows."""

    name: str
    headline: str
    rows: tuple[str, ...]
    count: int
    evidence: tuple[str, ...] = ()
    rival: str = ""


@dataclass(frozen=True, slots=True)
class Batch:
    """What the captures say of the run beside the rows themselves. Prompts by their index in the
    reference."""

    ids: tuple[tuple[int, ...], ...]
    prefill: tuple[int, ...]  # tokens of each that belong to the prompt: chunks cut these
    chunk: int | None = None  # the engine's prefill chunk, when its settings say it

    def shared(self, prompt: int) -> int:
        """How many leading tokens this prompt shares with an earlier one."""
        mine, *earlier = (np.asarray(ids) for ids in (self.ids[prompt], *self.ids[:prompt]))
        return max((common_prefix(mine, other) for other in earlier), default=0)


def skipped(
    lost: Mapping[int, int], tokens: Mapping[int, int], names: Mapping[int, str], batch: Batch
) -> RowFault:
    """The first `lost` rows of some prompts are absent: served from a cache, or left in earlier chunks.

    A cache can only hold what an earlier prompt shares; a chunked prefill cuts every prompt that is long
    enough, at the same multiple.
    """
    rows = tuple(f"{names[i]} 0-{n - 1}" for i, n in lost.items())
    count = sum(lost.values())
    lengths = {i: min(tokens[i], batch.prefill[i]) for i in tokens}
    shared = all(batch.shared(i) >= n for i, n in lost.items())
    size = _chunk(lost, lengths)
    if batch.chunk in _chunks(lost, lengths):
        size = batch.chunk
    where = _where(lost, names)
    blocks = all(n % BLOCK == 0 for n in lost.values())
    cached = f"each absent prefix is shared with an earlier prompt{f' and a multiple of {BLOCK}' if blocks else ''}"
    chunked = (
        f"what is there is the last chunk of {size} tokens, and prompts of at most {size} tokens are whole"
        if size
        else ""
    )
    if shared and not (size and batch.chunk == size):
        rival = (
            f"last-chunk-only: a chunk of {size} tokens would leave the same rows, and rows alone do not tell"
            if size
            else "last-chunk-only: no chunk size fits"
        )
        return RowFault(
            "prefix-cache-skip",
            f"{where} are absent: they came from a prefix cache",
            rows,
            count,
            (cached,),
            rival,
        )
    if size:
        rival = (
            "prefix-cache-skip: no earlier prompt shares those tokens" if not shared else "prefix-cache-skip"
        )
        return RowFault(
            "last-chunk-only",
            f"only the last prefill chunk came back: {where} are absent",
            rows,
            count,
            (chunked,),
            rival,
        )
    if blocks:
        line = f"the absent rows are a multiple of {BLOCK}; no earlier prompt of this capture shares them, an earlier run may have"
        rival = "last-chunk-only: no chunk size fits all prompts"
        return RowFault(
            "prefix-cache-skip",
            f"{where} are absent, as after a hit in a prefix cache",
            rows,
            count,
            (line,),
            rival,
        )
    return RowFault(
        "rows-missing",
        f"{where} are absent",
        rows,
        count,
        ("neither a chunk size nor a cache block fits",),
        "",
    )


def _where(lost: Mapping[int, int], names: Mapping[int, str]) -> str:
    """The first 64 rows of p0 and 32 of p1; the first 78 rows of each of 4 prompts (312 in all)."""
    if len(lost) > 2:
        least, most = min(lost.values()), max(lost.values())
        each = f"{least} rows of each" if least == most else f"{least} to {most} rows"
        return f"the first {each} of {len(lost)} prompts ({sum(lost.values())} in all)"
    (first, *rest) = lost.items()
    return f"the first {first[1]} rows of {names[first[0]]}" + "".join(
        f" and {n} of {names[i]}" for i, n in rest
    )


def _chunks(lost: Mapping[int, int], tokens: Mapping[int, int]) -> list[int]:
    """Every chunk size that leaves exactly these rows out."""
    most = max(tokens.values())
    return [
        c for c in range(2, most) if all(c * ((n - 1) // c) == lost.get(i, 0) for i, n in tokens.items() if n)
    ]


def _chunk(lost: Mapping[int, int], tokens: Mapping[int, int]) -> int | None:
    sizes = _chunks(lost, tokens)
    powers = [c for c in sizes if c & (c - 1) == 0]
    return powers[0] if powers else sizes[0] if sizes else None
