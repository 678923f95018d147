"""What is known of every aligned token beside its error: where it stands, and which pass computed it on each side."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hsparity.align.tokens import PromptRows
from hsparity.capture.shards import read_integers
from hsparity.capture.source import Source

UNKNOWN = -1
Whole = NDArray[np.int64]
Flags = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class Passes:
    """How one side computed the aligned tokens, [N] each."""

    number_n: Whole  # the forward pass; UNKNOWN where a capture does not say
    start_n: Whole  # first position of this prompt that the pass computed
    shared_n: Whole  # rows of all prompts that the pass computed
    decode_n: Flags  # behind the prompt

    @property
    def known(self) -> bool:
        return bool((self.number_n != UNKNOWN).any())


@dataclass(frozen=True, slots=True, eq=False)
class Tokens:
    """The N aligned tokens in order."""

    prompt_n: Whole  # number of the prompt
    position_n: Whole
    id_n: Whole
    ref: Passes
    cand: Passes

    @property
    def first_n(self) -> Flags:
        """Tokens at position 0: softmax over one key is exact there."""
        found: Flags = self.position_n == 0
        return found

    @property
    def phase_n(self) -> Flags:
        """Tokens that one side decoded and the other had in its prompt."""
        found: Flags = self.ref.decode_n != self.cand.decode_n
        return found

    def passes(self, side: str) -> Passes:
        return self.ref if side == "ref" else self.cand

    def taken(self, chosen: Whole) -> Tokens:
        """These tokens alone."""
        ref, cand = (
            Passes(p.number_n[chosen], p.start_n[chosen], p.shared_n[chosen], p.decode_n[chosen])
            for p in (self.ref, self.cand)
        )
        return Tokens(self.prompt_n[chosen], self.position_n[chosen], self.id_n[chosen], ref, cand)


def tokens_of(prompts: Sequence[PromptRows], ref: Source, cand: Source) -> Tokens:
    """Every aligned token of both sides."""
    return Tokens(
        np.repeat(np.arange(len(prompts)), [len(p.positions) for p in prompts]),
        np.concatenate([p.positions for p in prompts]).astype(np.int64),
        np.concatenate([p.token_ids for p in prompts]).astype(np.int64),
        _passes(prompts, ref, 0),
        _passes(prompts, cand, 1),
    )


def steps_of(source: Source, prompt: str) -> Whole | None:
    """The forward pass of each row [R]; None where a capture does not say (one pass for all prompts is no pass)."""
    span = source.span(prompt, "steps")
    if span is None or source.from_file:
        return None
    try:
        return read_integers(span).astype(np.int64)
    except (ValueError, KeyError):
        return None


def _passes(prompts: Sequence[PromptRows], source: Source, place: int) -> Passes:
    held = {p.prompts[place]: steps_of(source, p.prompts[place]) for p in prompts}
    # Rows of different prompts that share a pass were computed together.
    together = Counter(int(n) for steps in held.values() if steps is not None for n in steps)
    number, start, shared, decode = [], [], [], []
    for p in prompts:
        name, steps = p.prompts[place], held[p.prompts[place]]
        decode.append(p.positions >= source.prompt(name).prefill)
        if steps is None:
            number.append(np.full(len(p.positions), UNKNOWN, np.int64))
            start.append(np.zeros(len(p.positions), np.int64))
            shared.append(np.zeros(len(p.positions), np.int64))
            continue
        positions = source.positions(name)
        first = {int(n): int(positions[steps == n].min()) for n in np.unique(steps)}
        own = steps[p.rows[place]]
        number.append(own)
        start.append(np.array([first[int(n)] for n in own], np.int64))
        shared.append(np.array([together[int(n)] for n in own], np.int64))
    number_n, start_n, shared_n = (np.concatenate(x) for x in (number, start, shared))
    return Passes(number_n, start_n, shared_n, np.concatenate(decode))
