"""An overview as one self-contained page: a matrix of links, and a list, worst first."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from markupsafe import Markup, escape

from hsparity.report import spelling as sp
from hsparity.report.tables import TONES, Cell, HtmlTable
from hsparity.report.to_html import script, style_sheet, template

from .axes import ABSENT, Facts, differing, matrix, model_names, settings_words, shared
from .result import DraftEntry, Entry, Overview
from .words import SAID, counted, excess, link, skipped_words, title


@dataclass(frozen=True, slots=True)
class Shown:
    """One result as a link."""

    href: str
    tone: str
    icon: str
    word: str
    excess: str
    code: str
    file: Markup  # named where several results share a cell


def render(overview: Overview, path: str) -> str:
    """The page, to be written to `path`: its links are relative to that."""
    return template("overview.html.j2").render(**_context(overview, path)) + "\n"


def _context(o: Overview, path: str) -> dict[str, Any]:
    folder, entries = Path(o.folder), o.entries
    names, facts = model_names(entries), differing(entries)
    same = shared(entries) if len(entries) > 1 else None
    said = [*same.axes, *(f for f in same.facts if f[0] in SAID)] if same is not None else []
    rest = [f for f in same.facts if f[0] not in SAID] if same is not None else []
    return {
        "title": f"{counted(o)[:-1]} in {_name(folder)}",
        "version": sp.clean(o.hsparity),
        "css": Markup(style_sheet()),
        "js": Markup(script()),
        "statement": counted(o),
        "folder": sp.clean(o.folder),
        "same": "; ".join(f"{name} {value}" for name, value in said),
        "rest": HtmlTable(
            "Settings that are the same in every result.",
            (Cell("setting", "l"), Cell("value", "l")),
            tuple((Cell(name, "l"), Cell(value, "l")) for name, value in rest),
        )
        if rest
        else None,
        "matrix": _matrix(o, path),
        "rows": [_row(e, folder, path, names[e.file], facts[e.file]) for e in entries],
        "settings": any(few or rest for few, rest in facts.values()),
        "priced": any(e.accepted for e in entries),
        "drafts": [_draft(d, folder, path) for d in o.drafts],
        "skipped": _skipped(o),
    }


def _name(folder: Path) -> str:
    return sp.clean(folder.resolve().name)


def _shown(entry: Entry, folder: Path, path: str) -> Shown:
    tone, icon = TONES[entry.verdict]
    return Shown(
        link(folder, entry.report, path),
        tone,
        icon,
        entry.verdict.value,
        excess(entry),
        entry.code,
        _breakable(entry.file),
    )


def _breakable(file: str) -> Markup:
    """A path that wraps after its slashes first."""
    return escape(sp.clean(file)).replace("/", Markup("/<wbr>"))


def _matrix(o: Overview, path: str) -> dict[str, Any] | None:
    """None where all results would stand in one cell."""
    if len(o.entries) < 2:
        return None
    m = matrix(o.entries)
    if not m.heads:
        return None
    folder = Path(o.folder)
    return {
        "heads": m.heads,
        "axis": m.column_axis,
        "columns": m.columns,
        "rows": [
            {
                "labels": list(zip(labels, spans, strict=True)),
                "cells": [[_shown(e, folder, path) for e in cell] for cell in cells],
            }
            for (labels, cells), spans in zip(m.rows, _spans([labels for labels, _ in m.rows]), strict=True)
        ],
    }


def _spans(rows: list[tuple[str, ...]]) -> list[tuple[int, ...]]:
    """Over how many rows each label stands: the first of several is said once, 0 where the row above says it."""
    out = []
    for i, row in enumerate(rows):
        if len(row) < 2:
            out.append((1,) * len(row))
            continue
        held = i > 0 and rows[i - 1][0] == row[0]
        run = next((j for j in range(i, len(rows)) if rows[j][0] != row[0]), len(rows)) - i
        out.append((0 if held else run, *(1,) * (len(row) - 1)))
    return out


def _skipped(o: Overview) -> list[tuple[str, list[tuple[str, str]]]]:
    """(how many of which kind, their files): other saved results, and files that hold none."""
    parts = [[s for s in o.skipped if s.kind], [s for s in o.skipped if not s.kind]]
    return [
        (words, [(sp.clean(s.file), s.kind or sp.clean(s.why)) for s in part])
        for words, part in zip(skipped_words(o), parts, strict=True)
        if part
    ]


def _row(e: Entry, folder: Path, path: str, model: str, facts: tuple[Facts, Facts]) -> dict[str, Any]:
    few, rest = facts
    hidden = [f for f in rest if f[1] != ABSENT]
    return {
        "shown": _shown(e, folder, path),
        "model": model,
        "ref": e.ref,
        "cand": e.cand,
        "facts": settings_words(few),
        "more": f"{len(hidden)} more" if hidden else "",
        "rest": settings_words(hidden),
        "why": e.why,
        "layer": e.layer,
        "cause": title(e),
        "file": _breakable(e.file),
        "compared": e.compared,
        "accepted": e.accepted,
        "accepted_href": link(folder, e.accepted_file, path) if e.accepted_file else "",
    }


def _draft(d: DraftEntry, folder: Path, path: str) -> dict[str, Any]:
    tone, icon = TONES[d.verdict]
    return {
        "href": link(folder, d.report, path),
        "tone": tone,
        "icon": icon,
        "word": d.verdict.value,
        "draft": d.draft,
        "model": d.model,
        "file": _breakable(d.file),
        "ref": d.ref,
        "cand": d.cand,
        "accepted": d.accepted,
    }
