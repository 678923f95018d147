"""The whole token map as the page first shows it: as many columns as the figure has pixels."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..model import TokenMap
from .png import WIDEST


def overview(tokens: TokenMap) -> TokenMap:
    """The map, pooled by maximum to about WIDEST columns, prompt by prompt; the map itself where it is no wider."""
    step = -(-tokens.excess_kc.shape[1] // WIDEST)
    if step <= 1:
        return tokens
    starts = [list(range(start, stop, step)) for _, start, stop in tokens.prompts]
    first_c = np.array([s for group in starts for s in group], np.int64)
    spans, at = [], 0
    for (prompt, _, _), group in zip(tokens.prompts, starts, strict=True):
        spans.append((prompt, at, at + len(group)))
        at += len(group)
    tallest_c = _filled(tokens.excess_kc).max(0)
    bounds = [*first_c[1:].tolist(), tokens.excess_kc.shape[1]]
    chosen = np.array([a + int(np.argmax(tallest_c[a:b])) for a, b in zip(first_c, bounds, strict=True)])

    def told(values: NDArray[np.int32]) -> NDArray[np.int32]:
        return values[chosen] if len(values) else values

    return replace(
        tokens,
        column_tokens=tokens.column_tokens * step,
        prompts=tuple(spans),
        excess_kc=_pooled(tokens.excess_kc, first_c),
        undone_kc=None if tokens.undone_kc is None else _pooled(tokens.undone_kc, first_c),
        positions_c=told(tokens.positions_c),
        ids_c=told(tokens.ids_c),
        texts=tuple(tokens.texts[i] for i in chosen) if tokens.texts else (),
    )


def place_of(tokens: TokenMap) -> Callable[[int], tuple[str, int]]:
    """A function from a column to its prompt and to the position that its mark is of."""

    def place(column: int) -> tuple[str, int]:
        for prompt, start, stop in tokens.prompts:
            if start <= column < stop:
                known = len(tokens.positions_c) > column
                position = (
                    int(tokens.positions_c[column]) if known else (column - start) * tokens.column_tokens
                )
                return prompt, position
        return "", column

    return place


def _filled(values_kc: NDArray[np.floating[Any]]) -> NDArray[np.float32]:
    return np.where(np.isnan(values_kc), -np.inf, values_kc).astype(np.float32)


def _pooled(values_kc: NDArray[np.floating[Any]], first_c: NDArray[np.int64]) -> NDArray[np.float32]:
    top = np.maximum.reduceat(_filled(values_kc), first_c, axis=1)
    return np.where(np.isneginf(top), np.nan, top).astype(np.float32)
