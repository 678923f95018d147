"""What a head gets accepted, as inline SVG: bars with whiskers, and predicted beside measured."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup

from ..drafter.result import Beside, DraftCost, Estimate
from ..model import Cost, Verdict
from . import spelling as sp
from .bar_figure import (
    AXIS,
    LINE,
    NARROW,
    WIDE,
    Bar,
    Frame,
    axis,
    bar_figure,
    label_row,
    nice,
    picture,
    whisker,
    x_of,
)
from .cost_values import interval, main_feeds, number, percent, points


def accepted_bars(cost: DraftCost) -> Markup:
    """Accepted draft tokens a step by feeding, drawn for wide and for narrow pages."""
    bars = [_bar(sp.clean(f.words), _tone(f.key, cost.verdict), f.accepted) for f in main_feeds(cost)]
    return _accepted(bars, cost.feed("ref").accepted.value)


def loss_bars(cost: Cost) -> Markup:
    """The same of the figures that a comparison carries, which have no intervals."""
    bars = [
        _bar("fed the reference's states", "muted", Estimate(cost.ref)),
        _bar("fed the candidate's states", _tone("cand", cost.verdict), Estimate(cost.cand)),
    ]
    bars += [
        _bar(f"the candidate's, {sp.clean(name)} undone", "accent", Estimate(value))
        for name, value in cost.undone.items()
    ]
    return _accepted(bars, cost.ref)


def _bar(label: str, tone: str, figure: Estimate) -> Bar:
    return Bar(label, tone, figure.value, number(figure.value), figure.low, figure.high, interval(figure))


def _accepted(bars: Sequence[Bar], ref: float) -> Markup:
    label = "Accepted draft tokens a step: " + "; ".join(
        f"{b.label} {b.text} {b.aside}".rstrip() for b in bars
    )
    return bar_figure(bars, label, "accepted draft tokens a step", ref)


def beside_dots(beside: Beside) -> Markup:
    """Predicted (hollow) over measured (solid) acceptance at every draft position, for wide and for narrow pages."""
    pairs = list(zip(beside.predicted, beside.measured, strict=True))
    label = "Acceptance by draft position: " + "; ".join(
        f"position {j} predicted {points(p)}, measured {points(m)}" for j, (p, m) in enumerate(pairs, 1)
    )
    return Markup("").join(_dots(pairs, label, frame) for frame in (WIDE, NARROW))


def _tone(key: str, verdict: Verdict) -> str:
    if key == "cand":
        return {Verdict.DIVERGED: "bad", Verdict.PARITY: "good"}.get(verdict, "warn")
    return "accent" if key.startswith("undone:") else "muted"


def _dots(pairs: Sequence[tuple[Estimate, Estimate]], label: str, frame: Frame) -> Markup:
    everything = [e for pair in pairs for e in pair]
    top = min(nice(max([e.value for e in everything] + [e.high or 0.0 for e in everything])), 1.0)
    parts: list[str] = []
    y = 8.0
    for j, (predicted, measured) in enumerate(pairs, 1):
        at, y = label_row([f"position {j}", ""], y, frame, parts)
        first = at - LINE / 2 if not frame.above else at
        for place, (word, figure, tone) in enumerate(
            (("predicted", predicted, "accent"), ("measured", measured, "ink"))
        ):
            here = first + place * LINE
            parts += whisker(figure.low, figure.high, here, top, frame, tone)
            fill = "paper" if place == 0 else tone
            parts.append(
                f'<circle cx="{x_of(figure.value, top, frame):.1f}" cy="{here:.1f}" r="4" fill="var(--{fill})" '
                f'stroke="var(--{tone})" stroke-width="2"/>'
            )
            end = x_of(max(figure.value, figure.high or 0.0), top, frame) + 10
            parts.append(
                f'<text class="halo" x="{end:.1f}" y="{here + 4:.1f}" style="fill:var(--{tone})">'
                f"{word} {percent(figure.value)}</text>"
            )
        y = max(y, first + LINE + 16)
    return picture(
        [*axis(top, y, "steps in which the position is accepted, %", 100.0, frame), *parts],
        label,
        frame,
        y + AXIS,
    )
