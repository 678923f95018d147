"""(draft, ref, cand) -> DraftCost: what the difference of two captures costs a head in accepted tokens."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from hsparity.align.tokens import PromptRows, align_rows
from hsparity.capture.checkpoint import find_checkpoint
from hsparity.capture.source import Source
from hsparity.compare import check_models
from hsparity.comparing import final_norm
from hsparity.drafter import chain as chains
from hsparity.drafter import crosscheck
from hsparity.drafter.acceptance import Agreement
from hsparity.drafter.agreeing import Bench, agree, fed_text
from hsparity.drafter.beside import read
from hsparity.drafter.draft import Draft
from hsparity.drafter.fed import Fed, feed
from hsparity.drafter.feedings import Feeding
from hsparity.drafter.head import load_head
from hsparity.drafter.recording import Run, recorded
from hsparity.drafter.result import DraftCost
from hsparity.drafter.target import find_target
from hsparity.drafter.undoing import compare_slots, feedings, shifts
from hsparity.errors import HsparityError
from hsparity.metrics.kernel import Norm
from hsparity.query import Query

FEWEST_WRITTEN = 32  # generated tokens: with fewer the prompts' own rows stand for them

Progress = Callable[[float, float, str], None]


@dataclass(frozen=True, slots=True)
class Asked:
    """What the user asked. `ids` in place of the config's; () is the engines' default. `boundaries`: what a side without slots
    of its own feeds, for the reference; `served`: the same for the candidate, where no engine's reading of ids is to say it."""

    steps: int = 3
    model: str = ""
    ids: tuple[int, ...] | None = None
    boundaries: tuple[int, ...] = ()
    served: tuple[int, ...] = ()
    tokens: str = ""  # as --tokens of compare
    measured: tuple[str, ...] = ()  # records of `drafter measure`
    prompts: tuple[
        tuple[int, ...], ...
    ] = ()  # where a text that was captured whole begins with one of these, the rest is generated
    command: tuple[str, ...] = ()


def cost(
    draft: Draft,
    ref: Source,
    cand: Source,
    floors: Sequence[Source],
    asked: Asked,
    progress: Progress | None = None,
) -> DraftCost:
    """Run the head on both sides' states, teacher-forced on the text they share, and on the candidate's with each finding undone.

    Raises E260 to E269 (the head), E270 (another number of slots than the head takes), E271 (no prompt from its first row on),
    E107 (the target's checkpoint), E208 (another model), and what `compare` raises.
    """
    check_models(ref, cand)
    records = [(path, read(path)) for path in asked.measured]
    rows = align_rows(ref, cand, floors, Query(tokens=asked.tokens or None)).prompts
    whole, dropped = _whole(rows)
    if not whole:
        raise HsparityError(
            "E271",
            "no prompt is held from its first row on: a head reads everything before the row it drafts from",
            tuple(dropped[:3]),
            "capture again without prefix cache, in one chunk: hsparity capture ENGINE --model M -o DIR",
        )
    model = find_checkpoint(ref.manifest, asked.model)
    head = load_head(draft, model)
    norm, _ = final_norm(ref, cand)
    feeds = _feeds(draft, ref, cand, whole, norm, asked)
    served = compare_slots(ref, cand, floors, feeds, norm)
    tried = feedings(served)
    tried += shifts(served)
    targets = (
        find_target((("the reference", ref), ("the candidate", cand)), model),
        find_target((("the candidate", cand), ("the reference", ref)), model),
    )
    begun = [*asked.prompts, *(p.prompt for _, record in records for p in record.prompts)]
    prefills = _prefills(ref, whole, begun)
    written = sum(max(0, len(p.positions) - n) for p, n in zip(whole, prefills, strict=True))
    bench = Bench(
        head,
        lambda f, t, k: chains.run(head, f, t, k),
        asked.steps,
        targets,
        served.parts[0],
        written >= FEWEST_WRITTEN,
    )
    agreed = _agreed(bench, ref, whole, prefills, tried, progress)
    texts = [fed_text(bench, tried[0], p, ref.token_ids(p.prompts[0])) for p in whole[: crosscheck.TEXTS]]
    by = crosscheck.runner(head, model, [f for f, _ in texts], [t for _, t in texts], asked.steps)
    named = asked.model or model.name
    run = Run(draft, served, bench, by, tried, agreed, whole, dropped, named, records)
    return replace(recorded(run), command=asked.command)


def _agreed(
    bench: Bench,
    ref: Source,
    rows: Sequence[PromptRows],
    prefills: Sequence[int],
    tried: Sequence[Feeding],
    progress: Progress | None,
) -> list[list[Agreement]]:
    """Per feeding its agreement on every prompt."""
    found: list[list[Agreement]] = [[] for _ in tried]
    with torch.inference_mode():
        for i, p in enumerate(rows):
            name = p.prompts[0]
            for place, each in enumerate(agree(bench, p, ref.token_ids(name), prefills[i], tried)):
                found[place].append(each)
            if progress:
                progress(i + 1, len(rows), name)
    return found


def _prefills(ref: Source, rows: Sequence[PromptRows], begun: Sequence[tuple[int, ...]]) -> list[int]:
    """Tokens of each prompt proper. A text that was captured in one pass says only by a prompt it begins with where its
    generated part starts."""
    known = set(begun)
    lengths = sorted({len(p) for p in known}, reverse=True)
    found = []
    for p in rows:
        text = tuple(int(i) for i in ref.token_ids(p.prompts[0]))
        length = next((n for n in lengths if n < len(text) and text[:n] in known), None)
        found.append(ref.prompt(p.prompts[0]).prefill if length is None else length)
    return found


def _whole(rows: Sequence[PromptRows]) -> tuple[list[PromptRows], list[str]]:
    """Prompts whose rows run from position 0 without a gap, and what is wrong with the others."""
    kept, dropped = [], []
    for p in rows:
        gaps = np.flatnonzero(p.positions != np.arange(len(p.positions)))
        if len(gaps) or len(p.positions) < 2:
            where = (
                f"row {int(gaps[0])} is of position {int(p.positions[gaps[0]])}"
                if len(gaps)
                else "fewer than 2 rows"
            )
            dropped.append(f"prompt {p.prompts[0]}: {where}")
        else:
            kept.append(p)
    return kept, dropped


def _feeds(
    draft: Draft,
    ref: Source,
    cand: Source,
    rows: Sequence[PromptRows],
    norm: Norm | None,
    asked: Asked,
) -> tuple[Fed, Fed]:
    own = [_alone(p, i) for i in (0, 1) for p in rows]
    return (
        feed(draft, "ref", ref, own[: len(rows)], norm, None, asked.boundaries),
        feed(draft, "cand", cand, own[len(rows) :], norm, asked.ids, asked.served),
    )


def _alone(p: PromptRows, side: int) -> PromptRows:
    """One side's rows of a prompt, against themselves."""
    return PromptRows((p.prompts[side],) * 2, p.start, p.positions, p.token_ids, (p.rows[side], p.rows[side]))
