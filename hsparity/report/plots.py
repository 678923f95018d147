"""The two curves of the page: error by boundary with the floor band, and each error over the floor."""

from __future__ import annotations

import math

from markupsafe import Markup

from ..model import Comparison, Verdict
from . import spelling as sp
from . import view
from .figures import Curve, Plot, draw

MANY_MARKS = 16


def error_plot(comparison: Comparison) -> Markup | None:
    """Median rel-L2 over the floor's band, and with the leading cause undone. None under two boundaries."""
    known = [(b, d) for d in comparison.deltas if (b := view.boundary_of(d.ref)) is not None and d.tokens]
    if len(known) < 2:
        return None
    claimed = tuple((float(b), view.rel_l2(d).p50) for b, d in known)
    left = tuple((float(b), math.nan if d.undone is None else d.undone.p50) for b, d in known)
    lead = view.leading(comparison)
    moved = lead is not None and any(not math.isnan(v) for _, v in left)
    curves = [Curve("as claimed" if moved else "rel-L2", claimed, _tone(comparison))]
    if moved and lead is not None:
        curves.append(Curve(f"{sp.clean(lead.code)} undone", left, "good", "6 4"))
    band = tuple((float(b), d.floor.p50, d.floor.p99) for b, d in known if d.floor is not None)
    label = "Median relative L2 error by boundary on a log scale" + (
        ", with the floor as a band" if band else ""
    )
    return draw(
        Plot(
            tuple(curves),
            band,
            "floor p50–p99",
            None,
            _marks(comparison),
            0,
            label,
            (known[0][0], known[-1][0]),
        )
    )


def ratio_plot(comparison: Comparison) -> Markup | None:
    """ref, cand and pair over the floor, against the limit. None without ratios at two boundaries."""
    known = [(b, d) for d in comparison.deltas if (b := view.boundary_of(d.ref)) is not None and d.ratios]
    if len(known) < 2:
        return None
    curves, limit = [], known[0][1].ratios[0].limit
    for of, tone, dash in (
        ("ref", "muted", "2 3"),
        ("pair", "accent", "7 4"),
        ("cand", _tone(comparison), ""),
    ):
        points = tuple(
            (float(b), math.nan if (r := view.ratio_of(d, of)) is None else r.median) for b, d in known
        )
        if any(not math.isnan(v) for _, v in points):
            curves.append(Curve(of, points, tone, dash))
    label = (
        "Error of reference, candidate and pair over the floor, by boundary, on a log scale, against the "
        "limit"
    )
    ends = (known[0][0], known[-1][0])
    marks = _marks(comparison)
    return draw(
        Plot(
            tuple(curves),
            line=(limit, f"limit {limit:g}"),
            marks=marks,
            marked=len(curves) - 1,
            label=label,
            ends=ends,
        )
    )


def added_plot(comparison: Comparison) -> Markup | None:
    """What each layer adds over what bf16 costs in it, by side and part: from the replay, else what the states alone
    tell. None where neither was measured in two layers."""
    curves, limit = [], comparison.floor.limit
    styles = {
        "layer": "",
        "attention": "7 4",
        "mlp": "2 3",
    }  # a router is judged by its choices, not by an error
    for side, tone in (("ref", "muted"), ("cand", _tone(comparison))):
        for part, dash in styles.items():
            found_here = [e for e in comparison.added if (e.side, e.part) == (side, part)]
            # A part that adds nothing would lie on the others; the table has it.
            if found_here and (part == "layer" or any(e.verdict is Verdict.DIVERGED for e in found_here)):
                points = tuple((float(e.layer), e.ratio) for e in found_here)
                curves.append(Curve(f"{side} {part}", points, tone, dash))
    found = comparison.fingerprint
    if not curves and found is not None:
        points = tuple((float(n), error / floor) for n, error, floor in found.added if floor > 0)
        curves = [
            Curve({"pair": "pair", "both": "pair"}.get(found.side, found.side), points, _tone(comparison))
        ]
    layers = [int(x) for curve in curves for x, y in curve.points if y > 0]
    if len(set(layers)) < 2:
        return None
    return draw(
        Plot(
            tuple(curves),
            line=(limit, f"limit {limit:g}") if math.isfinite(limit) and limit > 0 else None,
            label="Error that each layer adds over what rounding adds there, by layer, on a log scale",
            ends=(min(layers), max(layers)),
            axis="layer",
        )
    )


def _marks(comparison: Comparison) -> tuple[int, ...]:
    """The requested boundaries, where they are some of those drawn; marking all of them would say nothing."""
    drawn = {b for d in comparison.deltas if (b := view.boundary_of(d.ref)) is not None}
    asked = tuple(b for d in view.requested(comparison) if (b := view.boundary_of(d.ref)) is not None)
    return asked if len(asked) <= MANY_MARKS and (len(asked) <= 4 or set(asked) != drawn) else ()


def _tone(comparison: Comparison) -> str:
    return "bad" if comparison.verdict is Verdict.DIVERGED and view.beyond_by_number(comparison) else "ink"
