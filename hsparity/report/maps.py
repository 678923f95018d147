"""Maps as palette images inside SVG: layer by token, and layer by layer."""

from __future__ import annotations

import base64
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from markupsafe import Markup, escape
from numpy.typing import NDArray

from ..model import Alignment, TokenMap
from . import spelling as sp
from .figures import axis_marks
from .overview import overview
from .palette import FIRST, LEVELS, THEMES, UNKNOWN, WITHIN
from .png import data_uri

LEFT, TOP, WIDTH = 38, 8, 476  # of a map inside its 520 units
PAIR_SIDE = 376
# Ink within paper: one of the two stands out on any colour of the ramp.
CURSOR = (
    '<g id="cursor" style="display:none"><rect fill="none" stroke="var(--paper)" stroke-width="4"/>'
    '<rect fill="none" stroke="var(--ink)" stroke-width="1.5"/></g>'
)
GAP = 26


@dataclass(frozen=True, slots=True)
class TokenFigure:
    svg: Markup
    legend: Markup
    data: dict[str, object]  # for the read-out
    decades: int  # the scale ends at 10 ** decades


def quantise(values: NDArray[np.floating[Any]], top: float, low: float = 0.0) -> NDArray[np.uint8]:
    """Palette indices of log10 excesses: to `low` the page's colour, from `top` the last, NaN its own."""
    scaled = np.nan_to_num((values - low) / (top - low), nan=0.0, posinf=1.0, neginf=0.0) * (LEVELS - 1)
    index = np.clip(np.rint(scaled), 0, LEVELS - 1).astype(np.int64) + FIRST
    index[~(values > low)] = WITHIN
    index[np.isnan(values)] = UNKNOWN
    return index.astype(np.uint8)


def token_figure(tokens: TokenMap, requested: Sequence[int], label: str, low: float) -> TokenFigure:
    """The claimed map over the undone one, on one scale that starts at 10 ** low, the limit.

    The read-out of a map that is pooled here finds single prompts in the result that the page carries.
    """
    whole, tokens = tokens, overview(tokens)
    layers = [tokens.excess_kc] if tokens.undone_kc is None else [tokens.excess_kc, tokens.undone_kc]
    known = [float(np.nanmax(v)) for v in layers if np.isfinite(v).any()]
    decades = max(1, math.ceil(min(max(known, default=1.0), 12.0) - 1e-6))
    quantised = [quantise(v, float(decades), low) for v in layers]
    rows, columns = tokens.excess_kc.shape
    height = 180 if len(layers) == 2 else 260
    height = min(height, max(rows * 20, 24))
    parts: list[str] = []
    ruled: list[str] = []  # what belongs to the whole map alone: a single prompt's view hides it
    for i, index in enumerate(quantised):
        top = TOP + i * (height + GAP)
        parts.append(_images(index, LEFT, top, WIDTH, height, " cells"))
        ruled += _separators(tokens, columns, top, height)
        parts.append(_frame(LEFT, top, WIDTH, height))
        parts += _row_labels(tokens.boundaries, top, height)
        parts += _row_marks(tokens.boundaries, requested, top, height)
    base = TOP + len(layers) * (height + GAP) - GAP
    ruled += _column_labels(tokens, columns, base + 16)
    parts.append(f'<g id="ruled">{"".join(ruled)}</g>')
    parts.append(f'<text id="span" x="{LEFT + WIDTH / 2:.0f}" y="{base + 16}" text-anchor="middle"></text>')
    parts.append(CURSOR)
    svg = Markup(
        f'<svg class="map" id="map" viewBox="0 0 520 {base + 24}" role="img" '
        f'aria-label="{escape(label)}">{"".join(parts)}</svg>'
    )
    void = any((q == UNKNOWN).any() for q in quantised)
    over = "floor" if tokens.relative_to == "floor" else "half-ulp"
    legend = _legend(
        f"{sp.ratio(10**low) if low else 1}× {over}",
        f"{10**decades:,}×" if decades < 5 else f"1e{decades}×",
        void,
    )
    data: dict[str, object] = {
        "w": columns,
        "h": rows,
        "b": list(tokens.boundaries),
        "p": [[sp.clean(p), start, stop] for p, start, stop in tokens.prompts],
        "k": tokens.column_tokens,
        "at": [int(v) for v in tokens.positions_c],
        "t": [sp.quoted(t) if t else "" for t in tokens.texts],
        "fine": whole is not tokens,
        "d": decades,
        "low": round(low, 6),
        "n": LEVELS - 1,
        "box": [LEFT, TOP, WIDTH, height, height + GAP],
        "over": over,
        "q": [base64.b64encode(q.tobytes()).decode() for q in quantised],
        # A single prompt is painted by the page itself.
        "pal": [
            base64.b64encode(bytes(v for color in t.map_palette() for v in color)).decode() for t in THEMES
        ]
        if len(tokens.prompts) > 1 or whole is not tokens
        else [],
    }
    return TokenFigure(svg, legend, data, decades)


def pair_figure(alignment: Alignment, offset: int | None, label: str) -> tuple[Markup, Markup] | None:
    """(map, legend) of every pairing's error, dark where two fit, the claimed pairing marked.

    `offset` None: nothing is claimed. None under four pairings.
    """
    errors = alignment.pair_error_kk
    if errors.size < 4 or not np.isfinite(errors).any():
        return None
    rows, columns = errors.shape
    positive = errors[np.isfinite(errors) & (errors > 0)]
    low = math.floor(math.log10(float(positive.min()))) if positive.size else -3
    high = math.ceil(math.log10(float(positive.max()))) if positive.size else 0
    low = min(low, high - 1)
    logs = np.log10(np.maximum(np.nan_to_num(errors.astype(np.float64), nan=1.0), 10.0**low))
    index = quantise(
        np.where(np.isnan(errors), np.nan, high - logs + 1e-9).astype(np.float32), float(high - low)
    )
    index[index == WITHIN] = FIRST
    width, height = _extent(columns), _extent(rows)
    parts = [_images(index, LEFT, TOP, width, height), _frame(LEFT, TOP, width, height)]
    if offset is not None:
        parts += _claimed_cells(alignment, offset, width, height)
    parts += _row_labels(alignment.ref_boundaries, TOP, height)
    at = TOP + height + 16
    for i in _ticks(alignment.cand_boundaries, 6 if columns > 8 else columns):
        parts.append(
            f'<text x="{LEFT + (i + 0.5) / columns * width:.1f}" y="{at}" '
            f'text-anchor="middle">{alignment.cand_boundaries[i]}</text>'
        )
    wide = LEFT + max(width, 120) + 6
    size = (
        "" if width == PAIR_SIDE else f' style="max-width:{wide}px"'
    )  # a small matrix is not blown up to the column
    svg = Markup(
        f'<svg class="map" viewBox="0 0 {wide} {at + 8}"{size} role="img" '
        f'aria-label="{escape(label)}">{"".join(parts)}</svg>'
    )
    return svg, _legend(f"apart, rel-L2 1e{high}", f"alike, 1e{low}", bool(np.isnan(errors).any()))


def _extent(cells: int) -> int:
    return PAIR_SIDE if cells > 12 else min(PAIR_SIDE, max(cells * 34, 60))


def _images(index: NDArray[np.uint8], x: float, y: float, width: float, height: float, cls: str = "") -> str:
    return "".join(
        f'<image class="{theme.name}{cls}" x="{x}" y="{y}" width="{width}" height="{height}" '
        'preserveAspectRatio="none" '
        f'href="{data_uri(index, theme.map_palette())}"/>'
        for theme in THEMES
    )


def _frame(x: float, y: float, width: float, height: float) -> str:
    return f'<rect class="frame" x="{x}" y="{y}" width="{width}" height="{height}"/>'


def _ticks(boundaries: Sequence[int], most: int) -> list[int]:
    """Rows to label, as indices: both ends and round steps between."""
    return axis_marks(0, len(boundaries) - 1, most) if boundaries else []


def _row_labels(boundaries: Sequence[int], top: float, height: float) -> list[str]:
    most = max(1, min(5, int(height // 40))) if len(boundaries) > 8 else len(boundaries)
    step = height / max(len(boundaries), 1)
    return [
        f'<text x="{LEFT - 8}" y="{top + (i + 0.5) * step + 4:.1f}" text-anchor="end">{boundaries[i]}</text>'
        for i in _ticks(boundaries, most)
    ]


def _row_marks(boundaries: Sequence[int], requested: Sequence[int], top: float, height: float) -> list[str]:
    """Small arrowheads at the requested rows, where they are some of all."""
    step = height / max(len(boundaries), 1)
    at = {b: i for i, b in enumerate(boundaries)}
    rows = [at[b] for b in requested if b in at]
    if len(rows) > 12 or len(rows) == len(boundaries):
        return []
    middles = [top + (i + 0.5) * step for i in rows]
    return [f'<path class="mark" d="M{LEFT + WIDTH + 1} {y:.1f}l5 -3v6z"/>' for y in middles]


def _separators(tokens: TokenMap, columns: int, top: float, height: float) -> list[str]:
    if not 1 < len(tokens.prompts) <= 40:
        return []
    starts = [LEFT + start / columns * WIDTH for _, start, _ in tokens.prompts[1:]]
    return [f'<line class="frame" x1="{x:.1f}" x2="{x:.1f}" y1="{top}" y2="{top + height}"/>' for x in starts]


def _column_labels(tokens: TokenMap, columns: int, y: float) -> list[str]:
    """Prompt ids under their spans where they fit; token numbers where there is one prompt."""
    if len(tokens.prompts) == 1:
        marks = axis_marks(0, max(columns - 1, 0), 6)
        return [
            f'<text x="{LEFT + (i + 0.5) / columns * WIDTH:.1f}" y="{y}" '
            f'text-anchor="middle">{i * tokens.column_tokens}</text>'
            for i in marks
        ]
    out = []
    for prompt, start, stop in tokens.prompts:
        name = sp.clean(prompt)
        name = f"prompt {name}" if (stop - start) / columns * WIDTH > 7.5 * (len(name) + 7) else name
        if (stop - start) / columns * WIDTH > 7.5 * len(name):
            middle = LEFT + (start + stop) / 2 / columns * WIDTH
            out.append(f'<text x="{middle:.1f}" y="{y}" text-anchor="middle">{escape(name)}</text>')
    return out


def _claimed_cells(alignment: Alignment, offset: int, width: float, height: float) -> list[str]:
    """Dots on the claimed pairing: reference boundary r with candidate boundary r - offset."""
    rows = {b: i for i, b in enumerate(alignment.ref_boundaries)}
    points = [
        (
            LEFT + (j + 0.5) / len(alignment.cand_boundaries) * width,
            TOP + (rows[b + offset] + 0.5) / len(rows) * height,
        )
        for j, b in enumerate(alignment.cand_boundaries)
        if b + offset in rows
    ]
    # A mark to a cell: a line would run over cells that nobody claimed. Each stands on paper, to be seen on any colour.
    if len(points) > 8:
        dots = "".join(f"M{x:.1f} {y:.1f}h0" for x, y in points)
        return [
            f'<path d="{dots}" fill="none" stroke="var(--{tone})" stroke-width="{width}" stroke-linecap="round"/>'
            for tone, width in (("paper", 5), ("accent", 3))
        ]
    return [
        f'<circle cx="{x:.1f}" cy="{y:.1f}" r="6" fill="none" stroke="var(--{tone})" stroke-width="{width}"/>'
        for x, y in points
        for tone, width in (("paper", 4.5), ("accent", 2))
    ]


def _legend(low: str, high: str, void: bool) -> Markup:
    ramp = np.arange(FIRST, 256, dtype=np.uint8)[None, :]
    parts = [_images(ramp, LEFT, 2, 200, 8)]
    parts.append(
        f'<text x="{LEFT}" y="24">{escape(low)}</text><text x="{LEFT + 200}" y="24" '
        f'text-anchor="end">{escape(high)}</text>'
    )
    if void:
        parts.append(
            '<rect x="258" y="2" width="16" height="8" fill="var(--void)"/><text x="280" y="11">not '
            "compared</text>"
        )
    return Markup(
        f'<svg class="legend" viewBox="0 0 380 28" width="380" aria-hidden="true">{"".join(parts)}</svg>'
    )
