"""The steps of a comparison, in order: rows, sites, places, one pass over the data, judgement, causes,
verdict."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch

import hsparity
from hsparity import registry
from hsparity.align.tokens import align_rows
from hsparity.capture.shards import HALF_ULP
from hsparity.capture.source import Source
from hsparity.deltas import Judge, Terms, floor_record, missing_delta
from hsparity.evidence import Evidence
from hsparity.locate import Located, Noise, alignment, locate, matches
from hsparity.metrics.kernel import Norm
from hsparity.model import SCHEMA, Comparison, Request, Side, SiteDelta, SlotMatch, Verdict
from hsparity.pairing import Pairing, SitePair, boundaries_of, land, pair_sites
from hsparity.query import Query
from hsparity.stream import Plan, Progress, massive_channels
from hsparity.stream import run as stream
from hsparity.table import TokenTable
from hsparity.verdict import decide
from hsparity.yardstick import Roles, assign, check_plausible, check_shares_tokens, describe, same_run

ROLE_NAMES = {"fp32": "floor fp32", "bf16": "floor bf16", "repeat": "repeat"}


def run(
    ref: Source, cand: Source, floors: Sequence[Source], query: Query, progress: Progress | None = None
) -> Comparison:
    """See `compare.compare`, which also verifies the files."""
    sources = (ref, cand, *floors)
    roles = Roles() if query.tol is not None else assign(ref, cand, floors)
    rows = align_rows(ref, cand, floors, query)
    if roles.kind != "none":
        check_shares_tokens(roles, rows, sources)
    pairing = pair_sites(ref, cand, query)
    resolution = max(HALF_ULP[s.manifest.dtype] for s in (ref, cand))
    norm = _final_norm(ref, cand)
    wanted = tuple(dict.fromkeys([p.ref for p in pairing.pairs] + list(pairing.unplaced.get("ref", ()))))
    massive = massive_channels(ref, rows.prompts, wanted or tuple(boundaries_of(ref).values()))
    located = locate(
        sources,
        rows.prompts,
        pairing,
        massive=massive,
        norm=norm,
        resolution=resolution,
        ruler_floor=_ruler(roles, sources),
    )
    _land_slots(pairing, located)
    missing_massive = {p.ref for p in pairing.pairs} - set(massive)
    massive |= massive_channels(ref, rows.prompts, sorted(missing_massive)) if missing_massive else {}

    plan = Plan(sources, tuple(rows.prompts), tuple(pairing.pairs), massive, roles, norm)
    table = stream(plan, progress)
    terms = Terms(
        roles,
        same_run(ref, cand),
        query.tol,
        resolution,
        stored_bf16=all(s.manifest.dtype == "bfloat16" for s in (ref, cand)),
        routed=any(map(_routed, sources)),
    )
    judge = Judge(table, plan.pairs, rows.prompts, terms)
    if roles.kind == "bf16-reference":
        check_plausible(judge)
    deltas = tuple(judge.delta(k, massive[p.ref].tolist()) for k, p in enumerate(plan.pairs))

    def undo(pairs: Sequence[SitePair]) -> TokenTable:
        needed = [p.ref for p in pairs if p.ref not in massive]
        more = massive_channels(ref, rows.prompts, needed) if needed else {}
        return stream(Plan(sources, plan.prompts, tuple(pairs), {**massive, **more}, Roles(), norm))

    labels = {"ref": ref.manifest.native_labels, "cand": cand.manifest.native_labels}
    placed = matches(located, labels, _noise(judge))
    gaps = [m.text for m in rows.mismatches]
    evidence = Evidence(
        ref=ref,
        cand=cand,
        query=query,
        rows=rows,
        pairing=pairing,
        pairs=plan.pairs,
        deltas=_unproved(plan.pairs, deltas, placed),
        judge=judge,
        located=located,
        alignment=alignment(
            rows.tokens, len(rows.prompts), gaps, found=located, rows=placed, offset=query.offset
        ),
        undo=undo,
    )
    return _result(evidence, sources)


def _result(evidence: Evidence, sources: Sequence[Source]) -> Comparison:
    pairing, query, roles = evidence.pairing, evidence.query, evidence.judge.terms.roles
    found = [f for cause in registry.causes().values() if (f := cause.find(evidence)) is not None]
    missing = {m.boundary: m.side for m in pairing.missing}
    deltas = (*evidence.deltas, *(missing_delta(r, side) for r, side in missing.items()))
    verdict, headline, findings = decide(evidence, deltas, found)
    lead = next((f for f in findings if f.severity == "cause" and not f.ruled_out), None)
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
        alignment=evidence.alignment,
        map=evidence.token_map(lead),
        findings=findings,
        command=(),
    )


def _routed(source: Source) -> bool:
    """Whether the model chooses experts per token."""
    config = source.manifest.model_config
    return any(config.get(key) for key in ("n_routed_experts", "num_experts", "num_local_experts"))


def _final_norm(ref: Source, cand: Source) -> Norm | None:
    found = ref.norm() or cand.norm()
    if found is None:
        return None
    weight, eps, plus_one = found
    return Norm(torch.from_numpy(weight + 1.0 if plus_one else weight), eps)


def _ruler(roles: Roles, sources: Sequence[Source]) -> int | None:
    """A floor capture that holds boundaries, to locate slots on when neither side holds any."""
    for i in range(2, len(sources)):
        if boundaries_of(sources[i]) and i in (roles.fp32, roles.bf16):
            return i
    return None


def _land_slots(pairing: Pairing, located: Sequence[Located]) -> None:
    """Pair the slots that nothing is claimed of with the boundary they fit best."""
    for side, slots in list(pairing.unplaced.items()):
        cross = next((f for f in located if f.side == side and f.ruler not in (side, "floor")), None)
        if cross is None:
            continue
        del pairing.unplaced[side]
        for fit in cross.fits:
            if fit.located.key in slots:
                land(pairing, side, fit.located.key, fit.best)
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
