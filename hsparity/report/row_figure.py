"""The map of rows: where each row says it belongs against whose state it holds."""

from __future__ import annotations

import numpy as np
from markupsafe import Markup, escape

from ..model import ABSENT_ROW, UNKNOWN_OWNER, RowMap
from . import spelling as sp

LEFT, TOP, SIDE = 70, 8, 420
CELLS = 420  # places along an axis that a dot can have
MOST_LABELS = 12
LETTER, LINE = 7.5, 14  # pixels that a letter of a prompt's name takes along an axis, and a line of it


def row_figure(rows: RowMap) -> Markup | None:
    """Dots on the diagonal are rows at their own token; those beside it hold another's state. None under two rows."""
    total = len(rows.owner_m)
    if total < 2:
        return None
    claimed = np.arange(total)
    known = rows.owner_m >= 0
    right = known & (rows.owner_m == claimed)
    wrong = known & ~right
    parts = [f'<rect class="frame" x="{LEFT}" y="{TOP}" width="{SIDE}" height="{SIDE}"/>']
    parts += _prompts(rows, total)
    parts += _bands(rows, total)
    parts.append(_dots(claimed[right], rows.owner_m[right], total, "muted", 2.0))
    parts.append(_dots(claimed[wrong], rows.owner_m[wrong], total, "bad", 3.5))
    lost = np.flatnonzero(rows.owner_m == UNKNOWN_OWNER)
    if len(lost):
        parts.append(_dots(lost, np.full(len(lost), total - 1), total, "warn", 3.5))
    parts.append(
        f'<text x="{LEFT + SIDE / 2}" y="{TOP + SIDE + 38}" text-anchor="middle">row of the candidate, as claimed</text>'
    )
    parts.append(
        f'<text transform="translate(14 {TOP + SIDE / 2}) rotate(-90)" text-anchor="middle">whose state it holds</text>'
    )
    label = caption(rows)
    return Markup(
        f'<svg class="map" viewBox="0 0 520 {TOP + SIDE + 46}" role="img" aria-label="{escape(label)}">{"".join(parts)}</svg>'
    )


def caption(rows: RowMap) -> str:
    """How many rows hold whose state, and how many are absent."""
    total = len(rows.owner_m)
    known = rows.owner_m >= 0
    wrong = int((known & (rows.owner_m != np.arange(total))).sum())
    lost, absent = int((rows.owner_m == UNKNOWN_OWNER).sum()), int((rows.owner_m == ABSENT_ROW).sum())
    words = []
    if absent:
        words.append(
            f"{absent:,} of {sp.count(total, 'row')} {'is' if absent == 1 else 'are'} absent in the candidate: the bands."
        )
    if rows.site:
        words.append(
            f"{wrong:,} of {sp.count(total - absent, 'row')} hold another token's state; rows on the diagonal are their own. "
            f"Looked up at {sp.clean(rows.site)}, in the order in which rows were compared."
        )
    else:
        words.append("The other rows, on the diagonal, were compared as their own tokens', in this order.")
    if lost:
        words.append(
            f"Of {sp.count(lost, 'row')} nothing tells whose state it is: they stand along the lower edge."
        )
    return " ".join(words)


def _bands(rows: RowMap, total: int) -> list[str]:
    """A band over each run of absent rows, with its foot on the axis; at least a pixel wide."""
    absent = np.flatnonzero(rows.owner_m == ABSENT_ROW)
    out, unit = [], SIDE / total
    for run in np.split(absent, np.flatnonzero(np.diff(absent) != 1) + 1) if len(absent) else []:
        at, width = f"{LEFT + run[0] * unit:.1f}", f"{max(len(run) * unit, 1):.1f}"
        out.append(
            f'<rect x="{at}" y="{TOP}" width="{width}" height="{SIDE}" fill="var(--warn)" fill-opacity="0.18"/>'
            f'<rect x="{at}" y="{TOP + SIDE}" width="{width}" height="5" fill="var(--warn)"/>'
        )
    return out


def _dots(x_m: np.ndarray, y_m: np.ndarray, total: int, tone: str, size: float) -> str:
    """One dot per place that holds at least one row."""
    grid = min(total, CELLS)
    cells = sorted({(int(x) * grid // total, int(y) * grid // total) for x, y in zip(x_m, y_m, strict=True)})
    unit = SIDE / grid
    path = "".join(f"M{LEFT + (x + 0.5) * unit:.1f} {TOP + (y + 0.5) * unit:.1f}h0" for x, y in cells)
    width = max(size, min(unit, 8))
    return f'<path d="{path}" fill="none" stroke="var(--{tone})" stroke-width="{width:.1f}" stroke-linecap="round"/>'


def _prompts(rows: RowMap, total: int) -> list[str]:
    """Where prompts begin, on both axes; their names where at least three letters fit."""
    out, unit = [], SIDE / total
    few = len(rows.prompts) <= MOST_LABELS
    for prompt, start, stop in rows.prompts:
        at, room = start * unit, (stop - start) * unit
        if start and len(rows.prompts) <= 40:
            out.append(
                f'<path class="frame" d="M{LEFT + at:.1f} {TOP}v{SIDE}M{LEFT} {TOP + at:.1f}h{SIDE}"/>'
            )
        if not few:
            continue
        middle = (start + stop) / 2 * unit
        if along := _name(prompt, int(room / LETTER)):
            out.append(
                f'<text x="{LEFT + middle:.1f}" y="{TOP + SIDE + 17}" text-anchor="middle">{along}</text>'
            )
        if room > LINE and (beside := _name(prompt, int((LEFT - 8) / LETTER))):
            out.append(f'<text x="{LEFT - 8}" y="{TOP + middle + 4:.1f}" text-anchor="end">{beside}</text>')
    return out


def _name(prompt: str, letters: int) -> str:
    """A prompt's name in at most so many letters; one that is cut says the whole in its title. Empty where it would
    say nothing."""
    name = sp.clean(prompt)
    if len(name) <= letters:
        return str(escape(name))
    return f"{escape(name[: letters - 1])}…<title>{escape(name)}</title>" if letters >= 3 else ""
