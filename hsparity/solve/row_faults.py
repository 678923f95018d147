"""What an owner map says went wrong with the rows: one name per pattern, with the rows it holds for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hsparity.query import span_text
from hsparity.solve.owners import ELSEWHERE, RIGHT, OwnerMap

NEARLY = 0.8  # share of a prompt's wrong rows that one rule must explain
RANKS = (2, 3, 4, 8)
BLOCK = 16  # the smallest cache block that engines use by default
NEAR = 4  # a shift by fewer rows is a shift, not a missing prefix

Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class RowFault:
    """One named pattern. `rows` are spans as text, `count` how many rows."""

    name: str
    headline: str
    rows: tuple[str, ...]
    count: int
    evidence: tuple[str, ...] = ()
    rival: str = ""


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


@dataclass(frozen=True, slots=True)
class Batch:
    """What the captures say of the run beside the rows themselves. Prompts by their index in the
    reference."""

    ids: tuple[tuple[int, ...], ...]
    chunk: int | None = None  # the engine's prefill chunk, when its settings say it

    def shared(self, prompt: int) -> int:
        """How many leading tokens this prompt shares with an earlier one."""
        mine = self.ids[prompt]
        return max((_common(mine, other) for other in self.ids[:prompt]), default=0)


def _common(a: Sequence[int], b: Sequence[int]) -> int:
    for i, (x, y) in enumerate(zip(a, b, strict=False)):
        if x != y:
            return i
    return min(len(a), len(b))


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
        # A state that several prompts share is this prompt's own where it can be.
        own = lib.states[index]
        here = (position < len(own)) & (own[np.minimum(position, len(own) - 1)] == nearest)
        owner = np.where(here, index, lib.prompt_s[nearest])
        wrong = verdicts[mine] == ELSEWHERE
        claimed = owners.position_m[mine].astype(np.int64)
        found.append(PromptMap(name, index, lengths[p], held[name], claimed, owner, position, wrong))
    return found


def classify(maps: Sequence[PromptMap], batch: Batch) -> list[RowFault]:
    """The faults, each with all of its prompts, the one with most rows first."""
    wrong = [m for m in maps if m.wrong.any()]
    across = [m for m in wrong if (m.owner[m.wrong] != m.index).mean() > 1 - NEARLY]
    groups: dict[str, list[PromptMap]] = {}
    for m in wrong:
        if m not in across:
            groups.setdefault(_within(m), []).append(m)
    found = [_across(across, maps)] if across else []
    for kind, members in groups.items():
        found.append(_skipped(members, maps, batch) if kind == "skipped" else _named(kind, members))
    return sorted(found, key=lambda f: -f.count)


def _within(m: PromptMap) -> str:
    """The pattern of a prompt whose wrong rows are its own."""
    claimed, position = m.claimed[m.wrong], m.position[m.wrong]
    shifts = position - claimed
    shift, agreeing = _most(shifts)
    if agreeing >= NEARLY and shift > 0 and shift + m.rows <= m.tokens and shift >= NEAR:
        return "skipped" if shift + m.rows == m.tokens else "rows-scattered"
    if _interleaved(m):
        return "rows-scattered"
    if len(set(position.tolist())) == len(position) and set(position.tolist()) == set(claimed.tolist()):
        return "rows-permuted"
    if agreeing >= NEARLY and (len(claimed) >= NEARLY * len(m.claimed) or abs(shift) < NEAR):
        return "rows-shifted" if _distinct(position) or abs(shift) < NEAR else "rows-stale"
    right = set(m.position[~m.wrong].tolist())
    repeated = sum(p in right for p in position.tolist()) + len(position) - len(set(position.tolist()))
    return "rows-stale" if repeated >= len(position) / 2 else "rows-permuted"


def _distinct(values: Ints) -> bool:
    return len(set(values.tolist())) >= NEARLY * len(values)


def _most(values: Ints) -> tuple[int, float]:
    """The most frequent value and its share."""
    found, counts = np.unique(values, return_counts=True)
    return int(found[counts.argmax()]), float(counts.max() / len(values))


def _interleaved(m: PromptMap) -> int:
    """The number of ranks whose rows were laid one rank after the other, or dealt in turn; 0 when they were
    not."""
    total = m.tokens
    for ranks in RANKS:
        gathered = np.concatenate([np.arange(r, total, ranks) for r in range(ranks)])
        dealt = np.empty(total, np.int64)
        dealt[gathered] = np.arange(total)
        for order in (gathered, dealt):
            if len(m.claimed) >= 2 * ranks and (order[m.claimed] == m.position).mean() >= NEARLY + 0.1:
                return ranks
    return 0


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


def _named(kind: str, members: Sequence[PromptMap]) -> RowFault:
    rows, count = _spans(members)
    where = f"in {len(members)} prompt{'s' * (len(members) != 1)}"
    rival = ""
    if kind == "rows-shifted":
        shift, _ = _most(np.concatenate([(m.position - m.claimed)[m.wrong] for m in members]))
        words = f"rows hold the state of the token {abs(shift)} {'later' if shift > 0 else 'earlier'} {where}"
        rival = "token ids that differ by one at the start: the ids are equal"
    elif kind == "rows-scattered":
        ranks = max(_interleaved(m) or round(m.tokens / max(m.rows, 1)) for m in members)
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
    targets = {}
    for m in members:
        target, share = _most(m.owner)
        in_place = (m.position == m.claimed).mean() >= NEARLY
        if share >= NEARLY and in_place:
            targets[m.index] = target
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


def _skipped(members: Sequence[PromptMap], maps: Sequence[PromptMap], batch: Batch) -> RowFault:
    lost = {m.index: _most((m.position - m.claimed)[m.wrong])[0] for m in members}
    rows, count = _spans(members)
    fault = skipped(lost, {m.index: m.tokens for m in maps}, {m.index: m.name for m in maps}, batch)
    laid = tuple(f"prompt {names}: its {n} rows were laid from position 0" for names, n in _laid(members))
    return RowFault(fault.name, fault.headline, rows, count, (*fault.evidence, *laid[:2]), fault.rival)


def _laid(members: Sequence[PromptMap]) -> list[tuple[str, int]]:
    return [(m.name, m.rows) for m in members]


def skipped(
    lost: Mapping[int, int], tokens: Mapping[int, int], names: Mapping[int, str], batch: Batch
) -> RowFault:
    """The first `lost` rows of some prompts are absent: served from a cache, or left in earlier chunks.

    A cache can only hold what an earlier prompt shares; a chunked prefill cuts every prompt that is long
    enough, at the same multiple.
    """
    rows = tuple(f"{names[i]} 0-{n - 1}" for i, n in lost.items())
    count = sum(lost.values())
    shared = all(batch.shared(i) >= n for i, n in lost.items())
    size = _chunk(lost, tokens)
    if batch.chunk and size and batch.chunk != size and batch.chunk not in _chunks(lost, tokens):
        size = None
    where = f"the first {span_text(tuple(sorted(set(lost.values()))))} rows of {len(lost)} prompt{'s' * (len(lost) != 1)}"
    blocks = all(n % BLOCK == 0 for n in lost.values())
    cached = f"each absent prefix is shared with an earlier prompt{f' and a multiple of {BLOCK}' if blocks else ''}"
    chunked = (
        f"what is there is the last chunk of {size} tokens, and prompts of at most {size} tokens are whole"
        if size
        else ""
    )
    if shared and not (size and batch.chunk == size):
        rival = (
            f"last-chunk-only: a chunk of {size} tokens would leave the same rows"
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


__all__ = ["ELSEWHERE", "RIGHT", "Batch", "PromptMap", "RowFault", "classify", "skipped", "split"]
