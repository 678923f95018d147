"""What the reports draw of a comparison: error by boundary and token, whose state each row holds, what each layer adds."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from hsparity.align.tokens import PromptRows, common_prefix, pair_prompts
from hsparity.evidence import Evidence
from hsparity.model import ABSENT_ROW, MAP_COLUMNS, UNKNOWN_OWNER, Finding, RowMap, TokenMap
from hsparity.solve.owners import ELSEWHERE, RIGHT, OwnerMap

FINE = 2048  # columns up to which every value is kept as measured
STEPS = 64  # to a decade, in larger maps
EQUAL = -9.0  # log10 of no error at all: as far within as the picture goes

Errors = NDArray[np.float32]
Texts = Callable[[int], str]
Left = tuple[
    Errors, int | None
]  # rel-L2 [N] with a cause undone, and the boundary whose noise it is held against


def undone(evidence: Evidence, lead: Finding | None) -> dict[int, Left]:
    """What is left of each pair, by its number, with the leading cause undone; empty where nothing can be undone."""
    if lead is None:
        return {}
    known, table = evidence.undone.get(lead.code), evidence.judge.table
    if known is not None:
        return {
            k: (
                known.table.read(known.places[k], "rel_l2") if k in known.places else table.read(k, "rel_l2"),
                pair.boundary,
            )
            for k, pair in enumerate(known.replaced)
            if pair is not None
        }
    if evidence.peeled is None or not lead.rows:
        return {}
    return _rows_given_back(evidence, evidence.peeled)


def _rows_given_back(evidence: Evidence, peeled: Evidence) -> dict[int, Left]:
    """The figures of the corrected alignment, each at the token it is of."""
    at_n = np.full(peeled.rows.tokens, -1, np.int64)
    whole = {p.prompts[0]: p for p in evidence.rows.prompts}
    for part in peeled.rows.prompts:
        mine = whole.get(part.prompts[0])
        if mine is None:
            continue
        place = {int(position): mine.start + i for i, position in enumerate(mine.positions)}
        at_n[part.start : part.stop] = [place.get(int(position), -1) for position in part.positions]
    places = {(p.ref, p.cand): i for i, p in enumerate(peeled.pairs)}
    out: dict[int, Left] = {}
    for k, pair in enumerate(evidence.pairs):
        if (pair.ref, pair.cand) in places:
            found = peeled.judge.table.read(places[pair.ref, pair.cand], "rel_l2")
            errors = np.full(evidence.rows.tokens, np.nan, np.float32)
            errors[at_n[at_n >= 0]] = found[at_n >= 0]
            out[k] = (errors, pair.boundary)
    return out


def token_map(evidence: Evidence, left: Mapping[int, Left], texts: Texts | None = None) -> TokenMap | None:
    """log10(error / noise) per boundary and token, pooled by maximum; beside it `left`, the errors with the leading
    cause undone. `texts`: what a token id says."""
    order = sorted((p.boundary, k) for k, p in enumerate(evidence.pairs) if p.boundary is not None)
    prompts, total = evidence.rows.prompts, evidence.rows.tokens
    if not order or not total:
        return None
    step = -(-total // MAP_COLUMNS)
    excess_kn = np.stack(
        [_excess(evidence, (evidence.judge.table.read(k, "rel_l2"), boundary)) for boundary, k in order]
    )
    tallest_n = np.where(np.isnan(excess_kn), -np.inf, excess_kn).max(0)
    chosen = _columns(prompts, step, tallest_n)
    positions = np.concatenate([p.positions for p in prompts])[chosen]
    ids = np.concatenate([p.token_ids for p in prompts])[chosen]
    spans, at = [], 0
    for prompt in prompts:
        width = -(-len(prompt.positions) // step)
        spans.append((prompt.prompts[0], at, at + width))
        at += width
    blank = np.full(total, np.nan, np.float32)
    return TokenMap(
        boundaries=tuple(b for b, _ in order if b is not None),
        column_tokens=step,
        prompts=tuple(spans),
        excess_kc=_kept(_pooled(excess_kn, prompts, step)),
        undone_kc=_kept(
            _pooled(
                np.stack([_excess(evidence, left[k]) if k in left else blank for _, k in order]),
                prompts,
                step,
            )
        )
        if left
        else None,
        relative_to="floor" if evidence.has_floor else "resolution",
        positions_c=positions.astype(np.int32),
        ids_c=ids.astype(np.int32),
        texts=tuple(texts(int(i)) for i in ids) if texts else (),
    )


def _excess(evidence: Evidence, left: Left) -> Errors:
    errors, boundary = left
    with np.errstate(divide="ignore", invalid="ignore"):
        # A floor may be so small that the ratio leaves float32; its logarithm does not.
        values = np.log10(errors.astype(np.float64) / evidence.judge.noise(boundary))
    values[np.isneginf(values)] = EQUAL
    return values.astype(np.float32)


def _columns(prompts: Sequence[PromptRows], step: int, tallest_n: Errors) -> NDArray[np.int64]:
    """Per column the place of its token that stands out most."""
    found = []
    for prompt in prompts:
        for start in range(prompt.start, prompt.stop, step):
            found.append(start + int(np.argmax(tallest_n[start : min(start + step, prompt.stop)])))
    return np.array(found, np.int64)


def _pooled(values_kn: Errors, prompts: Sequence[PromptRows], step: int) -> Errors:
    """The largest of each `step` tokens of a prompt, [K, C]; NaN where none was compared."""
    if step == 1:
        return values_kn
    starts = np.concatenate([np.arange(p.start, p.stop, step) for p in prompts])
    top = np.maximum.reduceat(np.where(np.isnan(values_kn), -np.inf, values_kn), starts, axis=1)
    return np.where(np.isneginf(top), np.nan, top)


def _kept(values_kc: Errors) -> NDArray[np.float16]:
    wide = values_kc.shape[1] > FINE
    return (np.round(values_kc * STEPS) / STEPS if wide else values_kc).astype(np.float16)


def row_map(evidence: Evidence) -> RowMap | None:
    """Whose state each row holds, and which the candidate lacks; None where every row is there and its token's own."""
    owners, absent = evidence.owners, _absent(evidence)
    if not absent and (owners is None or not evidence.row_faults):
        return None
    compared = {p.prompts[0]: i for i, p in enumerate(evidence.rows.prompts)}
    spans, claims, start = [], [], 0
    for prompt in (p.id for p in evidence.ref.prompts if p.id in compared or p.id in absent):
        held = _looked_up(evidence, owners, compared[prompt]) if prompt in compared else _NONE
        lost = absent.get(prompt, _NONE)
        claims.append(np.sort(np.concatenate((held, lost))))
        spans.append((prompt, start, start + len(claims[-1])))
        start = spans[-1][2]
    place = {
        (prompt, int(t)): first + i
        for (prompt, first, _), positions in zip(spans, claims, strict=True)
        for i, t in enumerate(positions)
    }
    owner = np.arange(start, dtype=np.int32)
    for prompt, positions in absent.items():
        owner[[place[prompt, int(t)] for t in positions]] = ABSENT_ROW
    if owners is not None:
        _lay(owners, evidence.rows.prompts, place, owner)
    return RowMap("" if owners is None else owners.site, tuple(spans), owner)


_NONE = np.zeros(0, np.int32)


def _absent(evidence: Evidence) -> dict[str, NDArray[np.int32]]:
    """By the reference's prompt: the chosen positions whose rows the reference holds and the candidate does not."""
    lost = [m for m in evidence.rows.mismatches if m.side == "cand" and m.kind in ("rows", "longer")]
    ref, cand, found = evidence.ref, evidence.cand, {}
    others = {mine.id: other.id for mine, other in pair_prompts(ref, cand)[0]}
    for prompt in {m.prompt for m in lost}:
        held = np.unique(ref.positions(prompt))
        held = held[evidence.query.keeps(held, ref.prompt(prompt).prefill)]
        if not any(m.kind == "longer" for m in lost if m.prompt == prompt):
            # Behind ids that differ, a row is another token's, not an absent one.
            held = held[held < common_prefix(ref.token_ids(prompt), cand.token_ids(others[prompt]))]
        found[prompt] = np.setdiff1d(held, cand.positions(others[prompt])).astype(np.int32)
    return {prompt: positions for prompt, positions in found.items() if len(positions)}


def _looked_up(evidence: Evidence, owners: OwnerMap | None, p: int) -> NDArray[np.int32]:
    """The positions of an aligned prompt whose rows were looked up; all where none was."""
    return evidence.rows.prompts[p].positions if owners is None else owners.position_m[owners.prompt_m == p]


def _lay(
    owners: OwnerMap,
    prompts: Sequence[PromptRows],
    place: Mapping[tuple[str, int], int],
    owner: NDArray[np.int32],
) -> None:
    """Write the owner of every row that was looked up at its place."""
    lib = owners.library
    numbers = {name: i for i, name in enumerate(lib.prompts)}
    rows = zip(owners.prompt_m, owners.position_m, owners.nearest_m, owners.verdict_m, strict=True)
    for p, claimed, state, verdict in rows:
        name = prompts[int(p)].prompts[0]
        at = place[name, int(claimed)]
        if verdict == ELSEWHERE:
            # Prompts that begin alike share a state: the row's own prompt comes first.
            own, position = lib.states[numbers[name]], int(lib.position_s[state])
            shared = position < len(own) and own[position] == state
            holder = name if shared else lib.prompts[int(lib.prompt_s[state])]
            owner[at] = place.get((holder, position), UNKNOWN_OWNER)
        elif verdict != RIGHT:
            owner[at] = UNKNOWN_OWNER
