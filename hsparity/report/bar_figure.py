"""Horizontal bars with whiskers, as inline SVG for wide and for narrow pages."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup, escape

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
    """One row: a figure with its interval, and how both are written."""

    label: str
    tone: str  # CSS variable
    value: float
    text: str
    low: float | None = None
    high: float | None = None
    aside: str = ""


def bar_figure(
    bars: Sequence[Bar], label: str, name: str, line: float | None = None, scale: float = 1.0
) -> Markup:
    """The bars over an axis called `name`, whose ticks are values times `scale`; `line` is drawn across them."""
    return Markup("").join(_bars(bars, label, name, line, scale, frame) for frame in (WIDE, NARROW))


def _bars(
    bars: Sequence[Bar], label: str, name: str, line: float | None, scale: float, frame: Frame
) -> Markup:
    top = nice(max([b.value for b in bars] + [b.high or 0.0 for b in bars]))
    parts: list[str] = []
    y = 8.0
    for bar in bars:
        lines = textwrap.wrap(bar.label, frame.columns) or [""]
        at, y = label_row(lines, y, frame, parts)
        parts.append(
            f'<rect x="{frame.left}" y="{at - BAR / 2:.1f}" width="{x_of(bar.value, top, frame) - frame.left:.1f}" '
            f'height="{BAR}" fill="var(--{bar.tone})" fill-opacity="0.32"/>'
        )
        parts += whisker(bar.low, bar.high, at, top, frame, bar.tone)
        end = x_of(max(bar.value, bar.high or 0.0), top, frame) + 8
        parts.append(
            f'<text class="ink halo" x="{end:.1f}" y="{at + 4:.1f}"><tspan font-weight="650">{escape(bar.text)}</tspan>'
            f'<tspan dx="6" style="fill:var(--muted)">{escape(bar.aside)}</tspan></text>'
        )
    under = axis(top, y, name, scale, frame)
    if line is not None:
        at = x_of(line, top, frame)
        under.append(
            f'<line x1="{at:.1f}" x2="{at:.1f}" y1="2" y2="{y:.1f}" stroke="var(--muted)" stroke-dasharray="3 3"/>'
        )
    return picture([*under, *parts], label, frame, y + AXIS)


def label_row(lines: Sequence[str], y: float, frame: Frame, parts: list[str]) -> tuple[float, float]:
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


def whisker(
    low: float | None, high: float | None, at: float, top: float, frame: Frame, tone: str
) -> list[str]:
    """The interval of a figure, as a line with ends; nothing where there is none."""
    if low is None or high is None:
        return []
    low, high = x_of(low, top, frame), x_of(high, top, frame)
    ends = "".join(f"M{x:.1f} {at - 4:.1f}V{at + 4:.1f}" for x in (low, high))
    return [
        f'<path d="M{low:.1f} {at:.1f}H{high:.1f}{ends}" fill="none" stroke="var(--{tone})" stroke-width="2"/>'
    ]


def axis(top: float, base: float, name: str, scale: float, frame: Frame) -> list[str]:
    parts, places = [], _places(top * scale)
    for i in range(5):
        value = top * i / 4
        x = x_of(value, top, frame)
        parts.append(f'<line x1="{x:.1f}" x2="{x:.1f}" y1="2" y2="{base:.1f}" stroke="var(--rule)"/>')
        anchor = "start" if i == 0 and frame.above else "middle"
        parts.append(
            f'<text x="{x:.1f}" y="{base + 15:.1f}" text-anchor="{anchor}">{value * scale:.{places}f}</text>'
        )
    middle = frame.left + frame.span / 2
    parts.append(f'<text x="{middle:.1f}" y="{base + 32:.1f}" text-anchor="middle">{name}</text>')
    return parts


def picture(parts: Sequence[str], label: str, frame: Frame, height: float) -> Markup:
    return Markup(
        f'<svg class="chart {frame.css}" viewBox="0 0 {frame.width} {height:.0f}" role="img" '
        f'aria-label="{escape(label)}">{"".join(parts)}</svg>'
    )


def x_of(value: float, top: float, frame: Frame) -> float:
    return frame.left + min(max(value, 0.0) / top, 1.0) * frame.span


def nice(value: float) -> float:
    """The least 1, 2, 4, 6 or 8 times a power of ten that is no less: four ticks of it are short numbers."""
    if not value > 0 or not math.isfinite(value):
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    return next(m * power for m in (1, 1.2, 1.6, 2, 2.4, 3.2, 4, 6, 8, 10) if m * power >= value * 0.9999)


def _places(top: float) -> int:
    """Decimals that a quarter of the axis takes."""
    return next(n for n in range(5) if n == 4 or math.isclose(round(top / 4, n), top / 4, rel_tol=1e-6))
