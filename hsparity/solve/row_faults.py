"""What an owner map says went wrong with the rows: one name per pattern, with the rows it holds for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hsparity.query import span_text
from hsparity.solve.absent import Batch, RowFault, skipped
from hsparity.solve.owners import ELSEWHERE, Library, OwnerMap

NEARLY = 0.8  # share of a prompt's wrong rows that one rule must explain
RANKS = (2, 3, 4, 8)
NEAR = 4  # a shift by fewer rows is a shift, not a missing prefix

Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class PromptMap:
    """The decided rows of one prompt: where they were said to be (position), whose they are (prompt,
    position)."""

    name: str
    index: int  # in the reference
    tokens: int
    rows: int  # rows the candidate holds
    claimed: Ints
    owner: Ints
    position: Ints
    wrong: NDArray[np.bool_]
    holders: tuple[int, ...] = ()  # prompts that hold most of the wrong rows, all alike


def split(
    owners: OwnerMap, names: Sequence[str], held: Mapping[str, int], lengths: Sequence[int]
) -> list[PromptMap]:
    """The map by prompt; `held` and `lengths`: rows and tokens of each prompt. Rows nobody could decide are
    left out."""
    verdicts = owners.verdict_m
    lib = owners.library
    found = []
    for p, name in enumerate(names):
        index = lib.prompts.index(name)
        mine = np.flatnonzero((owners.prompt_m == p) & (verdicts != 0))
        nearest = owners.nearest_m[mine]
        position = lib.position_s[nearest]
        wrong = verdicts[mine] == ELSEWHERE
        owner, holders = _owner(lib, index, nearest, wrong)
        claimed = owners.position_m[mine].astype(np.int64)
        found.append(PromptMap(name, index, lengths[p], held[name], claimed, owner, position, wrong, holders))
    return found


def _owner(
    lib: Library, index: int, nearest_m: Ints, wrong_m: NDArray[np.bool_]
) -> tuple[Ints, tuple[int, ...]]:
    """The prompt of every state, and the prompts that hold most of the wrong ones. A state that several prompts
    share is this prompt's own where it can be, else that of a prompt which holds most."""
    position = lib.position_s[nearest_m]

    def has(prompt: int) -> NDArray[np.bool_]:
        states = lib.states[prompt]
        inside = position < len(states)
        return inside & (states[np.minimum(position, len(states) - 1)] == nearest_m)

    owner = lib.prompt_s[nearest_m].copy()
    foreign = wrong_m & ~has(index)
    holders: tuple[int, ...] = ()
    if foreign.any():
        counts = [int((has(q) & foreign).sum()) for q in range(len(lib.prompts))]
        holders = tuple(q for q, count in enumerate(counts) if count == max(counts))
        owner[has(holders[0])] = holders[0]
    owner[has(index)] = index
    return owner, holders


def classify(maps: Sequence[PromptMap], batch: Batch) -> list[RowFault]:
    """The faults, each with all of its prompts, the one with most rows first."""
    wrong = [m for m in maps if m.wrong.any()]
    if fault := _shifted_batch(wrong, maps):
        return [fault]
    across = [m for m in wrong if (m.owner[m.wrong] != m.index).mean() > 1 - NEARLY]
    ranks = _ranks([m for m in wrong if m not in across])
    groups: dict[str, list[PromptMap]] = {}
    for m in wrong:
        if m not in across:
            groups.setdefault(_within(m, ranks), []).append(m)
    found = [_across(across, maps)] if across else []
    for kind, members in groups.items():
        found.append(_skipped(members, maps, batch) if kind == "skipped" else _named(kind, members, ranks))
    return sorted(found, key=lambda f: -f.count)


def _shifted_batch(wrong: Sequence[PromptMap], maps: Sequence[PromptMap]) -> RowFault | None:
    """One shift of all rows laid end to end, which takes rows across the ends of prompts."""
    starts = dict(
        zip((m.index for m in maps), np.cumsum([0, *(m.tokens for m in maps)])[:-1].tolist(), strict=True)
    )
    moves = [
        starts[int(o)] + p - starts[m.index] - c
        for m in wrong
        for o, p, c in zip(m.owner[m.wrong], m.position[m.wrong], m.claimed[m.wrong], strict=True)
        if int(o) in starts
    ]
    if not moves or len(wrong) < 2:
        return None
    shift, share = _most(np.array(moves))
    if share < NEARLY or not 0 < abs(shift) < NEAR:
        return None
    return _named("rows-shifted", wrong, 0, shift)


def _within(m: PromptMap, ranks: int) -> str:
    """The pattern of a prompt whose wrong rows are its own."""
    claimed, position = m.claimed[m.wrong], m.position[m.wrong]
    shifts = position - claimed
    shift, agreeing = _most(shifts)
    if agreeing >= NEARLY and shift > 0 and shift + m.rows <= m.tokens and shift >= NEAR:
        return "skipped" if shift + m.rows == m.tokens else "rows-scattered"
    if ranks and _follows(m, ranks):
        return "rows-scattered"
    if len(set(position.tolist())) == len(position) and set(position.tolist()) == set(claimed.tolist()):
        return "rows-permuted"
    right = set(m.position[~m.wrong].tolist())
    copies = sum(p in right for p in position.tolist())
    if copies >= len(position) / 2 and len(position) < len(m.claimed) / 2:
        return "rows-stale"
    if agreeing >= NEARLY and (len(claimed) >= NEARLY * len(m.claimed) or abs(shift) < NEAR):
        return "rows-shifted" if _distinct(position) or abs(shift) < NEAR else "rows-stale"
    repeated = copies + len(position) - len(set(position.tolist()))
    return "rows-stale" if repeated >= len(position) / 2 else "rows-permuted"


def _distinct(values: Ints) -> bool:
    return len(set(values.tolist())) >= NEARLY * len(values)


def _most(values: Ints) -> tuple[int, float]:
    """The most frequent value and its share."""
    found, counts = np.unique(values, return_counts=True)
    return int(found[counts.argmax()]), float(counts.max() / len(values))


def _ranks(members: Sequence[PromptMap]) -> int:
    """The number of ranks whose rows were laid one rank after the other, or dealt in turn: the one that
    explains most rows; 0 when too few rows follow one for that to be no accident."""
    counts = {n: sum(len(m.claimed) for m in members if _follows(m, n)) for n in RANKS}
    # Rows dealt to 3 ranks are the reverse of 8 where there are 24: of equals, the fewest.
    return max((n for n in RANKS if counts[n] >= 4 * n), key=lambda n: (counts[n], -n), default=0)


def _follows(m: PromptMap, ranks: int) -> bool:
    """Whether the rows lie in an order that `ranks` ranks make of them."""
    return any(
        len(order) == m.tokens and (order[m.claimed] == m.position).mean() >= NEARLY + 0.1
        for order in _orders(m.tokens, ranks)
    )


def _orders(total: int, ranks: int) -> list[Ints]:
    """Round robin, and slices in zigzag (rank r holds slices r and 2n - 1 - r); each gathered rank after rank,
    and the reverse of that."""
    everyone = np.arange(total)
    slices = np.array_split(everyone, 2 * ranks)
    gathered = (
        np.concatenate([everyone[r::ranks] for r in range(ranks)]),
        np.concatenate([np.concatenate((slices[r], slices[2 * ranks - 1 - r])) for r in range(ranks)]),
    )
    return [order for one in gathered for order in (one, np.argsort(one))]


def _spans(members: Sequence[PromptMap]) -> tuple[tuple[str, ...], int]:
    rows = tuple(f"{m.name} {span_text(tuple(np.unique(m.claimed[m.wrong]).tolist()))}" for m in members)
    return rows, sum(int(m.wrong.sum()) for m in members)


def _examples(members: Sequence[PromptMap], names: Mapping[int, str] | None = None) -> tuple[str, ...]:
    lines = []
    for m in members[:4]:
        at = int(np.flatnonzero(m.wrong)[0])
        whose = f"prompt {names[int(m.owner[at])]} position" if names else "position"
        lines.append(f"prompt {m.name}: row {m.claimed[at]} holds the state of {whose} {m.position[at]}")
    return tuple(lines)


def _named(kind: str, members: Sequence[PromptMap], ranks: int = 0, shift: int | None = None) -> RowFault:
    rows, count = _spans(members)
    where = f"in {len(members)} prompt{'s' * (len(members) != 1)}"
    rival = ""
    if kind == "rows-shifted":
        if shift is None:
            shift, _ = _most(np.concatenate([(m.position - m.claimed)[m.wrong] for m in members]))
        words = f"rows hold the state of the token {abs(shift)} {'later' if shift > 0 else 'earlier'} {where}"
        rival = "token ids that differ by one at the start: the ids are equal"
    elif kind == "rows-scattered":
        ranks = ranks or max(round(m.tokens / max(m.rows, 1)) for m in members)
        words = f"rows lie as {ranks} ranks hold them, not as the tokens do, {where}"
        rival = "a permutation without a stride"
    elif kind == "rows-stale":
        words = f"{count} rows repeat the state of another row {where}"
        rival = "rows moved: the rows they repeat are still in their own place"
    else:
        words = f"{count} rows are exchanged {where}"
        rival = "rows of another prompt: all owners are in the same prompt"
    return RowFault(kind, words, rows, count, _examples(members), rival)


def _across(members: Sequence[PromptMap], maps: Sequence[PromptMap]) -> RowFault:
    """Rows of other prompts: whole prompts in another order, or rows of another request."""
    rows, count = _spans(members)
    names = {m.index: m.name for m in maps}
    whole_prompts = {
        m.index: m.holders
        for m in members
        if _most(m.owner[m.wrong])[1] >= NEARLY and (m.position == m.claimed)[m.wrong].mean() >= NEARLY
    }
    targets = _matched(whole_prompts)
    order = [targets.get(m.index, m.index) for m in maps]
    whole = len(targets) == len(members) and sorted(order) == sorted(m.index for m in maps)
    if whole:
        sorted_as_text = sorted(range(len(maps)), key=str)
        places = {m.index: i for i, m in enumerate(maps)}
        text = [places[o] for o in order] in (sorted_as_text, np.argsort(sorted_as_text).tolist())
        how = "sorted as text (0, 1, 10, 11, 2 …)" if text else "in another order"
        moved = tuple(
            f"prompt {m.name} holds the states of prompt {names[targets[m.index]]}" for m in members[:4]
        )
        words = f"the states of {len(members)} prompts came back {how}"
        return RowFault(
            "request-order", words, rows, count, moved, "rows of another request: every prompt appears once"
        )
    words = f"{count} rows belong to other prompts, in {len(members)} of {len(maps)} prompts"
    every = {m.index: m.name for m in maps}
    known = {int(o): every.get(int(o), f"number {o}") for m in members for o in m.owner}
    return RowFault(
        "rows-wrong-request",
        words,
        rows,
        count,
        _examples(members, known),
        "prompts in another order: not every prompt appears once",
    )


def _matched(options: Mapping[int, tuple[int, ...]]) -> dict[int, int]:
    """One prompt for each, every prompt once as far as that goes; those with fewest choices choose first."""
    taken: dict[int, int] = {}
    for index in sorted(options, key=lambda i: len(options[i])):
        free = [q for q in options[index] if q not in taken.values()] or list(options[index])
        taken[index] = next((q for q in free if q in options), free[0])
    return taken


def _skipped(members: Sequence[PromptMap], maps: Sequence[PromptMap], batch: Batch) -> RowFault:
    lost = {m.index: _most((m.position - m.claimed)[m.wrong])[0] for m in members}
    rows, count = _spans(members)
    fault = skipped(lost, {m.index: m.tokens for m in maps}, {m.index: m.name for m in maps}, batch)
    laid = tuple(f"prompt {names}: its {n} rows were laid from position 0" for names, n in _laid(members))
    return RowFault(fault.name, fault.headline, rows, count, (*fault.evidence, *laid[:2]), fault.rival)


def _laid(members: Sequence[PromptMap]) -> list[tuple[str, int]]:
    return [(m.name, m.rows) for m in members]
