"""The steps of a comparison, in order: rows, sites, places, one pass over the data, judgement, causes,
verdict."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

import hsparity
from hsparity import registry
from hsparity.align.layers import search_mask
from hsparity.align.tokens import RowAlignment, align_rows
from hsparity.capture.shards import HALF_ULP
from hsparity.capture.source import Source
from hsparity.capture.tokentext import token_texts
from hsparity.deltas import Judge, Terms, floor_record, missing_delta, quantiles
from hsparity.diagnose.diagnosis import diagnosis
from hsparity.evidence import Evidence
from hsparity.locate import CLOSE, Located, Noise, alignment, expected, locate, matches, testable
from hsparity.metrics.kernel import Norm
from hsparity.model import SCHEMA, Comparison, Request, Side, SiteDelta, SlotMatch, Verdict
from hsparity.pairing import Missing, Pairing, SitePair, boundaries_of, land, pair_sites
from hsparity.pictures import Left, Texts, row_map, token_map, undone
from hsparity.query import Query
from hsparity.replay.result import Replay
from hsparity.solve.owners import OwnerMap
from hsparity.solve.rows import corrected, solve_rows
from hsparity.solve.solution import Given, Solution, named, solve, suspects
from hsparity.stream import Plan, Progress, massive_channels
from hsparity.stream import run as stream
from hsparity.table import TokenTable
from hsparity.verdict import decide
from hsparity.yardstick import Roles, assign, check_plausible, check_shares_tokens, describe, same_run

SETTLED = 0.3  # decades to the runner-up
TAIL = 8.0  # times what is close: an expert chosen otherwise stays below
ROLE_NAMES = {"fp32": "floor fp32", "bf16": "floor bf16", "repeat": "repeat"}


@dataclass(frozen=True, slots=True, eq=False)
class Case:
    """What does not change while rows are given back to their tokens."""

    sources: tuple[Source, ...]
    query: Query
    roles: Roles
    progress: Progress | None = None
    replay: Replay | None = None

    @property
    def resolution(self) -> float:
        return max(HALF_ULP[s.manifest.dtype] for s in self.sources[:2])


def run(
    ref: Source,
    cand: Source,
    floors: Sequence[Source],
    query: Query,
    progress: Progress | None = None,
    replay: Replay | None = None,
) -> tuple[Comparison, Evidence]:
    """The result and what it rests on. See `compare.study`, which also verifies the files."""
    sources = (ref, cand, *floors)
    roles = Roles() if query.tol is not None else assign(ref, cand, floors)
    rows = align_rows(ref, cand, floors, query)
    if roles.kind != "none":
        check_shares_tokens(roles, rows, sources)
    case = Case(sources, query, roles, progress, replay)
    evidence = _examine(case, rows)
    if roles.kind == "bf16-reference":
        check_plausible(evidence.judge)
    return _result(evidence, sources), evidence


def _examine(case: Case, rows: RowAlignment, peeled: bool = False) -> Evidence:
    """Everything that one alignment of the rows shows; where rows are not their tokens' own, also what the
    corrected alignment shows."""
    ref, cand = case.sources[:2]
    pairing = pair_sites(ref, cand, case.query)
    norm, plus_one = final_norm(ref, cand)
    wanted = tuple(dict.fromkeys([p.ref for p in pairing.pairs] + list(pairing.unplaced.get("ref", ()))))
    massive = massive_channels(ref, rows.prompts, wanted or tuple(boundaries_of(ref).values()))
    located = locate(
        case.sources,
        rows.prompts,
        pairing,
        massive=massive,
        norm=norm,
        resolution=case.resolution,
        ruler_floor=_ruler(case.roles, case.sources),
    )
    modules = {name for name, side in (("ref", ref), ("cand", cand)) if side.manifest.settings.get("modules")}
    _land_slots(pairing, located, norm, case.query, ref.manifest.num_layers, modules)
    pairs = tuple(pairing.pairs)

    def plan(chosen: Sequence[SitePair], roles: Roles) -> Plan:
        fresh = [p.ref for p in chosen if p.ref not in massive]
        if fresh:
            massive.update(massive_channels(ref, rows.prompts, fresh))
        return Plan(case.sources, tuple(rows.prompts), tuple(chosen), massive, roles)

    def undo(chosen: Sequence[SitePair]) -> TokenTable:
        return stream(plan(chosen, Roles()))

    terms = Terms(
        case.roles,
        same_run(ref, cand),
        case.query.tol,
        case.resolution,
        stored_bf16=all(s.manifest.dtype == "bfloat16" for s in (ref, cand)),
        routed=any(map(_routed, case.sources)),
    )

    def judged(chosen: Sequence[SitePair]) -> tuple[Judge, tuple[SiteDelta, ...]]:
        judge = Judge(stream(plan(chosen, case.roles), case.progress), chosen, rows.prompts, terms)
        return judge, tuple(judge.delta(k, massive[p.ref].tolist()) for k, p in enumerate(chosen))

    judge, deltas = judged(pairs)
    labels = {"ref": ref.manifest.native_labels, "cand": cand.manifest.native_labels}
    noise = _noise(judge)
    placed = matches(located, labels, noise)
    given = Given(
        case.sources,
        rows.prompts,
        pairs,
        deltas,
        case.roles,
        terms.same_run,
        norm,
        plus_one,
        search_mask(massive, ref.manifest.hidden_size),
        case.resolution,
        terms.limit,
        _settled(located, case.query, pairs, judge.table) if noise is None else frozenset(),
        judge.table.read,
        None
        if testable([f for f in located if f.ruler != "floor"], case.query.offset)
        else _ruler(case.roles, case.sources),
    )
    owners, faults = (None, ()) if peeled else solve_rows(given, suspects(given))
    solution = Solution(pairs) if faults else solve(given)
    changed = [(k, p) for k, p in enumerate(solution.pairs) if p is not pairs[k]]
    left, left_table = list(deltas), None
    if changed:
        after, found = judged([p for _, p in changed])
        left_table = after.table
        for (k, _), delta in zip(changed, found, strict=True):
            left[k] = delta
    placed = _reread(placed, solution, case.sources)
    gaps = [m.text for m in rows.mismatches]
    return Evidence(
        ref=ref,
        cand=cand,
        query=case.query,
        rows=rows,
        pairing=pairing,
        pairs=pairs,
        deltas=_unproved(pairs, deltas, placed),
        judge=judge,
        located=located,
        alignment=alignment(
            rows.tokens, len(rows.prompts), gaps, found=located, rows=placed, offset=case.query.offset
        ),
        undo=undo,
        solution=solution,
        left=tuple(left),
        floors=tuple(s.path for s in case.sources[2:]),
        sources=case.sources,
        replay=case.replay,
        left_table=left_table,
        left_places={k: i for i, (k, _) in enumerate(changed)},
        owners=owners,
        row_faults=tuple(faults),
        peeled=_examine(case, _given_back(rows, case.sources, owners), True) if faults and owners else None,
    )


def _given_back(rows: RowAlignment, sources: Sequence[Source], owners: OwnerMap) -> RowAlignment:
    """The alignment with every row at the token whose state it holds."""
    return replace(rows, prompts=corrected(rows.prompts, sources, owners))


def _settled(
    located: Sequence[Located], query: Query, pairs: Sequence[SitePair], table: TokenTable
) -> frozenset[str]:
    """Sites that fit the boundary they are said to be, closely and plainly on every token: without a floor
    there is no parity that could say so."""
    far = {p.cand for k, p in enumerate(pairs) if (table.read(k, "rel_l2") > TAIL * CLOSE).any()}
    found = set()
    for item in located:
        for fit in item.fits:
            plain = fit.error <= CLOSE and fit.margin >= SETTLED and not fit.best.normed
            if plain and expected(item, fit, query.offset) == fit.best.number:
                found |= {fit.located.key, fit.best.key}
    return frozenset(found - far)


def _reread(
    placed: Sequence[SlotMatch], solution: Solution, sources: Sequence[Source]
) -> tuple[SlotMatch, ...]:
    """The matches, with the solver's reading where it read the same site."""
    readings = {r.slot.key: r for r in solution.readings if named(r)}

    def match(row: SlotMatch) -> SlotMatch:
        reading = readings.get(row.cand) if row.side in ("cand", "ref") else None
        if reading is None or reading.reverse or reading.kind == "unknown-stream":
            return row
        last = sources[0].manifest.num_layers
        best = last + 1 if reading.slot.normed and reading.as_claimed else reading.number
        found = replace(row, best=best, error=reading.error, proved=reading.proved or row.proved)
        if not reading.kind:
            return found
        return replace(found, margin=reading.margin, runner_up_error=reading.rival_error)

    return tuple(match(row) for row in placed)


def _result(evidence: Evidence, sources: Sequence[Source]) -> Comparison:
    slots = evidence.slots
    pairing, query, roles = evidence.pairing, evidence.query, evidence.judge.terms.roles
    found = [f for cause in registry.causes().values() if (f := cause.find(evidence)) is not None]
    missing = {m.boundary: m.side for m in pairing.missing}
    deltas = (*evidence.deltas, *(missing_delta(r, side) for r, side in missing.items()))
    verdict, headline, findings = decide(evidence, deltas, found)
    lead = next((f for f in findings if f.severity == "cause" and not f.ruled_out), None)
    left, texts = undone(evidence, lead), token_texts(sources)
    deltas = tuple(_drawn(d, left.get(k), texts) for k, d in enumerate(deltas))
    others = [(name, getattr(roles, name)) for name in ROLE_NAMES]
    return Comparison(
        schema=SCHEMA,
        hsparity=hsparity.__version__,
        verdict=verdict,
        headline=headline,
        ref=side_record("ref", evidence.ref),
        cand=side_record("cand", evidence.cand),
        others=tuple(
            side_record(ROLE_NAMES[name], sources[i]) for name, i in others if i is not None and i > 1
        ),
        request=Request(
            tuple(r - 1 for r in pairing.requested),
            pairing.requested,
            query.spelled,
            query.offset,
            query.tokens or "all",
        ),
        floor=floor_record(evidence.judge, describe(roles, sources), deltas),
        deltas=tuple(sorted(deltas, key=lambda d: (not d.ref.startswith(("boundary", "slot")), d.ref))),
        alignment=replace(
            slots.alignment,
            gaps=evidence.alignment.gaps,
            tokens=evidence.alignment.tokens,
            prompts=evidence.alignment.prompts,
        ),
        map=token_map(evidence, left, texts),
        findings=findings,
        command=(),
        fingerprint=diagnosis(evidence).fingerprint if verdict is not Verdict.PARITY else None,
        rows=row_map(evidence),
        added=evidence.replay.layer_errors() if evidence.replay else (),
    )


def _drawn(delta: SiteDelta, left: Left | None, texts: Texts | None) -> SiteDelta:
    """The delta with what is left of its error, and with what its worst token says."""
    worst = delta.worst
    if worst is not None and texts is not None:
        worst = replace(worst, text=texts(worst.token_id))
    return replace(delta, worst=worst, undone=None if left is None else quantiles(left[0].astype(np.float64)))


def _routed(source: Source) -> bool:
    """Whether the model chooses experts per token."""
    config = source.manifest.model_config
    return any(config.get(key) for key in ("n_routed_experts", "num_experts", "num_local_experts"))


def final_norm(ref: Source, cand: Source) -> tuple[Norm | None, bool]:
    """The final norm, and whether its scale is 1 + the weight."""
    # Both are read, so that a damaged one is never passed over.
    norms = (ref.norm(), cand.norm())
    found = norms[0] or norms[1]
    if found is None:
        return None, False
    weight, eps, plus_one = found
    return Norm(torch.from_numpy(weight + 1.0 if plus_one else weight), eps), plus_one


def _ruler(roles: Roles, sources: Sequence[Source]) -> int | None:
    """A floor capture that holds boundaries, to locate slots on when neither side holds any."""
    for i in range(2, len(sources)):
        if boundaries_of(sources[i]) and i in (roles.fp32, roles.bf16):
            return i
    return None


def _land_slots(
    pairing: Pairing,
    located: Sequence[Located],
    norm: Norm | None,
    query: Query,
    layers: int,
    modules: Collection[str],
) -> None:
    """Pair the slots that nothing is claimed of with the boundary they fit best. On the sides in `modules` a slot is some
    module's output and need not be a boundary: only those that plainly are get paired."""
    for side, slots in list(pairing.unplaced.items()):
        cross = next((f for f in located if f.side == side and f.ruler not in (side, "floor")), None)
        if cross is None:
            continue
        del pairing.unplaced[side]
        for fit in cross.fits:
            plain = fit.error <= CLOSE and fit.margin >= SETTLED
            if fit.located.key in slots and (plain or side not in modules):
                land(pairing, side, fit.located.key, fit.best, norm)
        landed = {p.boundary for p in pairing.pairs if p.landed}
        shift = query.offset if side == "cand" else 0
        asked = query.chosen_boundaries(layers)
        pairing.missing += [Missing(r, side) for r in asked or () if r - shift not in landed]
    places = {f.located.key: f.best for found in located if found.name == "ref on floor" for f in found.fits}
    for i, pair in enumerate(pairing.pairs):
        if not pair.floor_site and pair.ref in places:
            # Two slot lists: the floor's captures say which of their boundaries is the yardstick.
            place = places[pair.ref]
            pairing.pairs[i] = replace(pair, boundary=place.number, floor_site=place.key)
    pairing.pairs.sort(key=lambda p: (p.boundary is None, p.boundary or 0, p.ref, p.cand))


def _unproved(
    pairs: Sequence[SitePair], deltas: Sequence[SiteDelta], placed: Sequence[SlotMatch]
) -> tuple[SiteDelta, ...]:
    """A landed slot whose place is not proved has no verdict: it was compared with its best guess."""
    proved = {m.cand for m in placed if m.proved}

    def judged(pair: SitePair, delta: SiteDelta) -> SiteDelta:
        slot = pair.cand if pair.cand.startswith("slot.") else pair.ref
        if not pair.landed or slot in proved or 0 < delta.tokens == delta.bit_equal:
            return delta
        reason = f"{slot} fits {pair.floor_site} best, but not well enough to prove that it is that"
        return replace(delta, verdict=Verdict.INCONCLUSIVE, reason=reason)

    return tuple(judged(pair, delta) for pair, delta in zip(pairs, deltas, strict=True))


def _noise(judge: Judge) -> Noise | None:
    """The largest error still at the floor; the search masks massive channels, so the yardstick does too."""
    if not judge.yard_quantiles("_rest"):
        return None
    return lambda boundary: judge.terms.limit * judge.noise(boundary, "_rest")


def side_record(role: str, source: Source) -> Side:
    """A source as the reports show it."""
    m = source.manifest
    return Side(
        role=role,
        path=source.path,
        engine=m.engine,
        version=m.engine_version,
        dtype=m.dtype,
        model=m.model,
        architecture=m.architecture,
        num_layers=m.num_layers,
        hidden_size=m.hidden_size,
        prompts=len(m.prompts),
        tokens=sum(p.tokens for p in m.prompts),
        rows=sum(p.rows for p in m.prompts),
        sites=source.sites(),
        settings=dict(m.settings),
        environment=dict(m.environment),
        native_labels=dict(m.native_labels),
        weights_sha256=m.weights_sha256,
        created=m.created,
        warnings=m.warnings,
    )
