"""What the reports draw of a comparison: error by boundary and token, whose state each row holds, what each layer adds."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from hsparity.align.tokens import PromptRows
from hsparity.evidence import Evidence
from hsparity.model import MAP_COLUMNS, Finding, RowMap, TokenMap
from hsparity.solve.owners import ELSEWHERE, RIGHT

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
    """Whose state each row holds; None where every row is its token's own."""
    owners, prompts = evidence.owners, evidence.rows.prompts
    if owners is None or not evidence.row_faults:
        return None
    lib, verdict_m = owners.library, owners.verdict_m
    numbers = {name: i for i, name in enumerate(lib.prompts)}
    spans, claimed, place = [], np.searchsorted(owners.prompt_m, np.arange(len(prompts) + 1)), {}
    for p, prompt in enumerate(prompts):
        start, stop = int(claimed[p]), int(claimed[p + 1])
        spans.append((prompt.prompts[0], start, stop))
        index = numbers[prompt.prompts[0]]
        place.update({(index, int(t)): start + i for i, t in enumerate(owners.position_m[start:stop])})
    owner = np.full(len(verdict_m), -1, np.int32)
    owner[verdict_m == RIGHT] = np.flatnonzero(verdict_m == RIGHT)
    for m in np.flatnonzero(verdict_m == ELSEWHERE):
        state = int(owners.nearest_m[m])
        # Prompts that begin alike share a state: the row's own prompt comes first.
        mine, position = numbers[prompts[int(owners.prompt_m[m])].prompts[0]], int(lib.position_s[state])
        own = lib.states[mine]
        shared = position < len(own) and own[position] == state
        owner[m] = place.get((mine if shared else int(lib.prompt_s[state]), position), -1)
    return RowMap(owners.site, tuple(spans), owner)
