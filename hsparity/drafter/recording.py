"""From agreement on every row to the record: counts, differences, bins, measurements beside predictions."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass

import hsparity
from hsparity.align.tokens import PromptRows
from hsparity.audit.claims import worded
from hsparity.conventions import draft_config
from hsparity.drafter import crosscheck
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
from hsparity.drafter.agreeing import Bench
from hsparity.drafter.beside import Choice, beside
from hsparity.drafter.draft import Draft, weights_sha256
from hsparity.drafter.fed import SERVING
from hsparity.drafter.feedings import Feeding
from hsparity.drafter.judging import judged
from hsparity.drafter.measurement import Measurement
from hsparity.drafter.result import SCHEMA, Acceptance, Beside, Bin, DraftCost, FedSide
from hsparity.drafter.undoing import Served
from hsparity.model import Verdict

EDGES = (0, 32, 128, 512, 2048, 8192, 32768)


@dataclass(frozen=True, slots=True, eq=False)
class Run:
    """All that was computed. `agreed`: per feeding of `tried` its agreement on every prompt of `rows`."""

    draft: Draft
    served: Served
    bench: Bench
    by: crosscheck.Runner
    tried: Sequence[Feeding]
    agreed: Sequence[Sequence[Agreement]]
    rows: Sequence[PromptRows]
    dropped: Sequence[str]
    model: str
    records: Sequence[tuple[str, Measurement]]


def recorded(run: Run) -> DraftCost:
    """The answer, without the command line."""
    served, bench, tried, agreed = run.served, run.bench, run.tried, run.agreed
    generated = bench.generated
    counts = [walked(a) if generated else every_start(a, False) for a in agreed]
    made = tuple(
        _acceptance(feeding, counts[i], counts[0], agreed[i], generated) for i, feeding in enumerate(tried)
    )
    verdict, headline, notes, following = judged(made, served.comparison, served.feeds, run.draft, generated)
    notes += [run.by.note] if run.by.note else []
    if run.by.doubt:
        verdict, headline = Verdict.INCONCLUSIVE, f"nothing can be said: {run.by.doubt}"
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
            model=s.manifest.model,
            weights_sha256=s.manifest.weights_sha256,
            prompts=len(s.manifest.prompts),
            tokens=sum(p.tokens for p in s.manifest.prompts),
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
        draft=run.draft.spelled,
        layout=run.draft.layout,
        runner=run.by.words,
        model=run.model,
        steps=bench.steps,
        tokens="steps along the generated text, as an engine takes them"
        if generated
        else "rows, each as a start: no generated text is known",
        ref=side[0],
        cand=side[1],
        prompts=len(run.rows),
        dropped=tuple(run.dropped),
        states=_by_slot(served),
        state_verdict=served.comparison.verdict,
        feeds=made,
        positions=_by_position(agreed[0], agreed[1], generated),
        by_prompt=tuple(
            Bin(p.prompts[0], int(counts[0].steps_p[i]), _rate(counts[0], i), _rate(counts[1], i))
            for i, p in enumerate(run.rows)
        ),
        notes=tuple(notes),
        next=tuple(_filled(line, served, run.draft) for line in following),
        beside=_beside(run),
        fix=_fix(served) if verdict is Verdict.DIVERGED else (),
    )


def _fix(served: Served) -> tuple[str, ...]:
    """What is to be changed: the config's line where other layers are fed, else what the leading cause says."""
    wanted, found = (served.numbers(i) for i in (0, 1))
    m = served.cand.manifest
    boundaries = tuple(n for n in wanted if n is not None and n <= m.num_layers)
    if len(boundaries) == len(wanted) and None not in found and set(wanted) != set(found):
        said = draft_config(boundaries, m.num_layers, (m.engine,), m.architecture)
        return tuple(
            f"for boundaries {', '.join(map(str, boundaries))} write for {engine}: {text}"
            for engine, text in said.items()
        )
    lead = next((f for f in served.comparison.findings if f.severity == "cause" and not f.ruled_out), None)
    return tuple(dict.fromkeys(lead.fix.values())) if lead else ()


def _by_slot(served: Served) -> str:
    """The comparison's headline, with the head's slots in place of the sites that they were compared under."""
    text = served.comparison.headline
    for i, claim in enumerate(served.claims):
        text = text.replace(f"The candidate's {claim}", f"Slot {i} of the candidate")
        text = text.replace(f"the candidate's {claim}", f"slot {i} of the candidate").replace(
            claim, f"slot {i}"
        )
    return text


def _beside(run: Run) -> tuple[Beside, ...]:
    """The measurements, each beside the feeding of the same boundaries by the same engine."""
    served = run.served
    engines = served.ref.manifest.engine, served.cand.manifest.engine
    numbers = [tuple(n for n in served.numbers(i) if n is not None) for i in (0, 1)]
    undone = [f.key for f in run.tried if f.key == "undone:all" or f.key.startswith("undone:HS")][-1:]
    choices = [Choice("cand", engines[1], numbers[1])]
    choices += [Choice("ref", engines[0], numbers[0])]
    choices += [Choice(key, engines[1], numbers[0]) for key in undone]
    by_key = {feeding.key: agreement for feeding, agreement in zip(run.tried, run.agreed, strict=True)}
    digest = weights_sha256(run.draft) if run.records else ""
    return tuple(
        beside(path, record, choices, by_key, run.rows, served.ref, run.bench.steps, digest)
        for path, record in run.records
    )


def _filled(line: str, served: Served, draft: Draft) -> str:
    quoted = {
        "ref": shlex.quote(served.ref.path),
        "cand": shlex.quote(served.cand.path),
        "draft": shlex.quote(draft.spelled),
        "engine": served.cand.manifest.engine if served.cand.manifest.engine in SERVING else "vllm",
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
        nonfinite=sum(a.nonfinite for a in rows),
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
