"""Curves as inline SVG: numbers in, strings out. Coordinates are computed here, never in the template."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from markupsafe import Markup, escape

Point = tuple[float, float]
Scale = Callable[[float], float]


@dataclass(frozen=True, slots=True)
class Curve:
    """One line over the boundaries; NaN breaks it. `label` stands at its end."""

    label: str
    points: tuple[Point, ...]  # (boundary, value > 0)
    tone: str  # CSS variable: "bad", "good", "ink", "accent", "muted"
    dash: str = ""


@dataclass(frozen=True, slots=True)
class Plot:
    """A log-scale plot over boundaries."""

    curves: tuple[Curve, ...]
    band: tuple[tuple[float, float, float], ...] = ()  # (boundary, low, high)
    band_label: str = ""
    line: tuple[float, str] | None = None  # a horizontal limit and its label
    marks: tuple[int, ...] = ()  # requested boundaries
    marked: int = 0  # the curve that carries the marks
    label: str = ""  # for readers who do not see it
    ends: tuple[int, int] = field(default=(0, 1))
    axis: str = "boundary (layer + 1)"


@dataclass(frozen=True, slots=True)
class Frame:
    """Size of one drawing in user units."""

    css: str
    width: int
    height: int
    left: int
    right: int
    top: int
    bottom: int
    steps: int  # most ticks along x


WIDE = Frame("wide", 1000, 300, 52, 104, 20, 40, 8)
NARROW = Frame("narrow", 420, 300, 44, 98, 20, 40, 4)


def draw(plot: Plot) -> Markup:
    """The plot twice, for wide and for narrow pages; style sheets show one."""
    return Markup("").join(_draw(plot, frame) for frame in (WIDE, NARROW))


def _draw(plot: Plot, frame: Frame) -> Markup:
    low, high = _range(plot)
    first, last = plot.ends

    def x(boundary: float) -> float:
        return frame.left + (boundary - first) / max(last - first, 1) * (
            frame.width - frame.left - frame.right
        )

    def y(value: float) -> float:
        at = (math.log10(min(max(value, low), high)) - math.log10(low)) / (math.log10(high) - math.log10(low))
        return frame.height - frame.bottom - at * (frame.height - frame.top - frame.bottom)

    end, base = frame.width - frame.right, frame.height - frame.bottom
    parts: list[str] = []
    for value in ticks(low, high):
        at = y(value)
        parts.append(f'<line x1="{frame.left}" x2="{end}" y1="{at:.1f}" y2="{at:.1f}" stroke="var(--rule)"/>')
        parts.append(
            f'<text x="{frame.left - 7}" y="{at + 4:.1f}" text-anchor="end">{tick_label(value)}</text>'
        )
    for boundary in axis_marks(first, last, frame.steps):
        parts.append(f'<text x="{x(boundary):.1f}" y="{base + 17}" text-anchor="middle">{boundary}</text>')
    parts.append(
        f'<text x="{(frame.left + end) / 2:.1f}" y="{frame.height - 4}" text-anchor="middle">'
        f"{escape(plot.axis)}</text>"
    )
    ends: list[tuple[float, str, str]] = []
    if plot.band:
        known = [(b, lo, hi) for b, lo, hi in plot.band if lo > 0 and hi > 0]
        outline = [(x(b), y(hi)) for b, _, hi in known] + [(x(b), y(lo)) for b, lo, _ in reversed(known)]
        if outline:
            parts.append(f'<path d="{_path(outline)}Z" fill="var(--band)" stroke="var(--band)"/>')
            ends.append((y(math.sqrt(known[-1][1] * known[-1][2])), plot.band_label, "muted"))
    if plot.line is not None and math.isfinite(plot.line[0]) and plot.line[0] > 0:
        limit, name = plot.line
        parts.append(
            f'<line x1="{frame.left}" x2="{end}" y1="{y(limit):.1f}" y2="{y(limit):.1f}" '
            'stroke="var(--ink)"/>'
        )
        ends.append((y(limit), name, "ink"))
    for curve in plot.curves:
        for run in _runs(curve.points):
            line = [(x(b), y(v)) for b, v in run]
            dash = f' stroke-dasharray="{curve.dash}"' if curve.dash else ""
            tone = f"var(--{curve.tone})"
            # Between places that were not measured next to one another a line is a guide to the eye, no more.
            apart = len(run) == 1 or any(b - a > 1 for (a, _), (b, _) in pairwise(run))
            if len(line) > 1:
                faint = ' stroke-opacity="0.35"' if apart else ""
                parts.append(
                    f'<path d="{_path(line)}" fill="none" stroke="{tone}" stroke-width="2"{dash}{faint}/>'
                )
            if apart:
                parts += [f'<circle cx="{x0:.1f}" cy="{y0:.1f}" r="3" fill="{tone}"/>' for x0, y0 in line]
        known_values = [v for _, v in curve.points if v > 0]
        if known_values:
            ends.append((y(known_values[-1]), curve.label, curve.tone))
    parts += _marks(plot, x, y)
    for at, name, tone in _spread(ends, frame):
        parts.append(f'<text x="{end + 8}" y="{at + 4:.1f}" style="fill:var(--{tone})">{escape(name)}</text>')
    return Markup(
        f'<svg class="chart {frame.css}" viewBox="0 0 {frame.width} {frame.height}" role="img" '
        f'aria-label="{escape(plot.label)}">'
        f"{''.join(parts)}</svg>"
    )


def _marks(plot: Plot, x: Scale, y: Scale) -> list[str]:
    if not plot.curves:
        return []
    curve = plot.curves[min(plot.marked, len(plot.curves) - 1)]
    values = dict(curve.points)
    out, last = [], -math.inf
    for boundary in plot.marks:
        value = values.get(boundary, math.nan)
        if not value > 0:
            continue
        cx, cy = x(boundary), y(value)
        out.append(
            f'<circle cx="{cx:.1f}" cy="{cy:.1f}" r="4.5" fill="var(--paper)" '
            f'stroke="var(--{curve.tone})" stroke-width="2"/>'
        )
        if cx - last >= 22:  # labels keep apart; every requested site is in the table
            anchor = "start" if boundary == plot.ends[0] else "middle"  # clear of the tick labels
            out.append(
                f'<text class="ink" x="{cx:.1f}" y="{cy - 9:.1f}" text-anchor="{anchor}">{boundary}</text>'
            )
            last = cx
    return out


def ticks(low: float, high: float) -> list[float]:
    """Powers of ten from low to high; with 2 and 5 between them where there would be fewer than three."""
    first, last = math.floor(math.log10(low) + 1e-9), math.ceil(math.log10(high) - 1e-9)
    every = max(1, math.ceil((last - first) / 6))
    steps: tuple[int, ...] = (1,) if last - first >= 3 else (1, 2, 5)
    values = [m * 10.0**e for e in range(first, last + 1, every) for m in steps]
    return [v for v in values if low * 0.999 <= v <= high * 1.001]


def tick_label(value: float) -> str:
    if 0.01 <= value < 10000:
        return f"{value:g}"
    return f"{value:.0e}".replace("e-0", "e-").replace("e+0", "e")


def axis_marks(first: int, last: int, most: int) -> list[int]:
    """Round numbers along an axis of whole numbers, both ends among them."""
    if last <= first:
        return [first]
    step = next(
        s for s in (1, 2, 5, 10, 20, 25, 50, 100, 200, 500, 1000, 10**9) if (last - first) / s <= most
    )
    inner = [
        v
        for v in range(-(-first // step) * step, last + 1, step)
        if v - first >= step / 2 and last - v >= step / 2
    ]
    return [first, *inner, last]


def _range(plot: Plot) -> tuple[float, float]:
    values = [v for c in plot.curves for _, v in c.points]
    values += [v for _, lo, hi in plot.band for v in (lo, hi)]
    if plot.line is not None:
        values += [plot.line[0] * 2, plot.line[0] / 3]
    values = [v for v in values if v > 0 and math.isfinite(v)]
    if not values:
        return 0.1, 1.0
    low, high = math.log10(min(values)), math.log10(max(values))
    if plot.line is None:
        low, high = math.floor(low), math.ceil(high)
    else:
        low, high = low - 0.05, high + 0.08
    return 10.0**low, 10.0 ** max(high, low + 0.5)


def _runs(points: Sequence[Point]) -> list[list[Point]]:
    runs: list[list[Point]] = [[]]
    for boundary, value in points:
        if value > 0 and math.isfinite(value):  # 0 has no place on a log axis
            runs[-1].append((boundary, value))
        elif runs[-1]:
            runs.append([])
    return [run for run in runs if run]


def _path(points: Sequence[Point]) -> str:
    return "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in points)


def _spread(ends: list[tuple[float, str, str]], frame: Frame) -> list[tuple[float, str, str]]:
    """Labels at line ends, pushed apart to 15 units."""
    placed: list[tuple[float, str, str]] = []
    for at, name, tone in sorted(ends):
        y = max(at, placed[-1][0] + 15) if placed else at
        placed.append((y, name, tone))
    over = placed[-1][0] - (frame.height - frame.bottom) if placed else 0
    return [(y - over, n, t) for y, n, t in placed] if over > 0 else placed
