"""A diff as one self-contained page: no script needed, no request made, same diff same bytes."""

from __future__ import annotations

import json
import shlex
from typing import Any

from markupsafe import Markup

from hsparity.model import encode
from hsparity.report import spelling as sp
from hsparity.report import view
from hsparity.report.figures import Curve, Plot, draw
from hsparity.report.tables import TONES, Cell, HtmlTable
from hsparity.report.to_html import script, style_sheet, template

from .result import Change, Diff, FindingChange, SiteChange, Standing
from .tables import ROLES, WORDS, cost_line, few, finding_line, grouped, ratio_head, setting_lines
from .terminal import error_cell, median_cell, verdict_words

MARKS = {
    Change.WORSE: ("bad", "✗"),
    Change.BETTER: ("good", "✓"),
    Change.SAME: ("good", "✓"),
    Change.UNKNOWN: ("warn", "?"),
}


def render(diff: Diff) -> str:
    """The page; the record itself is in it, as JSON."""
    return template("diff.html.j2").render(**_context(diff)) + "\n"


def _context(d: Diff) -> dict[str, Any]:
    word = WORDS[d.change].capitalize()
    shown, hidden = few(d)
    rest = len(d.sites) > len(shown)
    return {
        "title": f"{word}: {d.then.sides} → {d.now.sides}, {_name(d.model)}",
        "version": sp.clean(d.hsparity),
        "css": Markup(style_sheet()),
        "js": Markup(script()),
        "verdict": Cell(word, MARKS[d.change][0]),
        "statement": d.headline,
        "subtitle": f"{_name(d.model)}: {d.then.sides}, then; {d.now.sides}, now",
        "verdict_reason": f"The verdict: {d.verdict_reason}." if d.verdict_reason else "",
        "start": d.start,
        "changed": _changed(d),
        "warnings": [f"{w[:1].upper()}{w[1:]}." for w in d.warnings],
        "steps": [(why[:1].upper() + why[1:], "\n".join(lines)) for why, lines in grouped(d)],
        "sites": sites_table(shown),
        "more": f"{sp.count(hidden, 'more requested site')} in the table below." if hidden else "",
        "all_sites": sites_table(d.sites, reasons=True) if rest or d.sites else None,
        "plot": _plot(d),
        "plot_caption": _plot_caption(d),
        "findings": [_finding(f) for f in d.findings],
        "explained": d.explained,
        "settings": _settings(d),
        "cost": cost_line(d.cost) if d.cost is not None else "",
        "results": _results(d),
        "command": sp.clean(shlex.join(d.command)),
        "data": Markup(json.dumps(encode(d), sort_keys=True, allow_nan=False).replace("<", "\\u003c")),
    }


def _name(model: str) -> str:
    return sp.clean(model).rstrip("/").rsplit("/", 1)[-1]


def sites_table(sites: tuple[SiteChange, ...], reasons: bool = False) -> HtmlTable:
    """Then and now side by side, and the word; with the reason for it in a column of its own."""
    other = any(s.cand != s.ref for s in sites)
    judged = any(s.of for s in sites)
    mixed = len({s.of for s in sites if s.of}) > 1
    heads = [Cell("layer"), Cell("boundary"), *([Cell("cand", "o")] if other else [])]
    before = len(heads)
    heads += [Cell("then"), Cell("now"), *([Cell("then", "o"), Cell("now", "o")] if judged else [])]
    heads += [*([Cell("of", "l o")] if mixed else []), Cell("verdict", "l o"), Cell("change", "l")]
    heads += [Cell("because", "l")] if reasons else []
    rows = []
    for s in sites:
        layer, boundary = view.place(s.ref)
        row = [Cell(layer), Cell(boundary)]
        row += [Cell(sp.clean(s.cand), "o")] if other else []
        row += [Cell(error_cell(s.then)), Cell(error_cell(s.now))]
        row += [_ratio(s.then), _ratio(s.now)] if judged else []
        row += [Cell(s.of or "-", "l o")] if mixed else []
        tone, icon = MARKS[s.change]
        row += [Cell(verdict_words(s), "l o"), Cell(s.change.value, f"l {tone}", icon=icon)]
        row += [Cell(s.reason, "why")] if reasons else []
        rows.append(tuple(row))
    over = [("", before), ("rel-L2", 2), *([(ratio_head(sites), 2)] if judged else [])]
    over += [("", len(heads) - sum(n for _, n in over))]
    caption = (
        "Medians over tokens; small figures are 95 % intervals. Worse and better are said only of a change that the intervals, "
        "over all sites at once, do not allow, and that is a quarter or more."
    )
    return HtmlTable(caption, tuple(heads), tuple(rows), tuple(over))


def _ratio(standing: Standing | None) -> Cell:
    span = standing.ratio if standing is not None else None
    interval = (
        f"{sp.ratio(span.low)}–{sp.ratio(span.high)}" if span is not None and span.low < span.high else ""
    )
    return Cell(median_cell(standing), "o", aside=interval)


def _places(d: Diff) -> list[tuple[int, SiteChange]]:
    known = [(b, s) for s in d.sites if (b := view.boundary_of(s.ref)) is not None and s.then and s.now]
    return sorted(((b, s) for b, s in known if s.cand.startswith("boundary.")), key=lambda item: item[0])


def _plot(d: Diff) -> Markup | None:
    """Median rel-L2 by boundary, then and now. None under two boundaries."""
    known = _places(d)
    if len(known) < 2:
        return None
    then = tuple((float(b), s.then.rel_l2) for b, s in known if s.then)
    now = tuple((float(b), s.now.rel_l2) for b, s in known if s.now)
    marks = tuple(b for b, s in known if s.change is Change.WORSE)
    return draw(
        Plot(
            (
                Curve("then", then, "muted", "6 4"),
                Curve("now", now, "bad" if d.change is Change.WORSE else "ink"),
            ),
            marks=marks,
            marked=1,
            label="Median relative L2 error by boundary on a log scale, then and now",
            ends=(known[0][0], known[-1][0]),
        )
    )


def _plot_caption(d: Diff) -> str:
    known = _places(d)
    worse = sum(s.change is Change.WORSE for _, s in known)
    if all(s.change is Change.UNKNOWN for _, s in known):
        return "Median rel-L2 then (dashed) and now. The two are not held against one another; the warnings say why."
    marked = f", which {'is' if worse == 1 else 'are'} marked" if worse else ""
    return f"Median rel-L2 then (dashed) and now: worse at {worse} of {sp.count(len(known), 'boundary', 'boundaries')}{marked}."


def _finding(finding: FindingChange) -> dict[str, Any]:
    tone, icon = MARKS[finding.change]
    plain = finding.change is Change.SAME
    return {
        "status": finding.status,
        "cls": "" if plain else tone,
        "icon": "" if plain else icon,
        "text": finding_line(finding),
    }


def _changed(d: Diff) -> str:
    """The first things that changed, for the top of the page, where something may have got worse by them."""
    if d.change not in (Change.WORSE, Change.UNKNOWN) or not d.settings:
        return ""
    lines = setting_lines(d)
    more = f"; {len(lines) - 3} more below" if len(lines) > 3 else ""
    return f"{'; '.join(lines[:3])}{more}. Candidates, not proofs."


def _settings(d: Diff) -> HtmlTable | None:
    if not d.settings:
        return None
    rows = tuple(
        (
            Cell(f"{ROLES.get(s.role, s.role)}{'' if s.kind == 'engine' else f' {s.name}'}", "l"),
            Cell(s.then, "l"),
            Cell(s.now, "l"),
        )
        for s in d.settings
    )
    return HtmlTable(d.explained, (Cell("setting", "l"), Cell("then", "l"), Cell("now", "l")), rows)


def _results(d: Diff) -> HtmlTable:
    """Both results lined up; what differs is marked."""
    lines = [
        ("file", d.then.file, d.now.file),
        ("verdict", d.then.verdict.value, d.now.verdict.value),
        ("statement", d.then.headline, d.now.headline),
        ("sides", d.then.sides, d.now.sides),
        ("compared", d.then.compared, d.now.compared),
        ("floor", d.then.floor, d.now.floor),
        ("hsparity", d.then.hsparity, d.now.hsparity),
    ]
    rows = []
    for name, then, now in lines:
        tones = [TONES[s.verdict][0] if name == "verdict" else "" for s in (d.then, d.now)]
        mark = "≠" if then != now and name != "file" else ""
        rows.append(
            (
                Cell(name, "l"),
                Cell(then, f"l {tones[0]}".strip()),
                Cell(now, f"l {tones[1]}".strip(), icon=mark),
            )
        )
    heads = (Cell("result", "l"), Cell("then", "l"), Cell("now", "l"))
    return HtmlTable("Rows that differ are marked ≠.", heads, tuple(rows))
