"""Pair prompts and rows: a row is comparable when the whole prefix before it is the same on both sides."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from hsparity.capture.source import Source
from hsparity.errors import HsparityError
from hsparity.query import Query
from hsprobe.schema import Prompt

SHOWN_IDS = 6


@dataclass(frozen=True, slots=True, eq=False)
class PromptRows:
    """The aligned rows of one prompt, by position. `rows[s]` indexes source s (ref, cand, floors…); -1: no
    such row."""

    prompts: tuple[str, ...]  # the prompt's name in each source; "" where the source has no such prompt
    start: int  # place of the first row among all N aligned tokens
    positions: NDArray[np.int32]  # [n]
    token_ids: NDArray[np.int32]  # [n]
    rows: tuple[NDArray[np.int64], ...]  # per source [n]

    @property
    def stop(self) -> int:
        return self.start + len(self.positions)


@dataclass(frozen=True, slots=True)
class Mismatch:
    """Something one side has and the other has not. `kind`: "tokens" | "rows" | "prompt" | "longer"."""

    kind: str
    prompt: str
    side: str  # the side that lacks it: "ref" | "cand" | "both"
    count: int  # tokens or rows concerned
    text: str  # one line


@dataclass(slots=True)
class RowAlignment:
    """All aligned rows, N in total, and what could not be aligned."""

    prompts: list[PromptRows] = field(default_factory=list)
    mismatches: list[Mismatch] = field(default_factory=list)
    shared_tokens: int = 0  # tokens with an equal prefix, whether or not both sides have their rows

    @property
    def tokens(self) -> int:
        return self.prompts[-1].stop if self.prompts else 0


def align_rows(ref: Source, cand: Source, floors: Sequence[Source], query: Query) -> RowAlignment:
    """Pair the rows of both sides. Raises E203 when they share no token, E212 when they share no row."""
    aligner = _Aligner((ref, cand, *floors), query)
    pairs, alone = pair_prompts(ref, cand)
    partners = [{a.id: b.id for a, b in pair_prompts(ref, floor)[0]} for floor in floors]
    for mine, other in pairs:
        names = (mine.id, other.id, *(p.get(mine.id, "") for p in partners))
        aligner.add(names, mine, other)
    result = aligner.result
    for side, prompt in alone:
        holder = "reference" if side == "cand" else "candidate"
        line = f"prompt {prompt.id} is only in the {holder}: not compared"
        result.mismatches.append(Mismatch("prompt", prompt.id, side, prompt.tokens, line))
    if not result.tokens:
        raise _nothing_comparable(result, ref, cand, pairs, query)
    return result


def pair_prompts(ref: Source, cand: Source) -> tuple[list[tuple[Prompt, Prompt]], list[tuple[str, Prompt]]]:
    """Prompt pairs in the reference's order, and the prompts left alone with the side that lacks them.

    By id and token ids, then by token ids alone, then by id alone (their ids then differ: a finding).
    """
    left = {p.id: p for p in cand.prompts}
    found: dict[str, Prompt] = {}
    for prompt in ref.prompts:
        other = left.get(prompt.id)
        if other and other.token_ids_sha256 == prompt.token_ids_sha256:
            found[prompt.id] = left.pop(prompt.id)
    alike: dict[str, list[str]] = {}
    for other in left.values():
        alike.setdefault(other.token_ids_sha256, []).append(other.id)
    for prompt in ref.prompts:
        same = alike.get(prompt.token_ids_sha256, [])
        if prompt.id not in found and same:
            found[prompt.id] = left.pop(same.pop(0))
    for prompt in ref.prompts:
        if prompt.id not in found and prompt.id in left:
            found[prompt.id] = left.pop(prompt.id)
    pairs = [(p, found[p.id]) for p in ref.prompts if p.id in found]
    alone = [("cand", p) for p in ref.prompts if p.id not in found] + [("ref", p) for p in left.values()]
    return pairs, alone


def common_prefix(ref: NDArray[np.int32], cand: NDArray[np.int32]) -> int:
    """How many leading ids are equal."""
    n = min(len(ref), len(cand))
    differs = np.flatnonzero(ref[:n] != cand[:n])
    return int(differs[0]) if len(differs) else n


def _index(positions: NDArray[np.int32], wanted: NDArray[np.int32]) -> NDArray[np.int64]:
    """The row that holds each wanted position, or -1. Rows may lie in any order."""
    if not len(positions):
        return np.full(len(wanted), -1, np.int64)
    table = np.full(int(max(positions.max(), wanted.max(initial=0))) + 1, -1, np.int64)
    # Reversed, so that the first of two rows for one position wins.
    table[positions[::-1]] = np.arange(len(positions), dtype=np.int64)[::-1]
    return table[wanted]


def rows_at(
    sources: Sequence[Source], i: int, names: Sequence[str], wanted: NDArray[np.int32]
) -> NDArray[np.int64]:
    """The rows of source i for positions of a prompt, or -1; a floor is worth what its own prefix shares."""
    source, name = sources[i], names[i]
    if not name:
        return np.full(len(wanted), -1, np.int64)
    held = _index(source.positions(name), wanted)
    if i >= 2:
        shared = common_prefix(sources[0].token_ids(names[0]), source.token_ids(name))
        held[wanted >= shared] = -1
    return held


class _Aligner:
    """Builds the alignment prompt by prompt."""

    def __init__(self, sources: Sequence[Source], query: Query) -> None:
        self.sources, self.query, self.result = sources, query, RowAlignment()

    def add(self, names: Sequence[str], mine: Prompt, other: Prompt) -> None:
        """Add one prompt's aligned rows, and note what one side lacks."""
        length = common_prefix(self.sources[0].token_ids(mine.id), self.sources[1].token_ids(other.id))
        self._note_tokens(mine, other, length)
        wanted = np.arange(length, dtype=np.int32)
        wanted = wanted[self.query.keeps(wanted, mine.prefill)]
        self.result.shared_tokens += len(wanted)
        rows = [rows_at(self.sources, i, names, wanted) for i in range(len(names))]
        for side, own, opposite in (("ref", rows[0], rows[1]), ("cand", rows[1], rows[0])):
            lacking = wanted[(own < 0) & (opposite >= 0)]
            if len(lacking):
                line = f"prompt {mine.id}: {side} has no rows for positions {_spans(lacking)}"
                self.result.mismatches.append(Mismatch("rows", mine.id, side, len(lacking), line))
        both = (rows[0] >= 0) & (rows[1] >= 0)
        if both.any():
            kept = wanted[both]
            ids = self.sources[0].token_ids(mine.id)[kept]
            found = PromptRows(tuple(names), self.result.tokens, kept, ids, tuple(r[both] for r in rows))
            self.result.prompts.append(found)

    def _note_tokens(self, mine: Prompt, other: Prompt, length: int) -> None:
        """Note ids that differ inside the chosen tokens; a side that merely decodes further does not."""
        longest = np.arange(max(mine.tokens, other.tokens), dtype=np.int32)
        chosen = longest[self.query.keeps(longest, mine.prefill)]
        after = int((chosen >= length).sum())
        if not after:
            return
        shorter = min(mine.tokens, other.tokens)
        if length == shorter and max(mine.prefill, other.prefill) <= length:
            side = "ref" if mine.tokens < other.tokens else "cand"
            line = f"prompt {mine.id}: {side} ends at position {shorter}, {after} token{'s' * (after != 1)} before the other"
            self.result.mismatches.append(Mismatch("longer", mine.id, side, after, line))
            return
        left, right = self.sources[0].token_ids(mine.id), self.sources[1].token_ids(other.id)
        where = f"from position {length}" if length else "from the first"
        shown = f"ref {ids_text(left, length)}, cand {ids_text(right, length)}"
        line = f"prompt {mine.id}: ids differ {where}: {shown}"
        if shift := shift_between(left, right):
            line += f"; {shift}"
        self.result.mismatches.append(Mismatch("tokens", mine.id, "both", after, line))


def shift_between(ref: NDArray[np.int32], cand: NDArray[np.int32]) -> str:
    """Says so when the sides are equal but for one extra token at the start of one of them; else empty."""
    for side, longer, shorter in (("ref", ref, cand), ("cand", cand, ref)):
        n = min(len(longer) - 1, len(shorter))
        if n >= 1 and common_prefix(longer[1 : 1 + n], shorter[:n]) == n:
            return f"{side} has one extra token first (id {int(longer[0])}, BOS?)"
    return ""


def ids_text(ids: NDArray[np.int32], start: int = 0) -> str:
    """The first ids from `start`, as text."""
    shown = ", ".join(str(int(i)) for i in ids[start : start + SHOWN_IDS])
    return shown + (", …" if len(ids) > start + SHOWN_IDS else "") if shown else "ends"


def _spans(positions: NDArray[np.int32]) -> str:
    cuts = np.flatnonzero(np.diff(positions) != 1) + 1
    groups = np.split(positions, cuts)
    text = ", ".join(f"{g[0]} to {g[-1]}" if len(g) > 1 else f"{g[0]}" for g in groups[:4])
    return text + (f" and {len(groups) - 4} more span{'s' * (len(groups) != 5)}" if len(groups) > 4 else "")


def _nothing_comparable(
    result: RowAlignment, ref: Source, cand: Source, pairs: Sequence[tuple[Prompt, Prompt]], query: Query
) -> HsparityError:
    sliced = (query.tokens or "all") != "all"
    if result.shared_tokens or sliced:
        what = f"--tokens {query.tokens}" if sliced else "the shared prompts"
        return HsparityError(
            "E212",
            "nothing comparable: no row is held by both sides",
            [f"{what}: no common row", *(m.text for m in result.mismatches[:6])],
            "capture both sides again with the same prompts and the same --generate",
        )
    notes, shift = [], ""
    width = max(len(ref.path), len(cand.path))
    for mine, other in pairs[:2]:
        for side, source, prompt in (("ref ", ref, mine), ("cand", cand, other)):
            ids = source.token_ids(prompt.id)
            line = f"prompt {prompt.id}: {len(ids)} tokens, starts {ids_text(ids)}"
            notes.append(f"{side}  {source.path:<{width}}  {line}")
        shift = shift or shift_between(ref.token_ids(mine.id), cand.token_ids(other.id))
    if not pairs:
        for side, source in (("ref ", ref), ("cand", cand)):
            names = ", ".join(p.id for p in source.prompts[:4])
            notes.append(f"{side}  {source.path:<{width}}  {len(source.prompts)} prompts: {names}")
    help_text = "capture both sides from the same token ids: hsparity capture … --prompts FILE"
    if shift:
        help_text = f"{shift}.\n{help_text}"
    return HsparityError("E203", "captures hold different tokens", notes, help_text)
