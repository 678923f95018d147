"""(draft, ref, cand) -> DraftCost: what the difference of two captures costs a head in accepted tokens."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

import hsparity
from hsparity.align.tokens import PromptRows, align_rows
from hsparity.audit.claims import worded
from hsparity.capture.checkpoint import find_checkpoint
from hsparity.capture.source import Source
from hsparity.compare import check_models
from hsparity.drafter import chain as chains
from hsparity.drafter.acceptance import (
    Agreement,
    Counts,
    agreement_rates,
    difference,
    estimate,
    every_start,
    overlap_rates,
    walked,
)
from hsparity.drafter.agreeing import Bench, agree
from hsparity.drafter.beside import Choice, beside, read
from hsparity.drafter.draft import Draft
from hsparity.drafter.fed import Fed, feed
from hsparity.drafter.feedings import Feeding
from hsparity.drafter.head import load_head
from hsparity.drafter.judging import judged
from hsparity.drafter.measurement import Measurement
from hsparity.drafter.result import SCHEMA, Acceptance, Beside, Bin, DraftCost, FedSide
from hsparity.drafter.target import find_target
from hsparity.drafter.undoing import Served, compare_slots, feedings, shifts
from hsparity.errors import HsparityError
from hsparity.metrics.kernel import Norm
from hsparity.model import Cost
from hsparity.query import Query

EDGES = (0, 32, 128, 512, 2048, 8192, 32768)
FEWEST_WRITTEN = 32  # generated tokens: with fewer the prompts' own rows stand for them

Progress = Callable[[float, float, str], None]


@dataclass(frozen=True, slots=True)
class Asked:
    """What the user asked. `ids` in place of the config's; () is the engines' default. `boundaries`: what a side without slots
    of its own feeds, for the reference."""

    steps: int = 3
    model: str = ""
    ids: tuple[int, ...] | None = None
    boundaries: tuple[int, ...] = ()
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
    norm = _norm(ref, cand)
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
    return _result(draft, served, bench, tried, agreed, whole, dropped, model, asked, records)


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


def _norm(ref: Source, cand: Source) -> Norm | None:
    found = ref.norm() or cand.norm()
    if found is None:
        return None
    weight, eps, plus_one = found
    return Norm(torch.from_numpy(weight + 1.0 if plus_one else weight), eps)


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
        feed(draft, "cand", cand, own[len(rows) :], norm, asked.ids),
    )


def _alone(p: PromptRows, side: int) -> PromptRows:
    """One side's rows of a prompt, against themselves."""
    return PromptRows((p.prompts[side],) * 2, p.start, p.positions, p.token_ids, (p.rows[side], p.rows[side]))


def _result(
    draft: Draft,
    served: Served,
    bench: Bench,
    tried: Sequence[Feeding],
    agreed: Sequence[Sequence[Agreement]],
    rows: Sequence[PromptRows],
    dropped: Sequence[str],
    model: Path,
    asked: Asked,
    records: Sequence[tuple[str, Measurement]],
) -> DraftCost:
    generated = bench.generated
    counts = [walked(a) if generated else every_start(a, False) for a in agreed]
    made = tuple(
        _acceptance(feeding, counts[i], counts[0], agreed[i], generated) for i, feeding in enumerate(tried)
    )
    verdict, headline, notes, following = judged(made, served.comparison, served.feeds, draft, generated)
    side = [
        FedSide(
            path=s.path,
            engine=s.manifest.engine,
            version=s.manifest.engine_version,
            slots=f.keys,
            places=tuple(
                "not told" if n is None else worded(n, s.manifest.num_layers) for n in served.numbers(i)
            ),
            why=f.why,
            target=t.why,
        )
        for i, (s, f, t) in enumerate(
            zip((served.ref, served.cand), served.feeds, bench.targets, strict=True)
        )
    ]
    return DraftCost(
        schema=SCHEMA,
        hsparity=hsparity.__version__,
        verdict=verdict,
        headline=headline,
        draft=draft.spelled,
        layout=draft.layout,
        runner=f"hsparity {hsparity.__version__}, float32",
        model=str(asked.model or model.name),
        steps=asked.steps,
        tokens="steps along the generated text, as an engine takes them"
        if generated
        else "every row as a start: the captures hold too little generated text",
        ref=side[0],
        cand=side[1],
        prompts=len(rows),
        dropped=tuple(dropped),
        states=served.comparison.headline,
        state_verdict=served.comparison.verdict,
        feeds=made,
        positions=_by_position(agreed[0], agreed[1], generated),
        by_prompt=tuple(
            Bin(p.prompts[0], int(counts[0].steps_p[i]), _rate(counts[0], i), _rate(counts[1], i))
            for i, p in enumerate(rows)
        ),
        notes=tuple(notes),
        next=tuple(_filled(line, served, draft) for line in following),
        command=asked.command,
        beside=_beside(served, records, tried, agreed, rows, asked),
    )


def _beside(
    served: Served,
    records: Sequence[tuple[str, Measurement]],
    tried: Sequence[Feeding],
    agreed: Sequence[Sequence[Agreement]],
    rows: Sequence[PromptRows],
    asked: Asked,
) -> tuple[Beside, ...]:
    """The measurements, each beside the feeding of the same boundaries by the same engine."""
    engines = served.ref.manifest.engine, served.cand.manifest.engine
    numbers = [tuple(n for n in served.numbers(i) if n is not None) for i in (0, 1)]
    undone = [f.key for f in tried if f.key == "undone:all" or f.key.startswith("undone:HS")][-1:]
    choices = [Choice("cand", engines[1], numbers[1])]
    choices += [Choice(key, engines[1], numbers[0]) for key in undone]
    choices += [Choice("ref", engines[0], numbers[0])]
    by_key = {feeding.key: agreement for feeding, agreement in zip(tried, agreed, strict=True)}
    return tuple(
        beside(path, record, choices, by_key, rows, served.ref, asked.steps) for path, record in records
    )


def summary(found: DraftCost) -> Cost:
    """What a comparison's headline says of it."""
    ref, cand = found.feed("ref"), found.feed("cand")
    change = cand.change
    assert change is not None  # only the reference's own feeding has none
    return Cost(
        draft=found.draft,
        verdict=found.verdict,
        headline=found.headline,
        ref=ref.accepted.value,
        cand=cand.accepted.value,
        low=None if change.high is None else -change.high,
        high=None if change.low is None else -change.low,
        undone={
            f.key.partition(":")[2]: f.accepted.value for f in found.feeds if f.key.startswith("undone:HS")
        },
    )


def _filled(line: str, served: Served, draft: Draft) -> str:
    quoted = {
        "ref": shlex.quote(served.ref.path),
        "cand": shlex.quote(served.cand.path),
        "draft": shlex.quote(draft.spelled),
    }
    return line.format(**quoted)


def _acceptance(
    feeding: Feeding, counts: Counts, base: Counts, rows: Sequence[Agreement], generated: bool
) -> Acceptance:
    sampled, together = overlap_rates(rows, generated)
    return Acceptance(
        key=feeding.key,
        words=feeding.words,
        steps=int(counts.steps_p.sum()),
        accepted=estimate(counts),
        by_position=counts.by_position,
        conditional=counts.conditional,
        agreement=agreement_rates(rows, generated),
        sampled=sampled,
        sampled_accepted=together,
        change=None if feeding.key == "ref" else difference(base, counts),
        stands_in=feeding.stands_in,
        note=feeding.note,
    )


def _rate(counts: Counts, i: int) -> float:
    steps = int(counts.steps_p[i])
    return float(counts.accepted_pk[i].sum() / steps) if steps else float("nan")


def _by_position(ref: Sequence[Agreement], cand: Sequence[Agreement], generated: bool) -> tuple[Bin, ...]:
    """Every row of a range of positions as a start."""
    found = []
    for low, high in zip(EDGES, (*EDGES[1:], 1 << 40), strict=True):
        cut = (
            [_between(a, low, high, generated) for a in ref],
            [_between(a, low, high, generated) for a in cand],
        )
        both = [every_start(rows, False) for rows in cut]
        if steps := int(both[0].steps_p.sum()):
            label = f"{low}-{high - 1}" if high < 1 << 40 else f"{low}-"
            found.append(Bin(label, steps, both[0].accepted, both[1].accepted))
    return tuple(found)


def _between(a: Agreement, low: int, high: int, generated: bool) -> Agreement:
    first = max(low, a.prefill - 1 if generated else 0)
    return Agreement(a.prompt, a.prefill, a.match_ks[:, first:high], a.overlap_ks[:, first:high])
