"""Whose state each row of the candidate is: nearest neighbours over the whole batch at one site.

Two rows with the same token ids before and at their position are one state; the search is over distinct
states, so prompts that share a prefix do not compete.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from threading import Lock

import numpy as np
import torch
from numpy.typing import NDArray

from hsparity.align.tokens import PromptRows
from hsparity.capture.source import Source
from hsparity.solve.dictionary import Entry
from hsparity.solve.forms import Form
from hsparity.solve.swapped import moved
from hsparity.stream import pool_map

BLOCK_BYTES = 8 << 20
SAMPLED = 96  # rows that choose the form and say whether the whole map is worth making
MOST_ROWS = 16384  # of a map: its cost is their square
CLOSER = 0.5  # a row belongs elsewhere when it is at most half as far from there
# Rows that were moved are as near to their states as rows are: wrong updates can point at another row, not reach it.
REACHES, ROUNDING = 4.0, 2.0**-7
UNDECIDED, RIGHT, ELSEWHERE = 0, 1, 2

Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Library:
    """The distinct states of the reference: where each was first seen, and which state every (prompt,
    position) is."""

    prompts: tuple[str, ...]  # the reference's prompts
    prompt_s: Ints  # per state: prompt index, its row, its position and its token id
    row_s: Ints
    position_s: Ints
    token_s: Ints
    states: tuple[Ints, ...]  # per prompt [T]: the state at each position, -1 where no row is held

    def state(self, prompt: int, positions: NDArray[np.int32]) -> Ints:
        """The states at positions of a prompt."""
        found: Ints = self.states[prompt][positions]
        return found


def library(ref: Source) -> Library:
    """Distinct states by token ids, over every prompt of the reference, up to `MOST_ROWS`."""
    known: dict[tuple[int, int], int] = {}  # (state before, token id) -> prefix number
    seen: dict[int, int] = {}  # prefix number -> state
    columns: list[tuple[int, int, int, int]] = []
    states = []
    names = [p.id for p in ref.prompts]
    for index, name in enumerate(names):
        ids, positions = ref.token_ids(name), ref.positions(name)
        rows = np.full(len(ids), -1, np.int64)
        rows[positions] = np.arange(len(positions))
        here = np.full(len(ids), -1, np.int64)
        before = -1
        for at, token in enumerate(ids.tolist()):
            before = known.setdefault((before, token), len(known))
            if rows[at] < 0 or len(columns) >= MOST_ROWS:
                here[at] = seen.get(before, -1)
                continue
            if before not in seen:
                seen[before] = len(columns)
                columns.append((index, int(rows[at]), at, token))
            here[at] = seen[before]
        states.append(here)
    table = np.array(columns, np.int64).reshape(-1, 4)
    prompts, rows_s, places, tokens = table.T
    return Library(tuple(names), prompts, rows_s, places, tokens, tuple(states))


@dataclass(frozen=True, slots=True, eq=False)
class OwnerMap:
    """Per row of the candidate, in the order of the aligned rows: the state it was said to be, the nearest
    one, and how far (sine of the angle) it is from both and from the next nearest."""

    library: Library
    site: str
    words: str  # what was searched
    prompt_m: Ints  # index into the aligned prompts
    position_m: NDArray[np.int32]  # as claimed
    claimed_m: Ints
    nearest_m: Ints
    claimed_error_m: NDArray[np.float32]
    error_m: NDArray[np.float32]
    rival_error_m: NDArray[np.float32]

    @property
    def verdict_m(self) -> NDArray[np.int8]:
        """RIGHT, ELSEWHERE, or UNDECIDED where the nearest is not plainly nearest, most of those elsewhere do not
        reach theirs, or rows in place err as far as it takes to be nearer to another."""
        plain = self.error_m <= CLOSER * self.rival_error_m
        known = (self.claimed_m >= 0) & (self.nearest_m != self.claimed_m)
        away = known & plain & (self.error_m <= CLOSER * self.claimed_error_m)
        if away.any():
            usual = max(REACHES * float(np.quantile(self.error_m, 0.25)), ROUNDING)
            away &= float(np.median(self.error_m[away])) <= usual
        if away.any():
            away = moved(self, away)
        found = np.full(len(self.prompt_m), UNDECIDED, np.int8)
        found[self.nearest_m == self.claimed_m] = RIGHT
        found[away] = ELSEWHERE
        return found

    @property
    def clarity(self) -> float:
        """Median distance to the nearest state over that to the next: small where rows are told apart."""
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = self.error_m / self.rival_error_m
        known = ratio[np.isfinite(ratio)]
        return float(np.median(known)) if len(known) else 1.0


class Finder:
    """Makes owner maps of one candidate against one library."""

    def __init__(self, ref: Source, cand: Source, prompts: Sequence[PromptRows], mask: Ints) -> None:
        self.ref, self.cand, self.prompts = ref, cand, prompts
        self.mask = torch.from_numpy(mask)
        self.library = library(ref)
        index = {name: i for i, name in enumerate(self.library.prompts)}
        self.claims = [self.library.state(index[p.prompts[0]], p.positions) for p in prompts]

    def find(self, site: str, slot: Form, entries: Sequence[Entry], sampled: bool = False) -> list[OwnerMap]:
        """The map of the rows of `slot` on the states of each entry; of a sample of rows, or of all up to
        `MOST_ROWS`."""
        chosen = self._chosen(SAMPLED if sampled else MOST_ROWS)
        rows = [(p, places) for p, places in enumerate(chosen) if len(places)]
        parts = [torch.empty(0)] * len(rows)

        def take(i: int) -> None:
            parts[i] = self._cand(*rows[i], slot)

        pool_map(take, range(len(rows)))
        claimed = np.concatenate([self.claims[p][places] for p, places in rows])
        cand_mh = torch.cat(parts) if parts else torch.empty(0, self.ref.manifest.hidden_size)
        nearest = [_Nearest(cand_mh, claimed) for _ in entries]

        def work(states: Ints) -> None:
            name = self.library.prompts[self.library.prompt_s[states[0]]]
            make = self._unit(self.ref, name, self.library.row_s[states])
            for one, entry in zip(nearest, entries, strict=True):
                one.add(int(states[0]), make(entry.form))

        pool_map(work, list(self._blocks()))
        return [
            OwnerMap(
                library=self.library,
                site=site,
                words=entry.words,
                prompt_m=np.concatenate([np.full(len(places), p) for p, places in rows]),
                position_m=np.concatenate([self.prompts[p].positions[places] for p, places in rows]),
                claimed_m=claimed,
                nearest_m=one.place[0],
                claimed_error_m=one.claimed_error,
                error_m=one.error[0],
                rival_error_m=one.error[1],
            )
            for one, entry in zip(nearest, entries, strict=True)
        ]

    def _chosen(self, limit: int) -> list[Ints]:
        total = sum(len(p.positions) for p in self.prompts)
        step = max(1, -(-total // limit))
        return [np.arange((-p.start) % step, len(p.positions), step) for p in self.prompts]

    def _cand(self, p: int, places: Ints, form: Form) -> torch.Tensor:
        prompt = self.prompts[p]
        return self._unit(self.cand, prompt.prompts[1], prompt.rows[1][places])(form)

    def _blocks(self) -> Iterator[Ints]:
        """Runs of states of one prompt."""
        step = max(1, BLOCK_BYTES // (4 * self.ref.manifest.hidden_size))
        for index in np.unique(self.library.prompt_s):
            inside = np.flatnonzero(self.library.prompt_s == index)
            for at in range(0, len(inside), step):
                yield inside[at : at + step]

    def _unit(self, source: Source, prompt: str, rows: Ints) -> Callable[[Form], torch.Tensor]:
        """Makes rows of a form, masked, of unit length; zero where they cannot be had. Sites are read once."""
        held: dict[str, torch.Tensor | None] = {}

        def read(key: str) -> torch.Tensor | None:
            if key not in held:
                held[key] = None if source.span(prompt, key) is None else source.rows(prompt, key, rows)
            return held[key]

        def make(form: Form) -> torch.Tensor:
            made = form.make(read, prompt, rows)
            if made is None:
                return torch.zeros(len(rows), source.manifest.hidden_size)
            made = made.to(torch.float32, copy=True).nan_to_num_(0.0, 0.0, 0.0).index_fill_(1, self.mask, 0.0)
            return made.div_(torch.linalg.vector_norm(made, dim=1, keepdim=True).clamp_min_(1e-12))

        return make


class _Nearest:
    """The two nearest states of every row, and the distance to the claimed one, block by block."""

    def __init__(self, cand_mh: torch.Tensor, claimed_m: Ints) -> None:
        count = len(cand_mh)
        self.cand_mh, self.claimed_m = cand_mh, claimed_m
        self.lock = Lock()
        self.error = np.ones((2, count), np.float32)
        self.place = np.full((2, count), -1, np.int64)
        self.claimed_error = np.ones(count, np.float32)

    def add(self, start: int, block_sh: torch.Tensor) -> None:
        """Look at a block of states, the first of which has the number `start`. Blocks come in any order."""
        cosine = (self.cand_mh @ block_sh.T).clamp_(0.0, 1.0)
        best = cosine.topk(min(2, cosine.shape[1]), dim=1)
        inside = (self.claimed_m >= start) & (self.claimed_m < start + len(block_sh))
        rows = np.flatnonzero(inside)
        claimed, found = (
            _sine(cosine.numpy()[rows, self.claimed_m[rows] - start]),
            _sine(best.values.T.numpy()),
        )
        with self.lock:
            self.claimed_error[rows] = claimed
            errors = np.concatenate((self.error, found))
            places = np.concatenate((self.place, best.indices.T.numpy() + start))
            order = np.lexsort((places, errors), axis=0)[:2]
            self.error = np.take_along_axis(errors, order, 0)
            self.place = np.take_along_axis(places, order, 0)


def _sine(cosine: NDArray[np.float32]) -> NDArray[np.float32]:
    values: NDArray[np.float32] = np.sqrt(np.maximum(1.0 - cosine.astype(np.float64) ** 2, 0.0)).astype(
        np.float32
    )
    return values
