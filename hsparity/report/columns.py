"""A text table that drops whole columns until it fits: a number is never cut."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from rich.cells import cell_len
from rich.text import Text

from .spelling import clean

GAP = "  "


@dataclass(frozen=True, slots=True)
class Column:
    """One column. The highest `rank` is dropped first; rank 0 always stays."""

    head: str
    cells: tuple[str, ...]
    rank: int = 0
    left: bool = False
    group: str = ""  # a second heading over neighbours of the same group
    styles: tuple[str, ...] = field(default=())
    name: str = ""  # columns of one name are alternatives: the first that survives is shown

    @property
    def width(self) -> int:
        return max(cell_len(t) for t in (self.head, *self.cells))

    @property
    def empty(self) -> bool:
        return all(c in ("", "-") for c in self.cells)


def fit(columns: Sequence[Column], width: int) -> list[Column]:
    """The columns that stand in `width` cells."""
    kept = [c for c in columns if c.rank == 0 or not c.empty]
    while True:
        shown = _without_alternatives(kept)
        excess = sum(c.width for c in shown) + len(GAP) * (len(shown) - 1) - width
        top = max(c.rank for c in kept)
        if excess <= 0 or top == 0:
            return shown
        kept = [c for c in kept if c.rank != top]


def table(columns: Sequence[Column], width: int) -> list[Text]:
    """Heading lines, a rule and one line per row; whatever a cell holds stays in its cell."""
    shown = fit([replace(c, cells=tuple(map(clean, c.cells))) for c in columns], width)
    rows = [_line([(c.head, c, "") for c in shown])]
    if any(c.group for c in shown):
        rows.insert(0, _groups(shown))
    rows.append(Text("─" * (sum(c.width for c in shown) + len(GAP) * (len(shown) - 1))))
    for i in range(len(shown[0].cells)):
        rows.append(_line([(c.cells[i], c, c.styles[i] if c.styles else "") for c in shown]))
    return rows


def _without_alternatives(columns: Sequence[Column]) -> list[Column]:
    names: set[str] = set()
    shown = []
    for column in columns:
        if column.name and column.name in names:
            continue
        names.add(column.name)
        shown.append(column)
    return shown


def _line(cells: list[tuple[str, Column, str]]) -> Text:
    line = Text()
    for i, (content, column, style) in enumerate(cells):
        pad = " " * (column.width - cell_len(content))
        line.append(GAP if i else "")
        line.append("" if column.left else pad)
        line.append(content, style=style or None)
        line.append(pad if column.left else "")
    line.rstrip()
    return line


def _groups(shown: Sequence[Column]) -> Text:
    line, i = "", 0
    while i < len(shown):
        j = i
        while j < len(shown) and shown[j].group == shown[i].group:
            j += 1
        span = sum(c.width for c in shown[i:j]) + len(GAP) * (j - i - 1)
        name = shown[i].group
        line += (GAP if i else "") + (
            f" {name} ".center(span, "─") if len(name) + 2 < span and name else name.rjust(span)
        )
        i = j
    return Text(line.rstrip())
