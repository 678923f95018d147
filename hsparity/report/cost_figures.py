"""What a head gets accepted, as inline SVG: bars with whiskers, and predicted beside measured."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup, escape

from ..drafter.result import Beside, DraftCost, Estimate
from ..model import Cost, Verdict
from . import spelling as sp
from .cost_values import interval, main_feeds, number, percent, points

LINE = 15  # user units from one line of text to the next
BAR = 14
AXIS = 38


@dataclass(frozen=True, slots=True)
class Frame:
    """Size of one drawing in user units; labels stand beside the bars, or above them where `left` is small."""

    css: str
    width: int
    left: int
    right: int
    columns: int  # characters of a label's line

    @property
    def above(self) -> bool:
        return self.left < 100

    @property
    def span(self) -> int:
        return self.width - self.left - self.right


WIDE = Frame("wide", 1000, 270, 150, 38)
NARROW = Frame("narrow", 420, 12, 128, 56)


@dataclass(frozen=True, slots=True)
class Bar:
    """One row: a figure with its interval."""

    label: str
    tone: str  # CSS variable
    figure: Estimate


def accepted_bars(cost: DraftCost) -> Markup:
    """Accepted draft tokens a step by feeding, drawn for wide and for narrow pages."""
    bars = [Bar(sp.clean(f.words), _tone(f.key, cost.verdict), f.accepted) for f in main_feeds(cost)]
    label = "Accepted draft tokens a step: " + "; ".join(
        f"{b.label} {number(b.figure.value)} {interval(b.figure)}".rstrip() for b in bars
    )
    ref = cost.feed("ref").accepted.value
    return Markup("").join(_bars(bars, ref, label, frame) for frame in (WIDE, NARROW))


def loss_bars(cost: Cost) -> Markup:
    """The same of the figures that a comparison carries, which have no intervals."""
    bars = [
        Bar("fed the reference's states", "muted", Estimate(cost.ref, None, None)),
        Bar("fed the candidate's states", _tone("cand", cost.verdict), Estimate(cost.cand, None, None)),
    ]
    bars += [
        Bar(f"the candidate's, {sp.clean(name)} undone", "accent", Estimate(value, None, None))
        for name, value in cost.undone.items()
    ]
    label = "Accepted draft tokens a step: " + "; ".join(f"{b.label} {number(b.figure.value)}" for b in bars)
    return Markup("").join(_bars(bars, cost.ref, label, frame) for frame in (WIDE, NARROW))


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


def _bars(bars: Sequence[Bar], ref: float, label: str, frame: Frame) -> Markup:
    top = _nice(max([b.figure.value for b in bars] + [b.figure.high or 0.0 for b in bars]))
    parts: list[str] = []
    y = 8.0
    for bar in bars:
        lines = textwrap.wrap(bar.label, frame.columns) or [""]
        at, y = _label(lines, y, frame, parts)
        parts.append(
            f'<rect x="{frame.left}" y="{at - BAR / 2:.1f}" width="{_x(bar.figure.value, top, frame) - frame.left:.1f}" '
            f'height="{BAR}" fill="var(--{bar.tone})" fill-opacity="0.32"/>'
        )
        parts += _whisker(bar.figure, at, top, frame, bar.tone)
        end = _x(max(bar.figure.value, bar.figure.high or 0.0), top, frame) + 8
        parts.append(
            f'<text class="ink halo" x="{end:.1f}" y="{at + 4:.1f}"><tspan font-weight="650">{number(bar.figure.value)}</tspan>'
            f'<tspan dx="6" style="fill:var(--muted)">{escape(interval(bar.figure))}</tspan></text>'
        )
    at = _x(ref, top, frame)
    line = f'<line x1="{at:.1f}" x2="{at:.1f}" y1="2" y2="{y:.1f}" stroke="var(--muted)" stroke-dasharray="3 3"/>'
    axis = _axis(top, y, "accepted draft tokens a step", 1.0, frame)
    return _svg([*axis, line, *parts], label, frame, y + AXIS)


def _dots(pairs: Sequence[tuple[Estimate, Estimate]], label: str, frame: Frame) -> Markup:
    everything = [e for pair in pairs for e in pair]
    top = min(_nice(max([e.value for e in everything] + [e.high or 0.0 for e in everything])), 1.0)
    parts: list[str] = []
    y = 8.0
    for j, (predicted, measured) in enumerate(pairs, 1):
        at, y = _label([f"position {j}", ""], y, frame, parts)
        first = at - LINE / 2 if not frame.above else at
        for place, (word, figure, tone) in enumerate(
            (("predicted", predicted, "accent"), ("measured", measured, "ink"))
        ):
            here = first + place * LINE
            parts += _whisker(figure, here, top, frame, tone)
            fill = "paper" if place == 0 else tone
            parts.append(
                f'<circle cx="{_x(figure.value, top, frame):.1f}" cy="{here:.1f}" r="4" fill="var(--{fill})" '
                f'stroke="var(--{tone})" stroke-width="2"/>'
            )
            end = _x(max(figure.value, figure.high or 0.0), top, frame) + 10
            parts.append(
                f'<text class="halo" x="{end:.1f}" y="{here + 4:.1f}" style="fill:var(--{tone})">'
                f"{word} {percent(figure.value)}</text>"
            )
        y = max(y, first + LINE + 16)
    return _svg(
        [*_axis(top, y, "steps in which the position is accepted, %", 100.0, frame), *parts],
        label,
        frame,
        y + AXIS,
    )


def _label(lines: Sequence[str], y: float, frame: Frame, parts: list[str]) -> tuple[float, float]:
    """Write a row's label; (the middle of its bar, where the next row begins)."""
    if frame.above:
        shown = [line for line in lines if line]
        for i, line in enumerate(shown):
            parts.append(
                f'<text class="ink" x="{frame.left}" y="{y + 8 + i * LINE:.1f}">{escape(line)}</text>'
            )
        at = y + len(shown) * LINE + BAR / 2
        return at, at + BAR / 2 + 12
    height = max(len(lines) * LINE, BAR)
    at = y + height / 2
    shown = [line for line in lines if line]
    for i, line in enumerate(shown):
        here = at + 4 + (i - (len(shown) - 1) / 2) * LINE
        parts.append(
            f'<text class="ink" x="{frame.left - 12}" y="{here:.1f}" text-anchor="end">{escape(line)}</text>'
        )
    return at, y + height + 13


def _whisker(figure: Estimate, at: float, top: float, frame: Frame, tone: str) -> list[str]:
    if figure.low is None or figure.high is None:
        return []
    low, high = _x(figure.low, top, frame), _x(figure.high, top, frame)
    ends = "".join(f"M{x:.1f} {at - 4:.1f}V{at + 4:.1f}" for x in (low, high))
    return [
        f'<path d="M{low:.1f} {at:.1f}H{high:.1f}{ends}" fill="none" stroke="var(--{tone})" stroke-width="2"/>'
    ]


def _axis(top: float, base: float, name: str, scale: float, frame: Frame) -> list[str]:
    parts, places = [], _places(top * scale)
    for i in range(5):
        value = top * i / 4
        x = _x(value, top, frame)
        parts.append(f'<line x1="{x:.1f}" x2="{x:.1f}" y1="2" y2="{base:.1f}" stroke="var(--rule)"/>')
        anchor = "start" if i == 0 and frame.above else "middle"
        parts.append(
            f'<text x="{x:.1f}" y="{base + 15:.1f}" text-anchor="{anchor}">{value * scale:.{places}f}</text>'
        )
    middle = frame.left + frame.span / 2
    parts.append(f'<text x="{middle:.1f}" y="{base + 32:.1f}" text-anchor="middle">{name}</text>')
    return parts


def _svg(parts: Sequence[str], label: str, frame: Frame, height: float) -> Markup:
    return Markup(
        f'<svg class="chart {frame.css}" viewBox="0 0 {frame.width} {height:.0f}" role="img" '
        f'aria-label="{escape(label)}">{"".join(parts)}</svg>'
    )


def _x(value: float, top: float, frame: Frame) -> float:
    return frame.left + min(max(value, 0.0) / top, 1.0) * frame.span


def _nice(value: float) -> float:
    """The least 1, 2, 4, 6 or 8 times a power of ten that is no less: four ticks of it are short numbers."""
    if not value > 0 or not math.isfinite(value):
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    return next(m * power for m in (1, 1.2, 1.6, 2, 2.4, 3.2, 4, 6, 8, 10) if m * power >= value * 0.9999)


def _places(top: float) -> int:
    """Decimals that a quarter of the axis takes."""
    return next(n for n in range(5) if n == 4 or math.isclose(round(top / 4, n), top / 4, rel_tol=1e-6))
