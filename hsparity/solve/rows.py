"""Whose rows the candidate holds, and the rows to compare once each is given back to its token."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from hsparity.align.tokens import PromptRows, rows_at
from hsparity.capture.source import Source
from hsparity.pairing import boundaries_of
from hsparity.solve.absent import Batch, RowFault
from hsparity.solve.dictionary import Entry, entries
from hsparity.solve.forms import site
from hsparity.solve.owners import ELSEWHERE, RIGHT, Finder, OwnerMap
from hsparity.solve.row_faults import PromptMap, classify, split

if TYPE_CHECKING:
    from hsparity.solve.solution import Given

FEWEST_STATES = 4
CLEAR = 0.6  # median distance to the nearest state over the next: above it, rows cannot be told apart
SITES = 2
NEAR = 2  # layers by which a slot may be off while its rows are off too
CHUNKS = ("chunked_prefill_size", "max_num_batched_tokens")


def solve_rows(given: Given, suspects: Sequence[int]) -> tuple[OwnerMap | None, list[RowFault]]:
    """The owner map at the clearest site of the suspects, and the faults it shows; no map where the rows
    cannot be told apart, or the reference holds no boundaries to look them up in."""
    ref, cand = given.sources[:2]
    if not suspects or len(boundaries_of(ref)) < len(boundaries_of(cand)):
        return None, []
    finder = Finder(ref, cand, given.prompts, given.mask)
    if len(finder.library.prompt_s) < FEWEST_STATES:
        return None, []
    dictionary = entries(ref, given.norm, given.plus_one)
    best: tuple[float, int, Entry] | None = None
    for k in _by_depth(given, suspects)[:SITES]:
        worth, slot = _worth(dictionary, given, k), given.pairs[k].cand
        # Other forms of a boundary are asked for where the boundaries as they stand do not tell rows apart.
        for some in ([e for e in worth if not e.kind], [e for e in worth if e.kind]):
            maps = finder.find(slot, site(slot), some, sampled=True)
            for entry, found in zip(some, maps, strict=True):
                if best is None or found.clarity < best[0]:
                    best = (found.clarity, k, entry)
            if best is not None and best[0] <= CLEAR / 4:
                break
        if best is not None and best[0] <= CLEAR / 2:
            break
    if best is None or best[0] > CLEAR:
        return None, []
    slot = given.pairs[best[1]].cand
    (owners,) = finder.find(slot, site(slot), [best[2]])
    if not (owners.verdict_m == ELSEWHERE).any():
        return owners, []
    return owners, classify(_maps(owners, given.prompts, cand), batch(ref, cand))


def _maps(owners: OwnerMap, prompts: Sequence[PromptRows], cand: Source) -> list[PromptMap]:
    names = [p.prompts[0] for p in prompts]
    theirs = [cand.prompt(p.prompts[1]) for p in prompts]
    held = {name: other.rows for name, other in zip(names, theirs, strict=True)}
    return split(owners, names, held, [other.tokens for other in theirs])


def batch(ref: Source, cand: Source) -> Batch:
    """The token ids of the reference's prompts, and the candidate's prefill chunk where it says one."""
    said = (cand.manifest.settings.get(key) for key in CHUNKS)
    chunk = next((v for v in said if isinstance(v, int) and not isinstance(v, bool) and v > 0), None)
    ids = tuple(tuple(ref.token_ids(p.id).tolist()) for p in ref.prompts)
    return Batch(ids, tuple(p.prefill for p in ref.prompts), chunk)


def _by_depth(given: Given, suspects: Sequence[int]) -> list[int]:
    """The suspects, those nearest to the middle of the model first; not the embedding, where equal tokens are
    equal rows."""
    middle = given.sources[0].manifest.num_layers / 2

    def far(k: int) -> float:
        boundary = given.pairs[k].boundary
        return abs(boundary - middle) if boundary is not None else middle

    return sorted((k for k in suspects if given.pairs[k].boundary != 0), key=far)


def _worth(dictionary: Sequence[Entry], given: Given, k: int) -> list[Entry]:
    """What the slot may be: anything of the boundary it is said to be, or of a few places when nothing is
    said."""
    layers = given.sources[0].manifest.num_layers
    claimed = given.pairs[k].boundary
    if claimed is not None and not given.pairs[k].landed:
        near = [e for e in dictionary if not e.kind and 0 < abs(e.number - claimed) <= NEAR]
        same = [e for e in dictionary if e.number == claimed or (e.number == layers and not e.scalable)]
        return same + near
    numbers = {round(layers * share) for share in (0.25, 0.5, 0.75, 1.0)}
    return [e for e in dictionary if e.number in numbers]


def corrected(prompts: Sequence[PromptRows], sources: Sequence[Source], owners: OwnerMap) -> list[PromptRows]:
    """The aligned rows with every row given back to the token whose state it holds.

    A prompt whose rows came from several prompts of the candidate becomes several entries.
    """
    lib = owners.library
    verdicts = owners.verdict_m
    places = _places(prompts, owners)
    holder: dict[
        tuple[int, int], tuple[int, int]
    ] = {}  # (reference prompt, position) -> (aligned prompt, row)
    for verdict in (RIGHT, ELSEWHERE):
        for m in np.flatnonzero(verdicts == verdict):
            p = int(owners.prompt_m[m])
            index = lib.prompts.index(prompts[p].prompts[0])
            state = int(owners.nearest_m[m])
            position = int(lib.position_s[state])
            own = lib.states[index]
            mine = position < len(own) and own[position] == state
            holder.setdefault((index if mine else int(lib.prompt_s[state]), position), (p, int(places[m])))
    by_index = {lib.prompts.index(p.prompts[0]): p for p in prompts}
    groups: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for (index, position), (p, row) in sorted(holder.items()):
        if index in by_index:
            groups.setdefault((index, p), []).append((position, row))
    found: list[PromptRows] = []
    for (index, p), rows in groups.items():
        found.append(_piece(by_index[index], prompts[p], np.array(rows), sources, found))
    return found


def _places(prompts: Sequence[PromptRows], owners: OwnerMap) -> NDArray[np.int64]:
    """The candidate's row of every row of the map."""
    tables = []
    for prompt in prompts:
        table = np.full(int(prompt.positions.max(initial=0)) + 1, -1, np.int64)
        table[prompt.positions] = prompt.rows[1]
        tables.append(table)
    return np.array(
        [tables[p][at] for p, at in zip(owners.prompt_m, owners.position_m, strict=True)], np.int64
    )


def _piece(
    mine: PromptRows,
    theirs: PromptRows,
    rows: NDArray[np.int64],
    sources: Sequence[Source],
    before: Sequence[PromptRows],
) -> PromptRows:
    names = (mine.prompts[0], theirs.prompts[1], *mine.prompts[2:])
    positions = rows[:, 0].astype(np.int32)
    found = [rows_at(sources, i, names, positions) for i in range(len(sources))]
    found[1] = rows[:, 1]
    ids = sources[0].token_ids(names[0])[positions]
    return PromptRows(names, before[-1].stop if before else 0, positions, ids, tuple(found))
