"""The steps of an audit, in order: integrity, sample, captures, readings, groups, comparison, advice, repair."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import hsparity
from hsparity import registry
from hsparity.audit import advice, repair
from hsparity.audit.case import Case, Progress, Wanted, prepare
from hsparity.audit.claims import key_of, summed
from hsparity.audit.integrity import SERIOUS, judged
from hsparity.audit.readings import SampleReading, grouped, places_of, read
from hsparity.audit.result import SCHEMA, Audit, Group, Integrity, Repair
from hsparity.audit.scan import scan
from hsparity.capture import foreign, importing
from hsparity.capture.importing import Wish
from hsparity.capture.read import open_source
from hsparity.capture.readers.base import LAST, Record, file_bytes
from hsparity.capture.source import Source
from hsparity.capture.view import View
from hsparity.capture.writers.base import Layout
from hsparity.compare import compare
from hsparity.model import Comparison, Verdict
from hsparity.query import Query
from hsprobe.schema import Site
from hsprobe.writer import write_text

RECORD = "hsparity-repair.json"  # beside a repaired dataset: which sample was which, and what was done
MOST_GROUPS = 3  # that are compared; the others are read only


def audit(wanted: Wanted, progress: Callable[[str], Progress] | None = None) -> Audit:
    """The whole audit. `progress(label)` makes the progress of one long step.

    Raises E221 where nothing can be read, E105, E208 and E3xx for the engine, E203 where an `against` capture shares no
    tokens with the dataset, E106 and E205 for a repaired dataset that cannot be written.
    """
    dataset = wanted.dataset
    records = dataset.records()
    if not records:
        raise importing.nothing_readable(dataset, ())
    if wanted.repair is not None:
        repair.refuse_filled(wanted.repair, dataset.path)
    wanted.work.mkdir(parents=True, exist_ok=True)

    def step(label: str) -> Progress | None:
        return progress(label) if progress else None

    facts = scan(dataset, records, wanted.work, step("reading every sample")) if wanted.scan else []
    integrity = judged(records, facts, wanted.scan, file_bytes(records))
    if facts and all(f.code for f in facts):
        raise importing.nothing_readable(dataset, [importing.Skipped(f.id, f.code, f.message) for f in facts])
    if wanted.serving is None and not wanted.against:
        return _integrity_only(wanted, integrity)
    case = prepare(wanted, records, facts, integrity, step)
    groups = _groups(case, _readings(case))
    return _audit(case, groups, _repaired(case, groups, step))


def _integrity_only(wanted: Wanted, integrity: Integrity) -> Audit:
    serious = any(t.kind in SERIOUS for t in integrity.troubles)
    verdict, headline = advice.integrity_headline(integrity, serious)
    next_ = shlex.join(
        [
            "hsparity",
            "audit",
            wanted.dataset.spelled,
            *["--engine", "sglang", "--model", "MODEL", "--ids", "IDS"],
        ]
    )
    return replace(_frame(wanted, integrity), verdict=verdict, headline=headline, next=(next_,))


def _frame(wanted: Wanted, integrity: Integrity) -> Audit:
    """What an audit says whatever comes out."""
    said, name = wanted.dataset.said(), wanted.dataset.format
    reader = registry.readers().get(name)
    return Audit(
        schema=SCHEMA,
        hsparity=hsparity.__version__,
        dataset=wanted.dataset.spelled,
        format=name,
        title=reader.title if reader else name,
        producer=f"{said.producer} {said.version}".strip(),
        verdict=Verdict.INCONCLUSIVE,
        headline="",
        server=None,
        sampled=0,
        seed=wanted.seed,
        tokens=0,
        max_tokens=wanted.max_tokens,
        integrity=integrity,
        groups=(),
        fix=(),
        repair=None,
        numbering="",
        notes=tuple(said.notes),
        next=(),
    )


def _readings(case: Case) -> list[SampleReading]:
    keys = [Site("slot", i).key for i in range(len(case.slots))]
    return read(case.server, case.cand, case.prompts, keys, case.norm)


def _groups(case: Case, readings: Sequence[SampleReading]) -> tuple[Group, ...]:
    """Groups of samples that read alike, the largest first; the first few are compared with the server."""
    order = {p.id: i for i, p in enumerate(case.cand.prompts)}
    places = places_of(case.server, case.norm)
    made = []
    for group in grouped(readings).values():
        names = tuple(sorted((r.prompt for r in group), key=order.__getitem__))
        made.append(Group(names, summed(group, case.slots, places, case.claimed, case.layers), None))
    made = [replace(g, since=_since(case, g, [*made[:i], *made[i + 1 :]])) for i, g in enumerate(made)]
    compared = [replace(g, comparison=_compared(case, case.cand, g.samples)) for g in made[:MOST_GROUPS]]
    return (*compared, *made[MOST_GROUPS:])


def _since(case: Case, group: Group, others: Sequence[Group]) -> str:
    """The sample from which on a group's make holds, where the sampled ones change over once in the dataset's order; the
    norms of the scan say which one exactly, between the last sampled one of the old make and the first of the new."""
    place = case.place
    mine = [place[s] for s in group.samples]
    first, last = min(mine), max(mine)
    rest = [[place[s] for s in o.samples] for o in others]
    before = [max(places) for places in rest if max(places) < first]
    if not before or any(max(places) > first and min(places) < last for places in rest):
        return ""
    exact = case.integrity.change
    inside = max(before) < place.get(exact, -1) <= first
    return exact if inside else case.records[first].id


def _compared(case: Case, cand: Source, names: Collection[str]) -> Comparison:
    """Samples against the server: every slot as the site it ought to be, else where the data put it."""
    own = {i: Site("slot", i).key for i in range(len(case.slots))}
    claimed = case.claimed.sites
    sites = {claimed[i]: own[i] for i in sorted(claimed)} if claimed else {key: key for key in own.values()}
    return _against_server(case, View(cand, sites, names))


def _against_server(case: Case, cand: Source) -> Comparison:
    held = [k for k in case.server.sites() if k.startswith("boundary.") or k == "final_norm"]
    return compare(View(case.server, {k: k for k in held}), cand, case.floors, Query())


def _audit(case: Case, groups: tuple[Group, ...], mended: Repair | None) -> Audit:
    main, others = groups[0], groups[1:]
    said, server = case.wanted.dataset.said(), case.said
    producer = f"{said.producer} {said.version}".strip()
    verdicts = {g.comparison.verdict for g in groups if g.comparison is not None}
    serious = any(t.kind in SERIOUS for t in case.integrity.troubles)
    verdict = Verdict.PARITY
    wrong = case.claimed.refuted or any(r.right is False or r.refuted for r in main.readings)
    if Verdict.DIVERGED in verdicts or others or wrong:
        verdict = Verdict.DIVERGED
    elif Verdict.INCONCLUSIVE in verdicts or case.claimed.why_not:
        verdict = Verdict.INCONCLUSIVE
    ids = [s.native_id for s in case.slots if s.role != LAST]
    known = tuple(i for i in ids if i is not None) if None not in ids else ()
    headline = advice.headline(main, server, others, case.claimed.why_not, said.model)
    if verdict is Verdict.PARITY and serious:
        verdict, (_, headline) = Verdict.DIVERGED, advice.integrity_headline(case.integrity, True)
    counted = [g.comparison.alignment.tokens for g in groups if g.comparison]
    return replace(
        _frame(case.wanted, case.integrity),
        verdict=verdict,
        headline=headline,
        server=server,
        sampled=len(case.cand.prompts),
        tokens=sum(counted),
        groups=groups,
        fix=tuple(advice.fixes(main, server, producer if said.producer == "speculators" else "")),
        repair=mended,
        numbering=advice.numbering(main.readings, known, server, producer),
        next=tuple(advice.next_commands(case.wanted, main, server, mended)),
        cost=case.wanted.price(case.cand, case.server, case.floors) if case.wanted.price else None,
    )


def _repaired(case: Case, groups: Sequence[Group], step: Callable[[str], Progress | None]) -> Repair | None:
    """What a repair could do; written and compared again where it was asked for. None where nothing is wrong."""
    ways = {g.samples: repair.way_for(g, case.claimed, case.layers, case.norm) for g in groups}
    unfit = repair.unfit(case.integrity, case.facts)
    stuck = next((w for w in ways.values() if w.why_not), None)
    if stuck is not None:
        wrong = (
            len(groups) > 1
            or case.claimed.refuted
            or any(g.comparison and g.comparison.verdict is Verdict.DIVERGED for g in groups)
        )
        return Repair(False, f"{stuck.why_not}: the states must be extracted again") if wrong else None
    ordered = sorted(groups, key=lambda g: min(case.place[s] for s in g.samples))
    if len(groups) > 1 and not all(g.since for g in ordered[1:]):
        return Repair(
            False,
            "samples of several makes are mixed, and only the sampled ones are known: extract them again",
        )
    for before, after in pairwise(ordered):
        last, first = case.place[before.samples[-1]], case.place[after.samples[0]]
        if unseen := sum(r.id not in unfit for r in case.records[last + 1 : first]):
            between = (
                f"the {unseen} samples between {before.samples[-1]} and {after.samples[0]} were not sampled"
            )
            return Repair(False, f"{between}, and are of one make or the other: --sample {len(case.records)}")
    if not any(w.changes for w in ways.values()) and not unfit:
        return None
    steps = [text for w in ways.values() for text in w.steps]
    steps += [f"{len(unfit)} samples left out: {', '.join(sorted(set(unfit.values())))}"] if unfit else []
    plan = Repair(True, "exact: " + "; ".join(steps), tuple(steps))
    if case.wanted.repair is None:
        return plan
    starts = [0, *(case.place[g.since] for g in ordered[1:])]
    return _write(
        case, [(at, ways[g.samples]) for at, g in zip(starts, ordered, strict=True)], unfit, plan, step
    )


def _write(
    case: Case,
    ways: Sequence[tuple[int, repair.Way]],
    unfit: Mapping[str, str],
    plan: Repair,
    step: Callable[[str], Progress | None],
) -> Repair:
    """The repaired dataset; `ways`: the place of the first sample of a make, ascending, and how its samples are mended."""
    out = case.wanted.repair
    assert out is not None

    def way_of(record: Record) -> repair.Way | None:
        if record.id in unfit:
            return None
        return [way for start, way in ways if start <= case.place[record.id]][-1]

    aux = tuple(b for b in case.said.feeds if b <= case.layers)
    source = case.wanted.dataset
    model = source.said().model or case.said.model
    layout = Layout(model, aux, case.layers, f"repaired from {source.spelled}: {plan.text}")
    written = repair.write(
        source,
        out,
        case.records,
        way_of,
        layout,
        case.norm,
        step("writing the repaired dataset"),
    )
    record = {
        "from": source.spelled,
        "format": source.format,
        "producer": f"{source.said().producer} {source.said().version}".strip(),
        "steps": list(plan.steps),
        "samples": {str(number): name for name, number in written.items()},
        "left_out": dict(unfit),
    }
    write_text(out / RECORD, json.dumps(record, indent=1, ensure_ascii=False))
    result = _verified(case, out, written)
    left = len(case.records) - len(written)
    return replace(plan, out=str(out), written=len(written), left_out=left, verdict=result.verdict)


def _verified(case: Case, out: Path, written: Mapping[str, int]) -> Comparison:
    """The repaired samples, read from disk again and compared on the same tokens."""
    dataset = foreign.open_dataset(out, str(out))
    lengths = {written[p.id]: p.tokens for p in case.cand.prompts if p.id in written}
    picked = [r for r in dataset.records() if r.index in lengths]
    made = importing.temporary(dataset, Wish(max_tokens=case.wanted.max_tokens, unnamed=True), picked)
    sites = {key_of(n, case.layers): Site("slot", k).key for k, n in enumerate(case.claimed.places)}
    cut = {r.id: lengths[r.index] for r in picked}
    return _against_server(case, View(open_source(made.folder, verify=False), sites, cut=cut))
