"""One prompt's rows out of an engine's passes, matched by position and token id, never by order."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch

from .protocol import Completion, ProbeError
from .schema import Prompt, PromptSpec, token_ids_sha256
from .spool import Piece

Place = tuple[int, int]  # (which piece, which of its rows)


@dataclass(frozen=True)
class Dropped:
    """Rows the engine computed that are not the capture's, by reason."""

    overrun: int = 0  # at or past T: passes run ahead of the last token, padding with a negative position
    recomputed: int = 0  # a position computed again (preemption); the first is kept
    mismatched: int = 0  # another token at a position whose own token was computed too (a rejected draft)
    partial: int = 0  # positions that some sites have and others lack

    @property
    def total(self) -> int:
        return self.overrun + self.recomputed + self.mismatched + self.partial


@dataclass(frozen=True)
class Assembled:
    """One prompt, ready to write: T fed token ids, R rows in order of position."""

    prompt: Prompt
    token_ids: torch.Tensor  # int32 [T]
    positions: torch.Tensor  # int32 [R], ascending
    steps: torch.Tensor  # int32 [R], the forward pass that computed each row
    sites: dict[str, torch.Tensor]  # each [R, ...], the engine's dtype
    dropped: Dropped


def fed_tokens(spec: PromptSpec, generated: Sequence[int]) -> tuple[int, ...]:
    """The T ids the model saw: the prompt and every generated token but the last, which is never fed back."""
    return (*spec.token_ids, *generated[:-1])


def assemble(
    spec: PromptSpec, completion: Completion, pieces: Sequence[Piece], expected: Sequence[str]
) -> Assembled:
    """Put `pieces` in order. A position nobody computed is recorded as missing; a row is never invented.

    `expected` are the site keys that must be there. Raises ProbeError E304 when one was never recorded,
    E305 when a position was computed only with another token than the one that was fed.
    """
    fed = fed_tokens(spec, completion.generated)
    keys = tuple(dict.fromkeys([*expected, *(key for piece in pieces for key in piece.sites)]))
    seen: dict[int, Place] = {}
    picked: dict[str, dict[int, Place]] = {key: {} for key in keys}
    wrong: dict[int, int] = {}
    overrun = recomputed = mismatched = 0
    for number, piece in enumerate(pieces):
        rows = zip(piece.positions.tolist(), piece.token_ids.tolist(), strict=True)
        for row, (position, token) in enumerate(rows):
            if not 0 <= position < len(fed):
                overrun += 1
            elif token != fed[position]:
                mismatched += 1
                wrong.setdefault(position, token)
            else:
                fresh = [key for key in piece.sites if position not in picked[key]]
                recomputed += position in seen and not fresh
                seen.setdefault(position, (number, row))
                for key in fresh:
                    picked[key][position] = (number, row)
    _refuse_guesses(spec, fed, wrong, seen)
    _refuse_silence(spec, picked)
    positions = sorted(set(seen).intersection(*picked.values()))
    dropped = Dropped(overrun, recomputed, mismatched, len(seen) - len(positions))
    steps = [pieces[seen[position][0]].step for position in positions]
    return Assembled(
        Prompt(
            id=spec.id,
            tokens=len(fed),
            prefill=len(spec.token_ids),
            rows=len(positions),
            missing=spans(sorted(set(range(len(fed))).difference(positions))),
            token_ids_sha256=token_ids_sha256(fed),
            generated=tuple(completion.generated),
            dropped_rows=dropped.total,
            text=spec.text,
        ),
        torch.tensor(fed, dtype=torch.int32),
        torch.tensor(positions, dtype=torch.int32),
        torch.tensor(steps, dtype=torch.int32),
        {key: _gather(key, pieces, [picked[key][position] for position in positions]) for key in keys},
        dropped,
    )


def spans(positions: Iterable[int]) -> tuple[tuple[int, int], ...]:
    """Ascending ints as [start, stop) spans."""
    result: list[tuple[int, int]] = []
    for position in positions:
        if result and result[-1][1] == position:
            result[-1] = (result[-1][0], position + 1)
        else:
            result.append((position, position + 1))
    return tuple(result)


def _refuse_guesses(
    spec: PromptSpec, fed: Sequence[int], wrong: dict[int, int], seen: dict[int, Place]
) -> None:
    for position in sorted(set(wrong).difference(seen)):
        raise ProbeError(
            "E305",
            f"rows: prompt {spec.id!r}, position {position}: the engine computed token {wrong[position]}, "
            f"the token fed there is {fed[position]}",
            "the engine's scheduling data and its answer disagree; a capture of them would be a guess",
        )


def _refuse_silence(spec: PromptSpec, picked: dict[str, dict[int, Place]]) -> None:
    silent = [key for key, rows in picked.items() if not rows]
    if silent:
        shown = ", ".join(silent[:4]) + (", …" if len(silent) > 4 else "")
        raise ProbeError(
            "E304",
            f"prompt {spec.id!r}: {len(silent)} of {len(picked)} sites were never recorded ({shown})",
            "hooks are silent where the engine compiles or replays graphs: run eager, or the native path",
        )


def _gather(key: str, pieces: Sequence[Piece], places: Sequence[Place]) -> torch.Tensor:
    """Rows of `key` at `places`, one copy."""
    offsets: dict[int, int] = {}
    parts: list[torch.Tensor] = []
    total = 0
    for number, piece in enumerate(pieces):
        if key in piece.sites:
            offsets[number] = total
            parts.append(piece.sites[key])
            total += len(piece.sites[key])
    index = torch.tensor([offsets[number] + row for number, row in places], dtype=torch.int64)
    if len(parts) == 1 and torch.equal(index, torch.arange(total)):
        return parts[0]
    return torch.cat(parts).index_select(0, index)
