"""Which forward pass made which row of a capture: what was prefilled whole or in chunks, and what ran together."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hsparity.capture.shards import read_integers
from hsparity.capture.source import Source


def steps_of(source: Source, prompt: str) -> NDArray[np.int32]:
    """The pass that made each row of a prompt, int32 [R]; empty where the capture does not say."""
    if source.from_file:
        return np.zeros(0, np.int32)  # a file's rows were made by passes that nobody saw
    span = source.span(prompt, "steps")
    return np.zeros(0, np.int32) if span is None else read_integers(span)


def prefill_passes(source: Source) -> list[set[int]]:
    """Per prompt, in order, the passes that made its prompt's rows; empty sets where the capture does not say."""
    return [_passes(source, name, False) for name in (p.id for p in source.prompts)]


def decode_passes(source: Source) -> list[set[int]]:
    """The same of the rows that were decoded."""
    return [_passes(source, name, True) for name in (p.id for p in source.prompts)]


def _passes(source: Source, name: str, decoded: bool) -> set[int]:
    steps = steps_of(source, name)
    at = (source.positions(name) >= source.prompt(name).prefill) == decoded
    return set(steps[at].tolist()) if len(steps) == len(at) else set()


def chunked(source: Source) -> bool:
    """Whether some prompt was prefilled in more than one pass."""
    return any(len(passes) > 1 for passes in prefill_passes(source))


def together(passes: list[set[int]]) -> bool:
    """Whether some pass holds rows of more than one prompt."""
    seen: set[int] = set()
    for one in passes:
        if one & seen:
            return True
        seen |= one
    return False
