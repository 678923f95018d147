"""The HTML page's tables, as plain records the template prints."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..model import Comparison, Quantiles, Ratio, SiteDelta, SlotMatch, TokenMap, Verdict
from . import pairs, view
from . import spelling as sp
from .delta_columns import SIDES, slot_name, slot_ruler
from .overview import place_of

TONES = {
    Verdict.PARITY: ("good", "✓"),
    Verdict.DIVERGED: ("bad", "✗"),
    Verdict.INCONCLUSIVE: ("warn", "?"),
    Verdict.MISSING: ("warn", "–"),
}


@dataclass(frozen=True, slots=True)
class Cell:
    """`cls` "o" columns are left out on narrow pages."""

    text: str
    cls: str = ""
    aside: str = ""
    icon: str = ""


@dataclass(frozen=True, slots=True)
class HtmlTable:
    caption: str
    heads: tuple[Cell, ...]
    rows: tuple[tuple[Cell, ...], ...]
    over: tuple[tuple[str, int], ...] = ()


def verdict_cell(verdict: Verdict) -> Cell:
    tone, icon = TONES[verdict]
    return Cell(verdict.value, f"l {tone}", icon=icon)


def requested_table(comparison: Comparison, rows: Sequence[SiteDelta]) -> HtmlTable:
    """The sites that decide the verdict."""
    judged = [of for of in SIDES if any(view.ratio_of(d, of) for d in rows)]
    offset = view.shift(comparison)
    floor = any(d.floor for d in rows)
    other = any(d.cand != d.ref for d in rows)
    heads = [Cell("layer"), Cell("boundary")]
    heads += [Cell("cand site", "o")] if other else []
    heads += [Cell("rel-L2")]
    heads += [Cell("floor", "o", aside="p99")] if floor else []
    before = len(heads)
    heads += [Cell(of, "" if of == "cand" or len(judged) == 1 else "o") for of in judged]
    told = any(_unseen(d) for d in rows)
    heads += [] if told else [Cell("cosine", "o")]
    heads += [Cell(f"rel-L2 at {offset:+d}", "o")] if offset is not None else []
    heads += [Cell("verdict", "l")]
    heads += [Cell("because", "l")] if told else []
    body = []
    for d in rows:
        layer, boundary = view.place(d.ref)
        cells = [Cell(layer), Cell(boundary)]
        cells += (
            [Cell(sp.clean(d.cand) if view.boundary_of(d.cand) is None else view.place(d.cand)[1], "o")]
            if other
            else []
        )
        cells += [Cell(sp.error(view.rel_l2(d).p50))]
        cells += [Cell(_p50(d.floor), "o", aside=_p99(d.floor))] if floor else []
        cells += [
            _ratio_cell(view.ratio_of(d, of), "" if of == "cand" or len(judged) == 1 else "o")
            for of in judged
        ]
        cells += [] if told else [Cell(sp.cosine(d.metrics.get("cosine", view.NOTHING).p50), "o")]
        if offset is not None:
            cells.append(_shifted_cell(comparison, d))
        cells += [verdict_cell(d.verdict)]
        cells += [Cell(sp.clean(d.reason), "why")] if told else []
        body.append(tuple(cells))
    over = (
        (("", before), (f"× {_yardstick(comparison)}", len(judged)), ("", len(heads) - before - len(judged)))
        if judged
        else ()
    )
    caption = (
        "Median over tokens. Layer N is the output of decoder layer N: boundary N+1, the residual stream "
        "after N+1 layers. "
        f"Floor: {view.floor_line(comparison)}."
    )
    return HtmlTable(caption, tuple(heads), tuple(body), over)


def _unseen(delta: SiteDelta) -> bool:
    """Whether the site is not at parity and no median in its row shows why."""
    if delta.verdict is Verdict.PARITY:
        return False
    return not any(r.median > r.limit for r in view.main_ratios(delta))


def sites_table(comparison: Comparison) -> HtmlTable:
    """Every compared site with every figure."""
    names = (
        "layer,boundary,tokens,rel-L2,p95,p99,worst,floor p50,floor p99,ref ×,cand ×,pair "
        "×,past the floor's largest,cosine,norm ratio,max abs,bit-equal,not finite,verdict,because"
    )
    rows = []
    for d in comparison.deltas:
        layer, boundary = view.place(d.ref)
        error, cosine = view.rel_l2(d), d.metrics.get("cosine", view.NOTHING)
        norm, peak = d.metrics.get("norm_ratio", view.NOTHING), d.metrics.get("max_abs", view.NOTHING)
        beyond = str(max(r.beyond for r in d.ratios)) if d.ratios else "-"
        texts = [
            layer,
            boundary,
            f"{d.tokens:,}",
            *(sp.error(v) for v in (error.p50, error.p95, error.p99, error.worst)),
        ]
        texts += [
            _p50(d.floor),
            _p99(d.floor),
            *(_median(view.ratio_of(d, of)) for of in SIDES),
            beyond,
            sp.cosine(cosine.p50),
        ]
        texts += [sp.ratio(norm.p50), sp.error(peak.worst), f"{d.bit_equal:,}", f"{sum(d.nonfinite):,}"]
        rows.append((*(Cell(t) for t in texts), verdict_cell(d.verdict), Cell(sp.clean(d.reason), "why")))
    return HtmlTable(
        "Medians over tokens, unless a column says otherwise.", _heads(names, left=2), tuple(rows)
    )


def apart_table(rows: Sequence[SiteDelta]) -> HtmlTable | None:
    """Massive channels, sink tokens and the rest, where they tell different stories."""
    shown = rows[:16]
    if not shown:
        return None
    body = []
    for d in shown:
        texts = [
            *view.place(d.ref),
            str(len(d.massive_channels)),
            _p50(d.massive_rel_l2),
            str(d.sink_tokens),
            _p50(d.sink_rel_l2),
        ]
        body.append(
            tuple(Cell(t) for t in [*texts, _p50(d.rest.get("rel_l2")), sp.error(view.rel_l2(d).p50)])
        )
    caption = (
        "Median rel-L2 within each part. A few channels or one token can carry the norm, and hide or fake "
        "a difference."
    )
    return HtmlTable(
        caption,
        _heads("layer,boundary,massive channels,in them,sink tokens,on them,the rest,all"),
        tuple(body),
    )


def added_table(comparison: Comparison) -> HtmlTable | None:
    """Every layer and part that was replayed; None without a replay."""
    if not comparison.added:
        return None
    rows = []
    for e in comparison.added:
        interval = f"{sp.ratio(e.low)}–{sp.ratio(e.high)}" if e.low < e.high else ""
        rows.append(
            (
                Cell(str(e.layer)),
                Cell(e.side, "l"),
                Cell(sp.clean(e.part), "l"),
                Cell(sp.ratio(e.ratio), aside=interval),
                Cell("-" if e.experts_differ < 0 else f"{e.experts_differ:,}"),
                Cell("-" if e.experts_wide < 0 else f"{e.experts_wide:,}"),
                verdict_cell(e.verdict),
            )
        )
    heads = (
        Cell("layer"),
        Cell("side", "l"),
        Cell("part", "l"),
        Cell("× floor"),
        Cell("other experts", aside="tokens"),
        Cell("beyond rounding"),
        Cell("verdict", "l"),
    )
    return HtmlTable(
        "Median error added, over that of the same layer in the capture's dtype. A router is judged by the tokens that it "
        "sends elsewhere than the checkpoint says, by more than rounding explains.",
        heads,
        tuple(rows),
    )


def token_table(tokens: TokenMap, low: float) -> HtmlTable:
    """Per boundary: how many columns of the map carry a mark, and the largest."""
    undone = tokens.undone_kc
    heads = "layer,boundary,columns beyond,largest ×,at" + (
        "" if undone is None else ",undone: columns beyond,largest ×,at"
    )
    rows = []
    for i, boundary in enumerate(tokens.boundaries):
        cells = list(view.place(f"boundary.{boundary:03d}"))
        for values in (tokens.excess_kc, undone):
            if values is not None:
                cells += _map_row(tokens, values[i], low)
        rows.append(tuple(Cell(c) for c in cells))
    return HtmlTable(
        f"Error over the {'floor' if tokens.relative_to == 'floor' else 'storage half-ulp'}.",
        _heads(heads),
        tuple(rows),
    )


def pair_table(comparison: Comparison) -> HtmlTable:
    """Per candidate boundary: the reference boundary that fits best, and the next."""
    a, rows = pairs.boundary_pairs(comparison), []
    for j, boundary in enumerate(a.cand_boundaries):
        errors = np.where(np.isnan(a.pair_error_kk[:, j]), np.inf, a.pair_error_kk[:, j])
        order = np.argsort(errors, kind="stable")
        cells = list(view.place(f"boundary.{boundary:03d}"))
        for i in order[:2]:
            cells += [str(a.ref_boundaries[i]), sp.error(float(errors[i]))]
        rows.append(tuple(Cell(c) for c in [*cells, *["-"] * (6 - len(cells))]))
    return HtmlTable(
        "Per boundary of the candidate, as claimed, the reference's that fit it best: median rel-L2 over a sample of tokens, "
        "massive channels left out.",
        _heads("layer,boundary,best,rel-L2,next,rel-L2"),
        tuple(rows),
    )


def slots_table(slots: Sequence[SlotMatch]) -> HtmlTable:
    """Where each slot lies among the reference's boundaries."""
    rows: list[tuple[Cell, ...]] = []
    for s in slots:
        claimed = "-" if s.claimed is None else str(s.claimed)
        moved = s.claimed is not None and s.claimed != s.best
        tone = "" if s.claimed is None else "bad" if moved else "good"
        word, icon = ("proved", "✓") if s.proved else ("not proved", "?")
        rows.append(
            (
                Cell(slot_name(s)),
                Cell(slot_ruler(s), "l"),
                Cell(sp.clean(s.native_label) or "-", "l o"),
                Cell(claimed),
                Cell(str(s.best), tone, icon="" if not tone else "✗" if moved else "✓"),
                Cell(sp.error(s.error)),
                Cell(f"{s.runner_up} at {sp.error(s.runner_up_error)}", "o"),
                Cell(f"{s.margin:.1f}" if math.isfinite(s.margin) else "-", "o"),
                Cell(word, "l", icon=icon),
            )
        )
    heads: tuple[Cell, ...] = (
        Cell("slot"),
        Cell("on", "l"),
        Cell("label", "l o"),
        Cell("claimed"),
        Cell("lies at"),
        Cell("rel-L2"),
        Cell("next best", "o"),
        Cell("margin", "o"),
        Cell("proof", "l"),
    )
    caption = (
        "Boundaries, found from the data. The margin is in powers of ten between the best and the next "
        "best; 1 or more is plain, less is proved where the fit itself reaches the floor."
    )
    if all(s.claimed is None for s in slots):
        heads, rows = (*heads[:3], *heads[4:]), [(*r[:3], *r[4:]) for r in rows]
    return HtmlTable(caption, heads, tuple(rows))


def _map_row(tokens: TokenMap, row: np.ndarray, low: float) -> list[str]:
    if not np.isfinite(row).any():
        return ["not compared", "-", "-"]
    beyond, at = int((row > low).sum()), int(np.nanargmax(row))
    prompt, position = place_of(tokens)(at)
    where = f"prompt {sp.clean(prompt)}, token {position}" if prompt else f"column {at}"
    return [f"{beyond:,}", sp.ratio(10.0 ** min(float(row[at]), 300.0)), where]


def _heads(names: str, left: int = 0) -> tuple[Cell, ...]:
    words = names.split(",")
    return tuple(Cell(w, "l" if i >= len(words) - left else "") for i, w in enumerate(words))


def _ratio_cell(ratio: Ratio | None, cls: str) -> Cell:
    if ratio is None:
        return Cell("-", cls)
    tone = "bad" if ratio.verdict is Verdict.DIVERGED else ""
    plain = math.isnan(ratio.low) or math.isnan(ratio.high) or ratio.low == ratio.high
    interval = "" if plain else f"{sp.ratio(ratio.low)}–{sp.ratio(ratio.high)}"
    return Cell(sp.ratio(ratio.median), f"{cls} {tone}".strip(), aside=interval)


def _shifted_cell(comparison: Comparison, delta: SiteDelta) -> Cell:
    value = view.shifted_error(comparison, delta)
    inside = delta.floor is not None and value <= delta.floor.p99
    return Cell(sp.error(value), "o good" if inside else "o", icon="✓" if inside else "")


def _yardstick(comparison: Comparison) -> str:
    return "tolerance" if comparison.floor.kind == "tolerance" else "floor"


def _median(ratio: Ratio | None) -> str:
    return "-" if ratio is None else sp.ratio(ratio.median)


def _p50(quantiles: Quantiles | None) -> str:
    return "-" if quantiles is None else sp.error(quantiles.p50)


def _p99(quantiles: Quantiles | None) -> str:
    return "-" if quantiles is None else sp.error(quantiles.p99)
