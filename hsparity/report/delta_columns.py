"""The two tables of the text reports: requested sites, and where native slots lie."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from ..model import Comparison, Quantiles, Ratio, SiteDelta, SlotMatch, Verdict
from . import spelling as sp
from . import view
from .columns import Column

SIDES = ("ref", "cand", "pair")


def delta_columns(
    comparison: Comparison, rows: Sequence[SiteDelta], styles: Mapping[Verdict, str]
) -> list[Column]:
    """Layer, boundary, errors, ratios and verdict of `rows`; what matters least is dropped first."""

    def cells(fn: Callable[[SiteDelta], str]) -> tuple[str, ...]:
        return tuple(fn(d) for d in rows)

    columns = [
        Column("layer", cells(lambda d: view.place(d.ref)[0])),
        Column("boundary", cells(lambda d: view.place(d.ref)[1])),
    ]
    if any(d.cand and d.cand != d.ref for d in rows):
        columns.append(Column("cand", cells(_cand_place), 1))
    columns += [
        Column("rel-L2", cells(lambda d: sp.error(view.rel_l2(d).p50))),
        Column("worst", cells(lambda d: sp.error(view.rel_l2(d).worst)), 9),
        Column("floor", cells(lambda d: sp.error(d.floor.p50) if d.floor else "-"), 5),
        Column("floor p99", cells(lambda d: sp.error(d.floor.p99) if d.floor else "-"), 7),
    ]
    group = "× tolerance" if comparison.floor.kind == "tolerance" else "× floor"
    judged = [of for of in SIDES if any(view.ratio_of(d, of) for d in rows)]
    rank = {"ref": 3, "pair": 2, "cand": 0} if "cand" in judged else dict.fromkeys(SIDES, 0)
    for of in judged:
        wide = cells(lambda d, of=of: _with_interval(view.ratio_of(d, of)))  # type: ignore[misc]
        narrow = cells(lambda d, of=of: _median(view.ratio_of(d, of)))  # type: ignore[misc]
        if wide != narrow:
            columns.append(Column(of, wide, 10, group=group, name=of))
        columns.append(Column(of, narrow, rank[of], group=group, name=of))
    beyond = any(r.beyond for d in rows for r in d.ratios)
    columns.append(Column("beyond", cells(_beyond), 1 if beyond else 8))
    columns.append(Column("cosine", cells(lambda d: sp.cosine(d.metrics.get("cosine", view.NOTHING).p50)), 6))
    offset = view.shift(comparison)
    if offset is not None:
        columns.append(
            Column(f"offset {offset:+d}", cells(lambda d: sp.error(view.shifted_error(comparison, d))), 4)
        )
    columns.append(
        Column("", cells(lambda d: d.verdict.value), left=True, styles=cells(lambda d: styles[d.verdict]))
    )
    return [c for c in columns if c.rank or not c.empty or c.head in ("layer", "boundary", "rel-L2")]


def apart_columns(rows: Sequence[SiteDelta]) -> list[Column]:
    """Massive channels, sink tokens and the rest of `rows`, by median rel-L2."""

    def cells(fn: Callable[[SiteDelta], str]) -> tuple[str, ...]:
        return tuple(fn(d) for d in rows)

    return [
        Column("layer", cells(lambda d: view.place(d.ref)[0])),
        Column("boundary", cells(lambda d: view.place(d.ref)[1])),
        Column("channels", cells(lambda d: str(len(d.massive_channels))), 3),
        Column("in them", cells(lambda d: _p50(d.massive_rel_l2))),
        Column("sinks", cells(lambda d: str(d.sink_tokens)), 2),
        Column("on them", cells(lambda d: _p50(d.sink_rel_l2))),
        Column("the rest", cells(lambda d: _p50(d.rest.get("rel_l2")))),
        Column("all", cells(lambda d: sp.error(view.rel_l2(d).p50)), 1),
    ]


def slot_columns(slots: Sequence[SlotMatch]) -> list[Column]:
    """Where each slot lies among the boundaries, by the data."""

    def cells(fn: Callable[[SlotMatch], str]) -> tuple[str, ...]:
        return tuple(fn(s) for s in slots)

    return [
        Column("slot", cells(slot_name), left=True),
        Column("on", cells(slot_ruler), 7, left=True),
        Column("label", cells(lambda s: sp.clean(s.native_label) or "-"), 8, left=True),
        Column("claimed", cells(lambda s: "-" if s.claimed is None else str(s.claimed)), 1),
        Column("lies at", cells(lambda s: str(s.best))),
        Column("rel-L2", cells(lambda s: sp.error(s.error)), 2),
        Column("next best", cells(lambda s: f"{s.runner_up} at {sp.error(s.runner_up_error)}"), 4),
        Column("margin", cells(lambda s: f"{s.margin:.1f}" if s.margin == s.margin else "-"), 3),
        Column("", cells(lambda s: "proved" if s.proved else "not proved"), 5, left=True),
    ]


def slot_name(slot: SlotMatch) -> str:
    """cand slot.000."""
    return f"{slot.side.split(' ')[0]} {sp.clean(slot.cand)}"


def slot_ruler(slot: SlotMatch) -> str:
    """Whose boundaries the slot was laid on."""
    side, _, ruler = slot.side.partition(" ")
    if ruler:
        return "own hooks" if ruler == "self" else "the floor's boundaries"
    return f"{'ref' if side == 'cand' else 'cand'}'s boundaries"


def _cand_place(delta: SiteDelta) -> str:
    layer, boundary = view.place(delta.cand)
    return boundary if boundary != "-" else layer


def _beyond(delta: SiteDelta) -> str:
    """Tokens beyond the limit, on the side that has most of them."""
    return str(max((r.beyond for r in delta.ratios), default=0)) if delta.ratios else "-"


def _p50(quantiles: Quantiles | None) -> str:
    return "-" if quantiles is None else sp.error(quantiles.p50)


def _median(ratio: Ratio | None) -> str:
    return "-" if ratio is None else sp.ratio(ratio.median)


def _with_interval(ratio: Ratio | None) -> str:
    if ratio is None:
        return "-"
    if ratio.low != ratio.low or ratio.high != ratio.high or ratio.low == ratio.high:
        return sp.ratio(ratio.median)
    return f"{sp.ratio(ratio.median)} ({sp.ratio(ratio.low)}–{sp.ratio(ratio.high)})"
