"""The report as one self-contained page: no script needed, no request made, same result same bytes."""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files
from typing import Any
from urllib.parse import urlencode

from jinja2 import Environment, PackageLoader, StrictUndefined, Template
from markupsafe import Markup

from ..model import Comparison, Finding, SiteDelta, Verdict, to_json
from . import commands, drafts, findings, lacking, pairs, reasons, sentences, tables, view
from . import spelling as sp
from .base import Options
from .cost_figures import loss_bars
from .embedded import pack
from .explained import explanations, remedy
from .maps import pair_figure, token_figure
from .overview import overview
from .palette import DARK, LIGHT, PRINT
from .plots import added_plot, error_plot, ratio_plot
from .row_figure import caption as row_caption
from .row_figure import row_figure
from .side_tables import compared_table, environments_table
from .tables import Cell
from .trial_figure import trials_figure


class HtmlReporter:
    suffix = ".html"

    def render(self, comparison: Comparison, options: Options) -> str:
        """The page. `options` plays no part: a page is the same wherever it is made."""
        return template("report.html.j2").render(**_context(comparison)) + "\n"


@cache
def template(name: str) -> Template:
    """A page's template; every text that is put into it is escaped."""
    # select_autoescape() answers False for a name that ends in .j2.
    environment = Environment(
        loader=PackageLoader("hsparity.report"), autoescape=True, undefined=StrictUndefined, trim_blocks=False
    )
    return environment.get_template(name)


def style_sheet() -> str:
    """Both themes, then the rules; print last, so that it wins."""
    rules = (files("hsparity.report") / "templates" / "report.css").read_text(encoding="utf-8")
    before, at, printed = rules.partition("@media print{")
    dark, shown = DARK.css(), "{hide} .light{{display:none}}{hide} .dark{{display:inline}}"
    return (
        f":root{{{LIGHT.css()}}}\n:root[data-theme=dark]{{{dark}}}\n"
        f"@media screen and (prefers-color-scheme:dark){{:root:not([data-theme=light]){{{dark}}}}}\n"
        f"{before}{shown.format(hide=':root[data-theme=dark]')}\n"
        "@media screen and "
        f"(prefers-color-scheme:dark){{{shown.format(hide=':root:not([data-theme=light])')}}}\n"
        f"{at}:root,:root[data-theme]{{{PRINT.css()}}}\n{printed}"
    )


def script() -> str:
    return (files("hsparity.report") / "templates" / "report.js").read_text(encoding="utf-8")


def _context(comparison: Comparison) -> dict[str, Any]:
    c = comparison
    shown = view.few(view.requested(c) or c.deltas)
    hidden = len(view.requested(c) or c.deltas) - len(shown)
    worst, explained = view.farthest(c), explanations(c)
    return {
        "title": sentences.title(c),
        "version": sp.clean(c.hsparity),
        "css": Markup(style_sheet()),
        "js": Markup(script()),
        "verdict": Cell(c.verdict.value.capitalize(), tables.TONES[c.verdict][0]),
        "statement": sentences.statement(c),
        "subtitle": sentences.subtitle(c),
        "redacted": f"{view.REDACTED[:1].upper()}{view.REDACTED[1:]}." if c.redacted else "",
        "scope": view.scope(c),
        "summary": sentences.summary(c),
        "no_floor": words[:1].upper() + words[1:].partition(";")[0]
        if (words := lacking.floor_words(c))
        else "",
        "missing": lacking.missing_reasons(c)[:12],
        "likely": remedy(c),
        "fixes": _fixes(c),
        "steps": _steps(c),
        "requested": tables.requested_table(c, shown),
        "more": f"Those that stand worst; {hidden} more requested sites are in the table under the next figure."
        if hidden
        else "",
        "worst": "" if worst is None or worst.worst is None else f"W{view.worst_token_words(worst)[1:]}.",
        "worst_link": _link(c, worst),
        "draft": drafts.lines(c),
        "draft_caption": f"What to write so that the draft gets {view.requested_words(c)}.",
        "error_plot": error_plot(c),
        "error_caption": sentences.error_caption(c),
        "ratio_plot": ratio_plot(c),
        "ratio_caption": sentences.ratio_caption(c),
        "sites": tables.sites_table(c),
        "apart": tables.apart_table(view.apart_rows(c)),
        **_maps(c),
        "row_map": row_figure(c.rows) if c.rows is not None else None,
        "row_caption": row_caption(c.rows) if c.rows is not None else "",
        "added_plot": added_plot(c),
        "added_caption": sentences.added_caption(c),
        "added": tables.added_table(c),
        "trials": trials_figure(c.trials),
        "trials_caption": sentences.trials_caption(c.trials),
        "cost": _cost(c),
        "anchors": {e.code: f"#{e.anchor}" for e in explained},
        "explanations": explained,
        "slots": tables.slots_table(slots) if (slots := view.native_slots(c)) else None,
        "causes_caption": (
            "Each candidate cause is undone on the captured data. The figure is the share of the excess "
            "over the floor that goes away."
        )
        if view.causes(c)
        else "No cause was found or needed.",
        "causes": [_cause(c, f) for f in view.causes(c)],
        "reasons": [_reason(i, f) for i, f in enumerate(reasons.hypotheses(c), 1)],
        "reasons_heading": (words := reasons.heading(c))[:1].upper() + words[1:],
        "measured": reasons.fingerprint(c, verbose=True) if reasons.hypotheses(c) else [],
        "excluded": reasons.out_lines(c, verbose=True),
        "notes": [{"title": findings.title(f), "text": findings.note(f)} for f in view.notes(c)],
        "left": findings.left_to_check(c),
        "compared": compared_table(c),
        "environments": environments_table(c),
        "command": sp.clean(view.command_line(c)),
        "warnings": view.warnings(c),
        "method": sentences.method(c),
        "limits": sentences.limits(c),
        "result": Markup(pack(to_json(c))),
    }


def _maps(c: Comparison) -> dict[str, Any]:
    """The two maps with their captions and tables; absent ones are None."""
    out: dict[str, Any] = dict.fromkeys(
        ("token_map", "token_caption", "token_table", "data", "pair_map", "pair_caption", "pair_table")
    )
    if c.map is not None and c.map.excess_kc.size:
        caption = sentences.token_caption(c, c.map)
        figure = token_figure(
            c.map, c.request.boundaries, f"Excess error, boundary by token. {caption}", view.map_limit(c)
        )
        data = Markup(json.dumps(figure.data, sort_keys=True, ensure_ascii=False).replace("<", "\\u003c"))
        out |= {
            "token_map": figure,
            "token_caption": caption,
            "token_table": tables.token_table(overview(c.map), view.map_limit(c)),
            "data": data,
        }
    caption = sentences.pair_caption(c)
    shown, found = pairs.boundary_pairs(c), pairs.only_found(c)
    pair = pair_figure(shown, None if found else c.request.offset, caption)
    if pair is not None:
        claimed = "Rings" if len(shown.cand_boundaries) <= 8 else "Dots"
        claimed = "A slot stands where it fits best." if found else f"{claimed}: the claimed pairing."
        out |= {
            "pair_map": {"svg": pair[0], "legend": pair[1], "claimed": claimed},
            "pair_caption": caption,
            "pair_table": tables.pair_table(c),
        }
    return out


def _cost(c: Comparison) -> dict[str, Any] | None:
    """What the difference costs the draft head that was named."""
    if c.cost is None:
        return None
    return {
        "bars": loss_bars(c.cost),
        "caption": sentences.cost_caption(c.cost),
        "cell": Cell(c.cost.verdict.value.capitalize(), tables.TONES[c.cost.verdict][0]),
    }


def _link(c: Comparison, delta: SiteDelta | None) -> str:
    """The address of the site's worst token on the map; empty where the map does not show it."""
    boundary = None if delta is None else view.boundary_of(delta.ref)
    if delta is None or delta.worst is None or c.map is None or boundary not in c.map.boundaries:
        return ""
    where = {
        "layer": boundary - 1,
        "prompt": sp.clean(delta.worst.prompt),
        "token": delta.worst.position,
    }
    return f"#{urlencode(where)}"


def _steps(c: Comparison) -> list[tuple[str, str]]:
    """(why, commands): neighbours with one purpose share a block."""
    out: list[tuple[str, str]] = []
    for command, why in commands.next_commands(c):
        # All the evidence and every explanation stand on the page itself.
        if command.endswith(" -v") or command.startswith("hsparity explain "):
            continue
        if out and out[-1][0] == why:
            out[-1] = (why, f"{out[-1][1]}\n{command}")
        else:
            out.append((why, command))
    if lacking.floor_words(c) and c.verdict is Verdict.DIVERGED:
        out.append(
            ("a floor, against which the numbers can be judged too", "\n".join(commands.floor_commands(c)))
        )
    if (
        len(c.command) > 1
        and c.verdict is Verdict.DIVERGED
        and any(findings.fixes(c, f) for f in findings.found(c))
    ):
        out.append(
            (
                "after the change, capture again and compare; PARITY is to be expected where nothing else is wrong",
                sp.clean(view.command_line(c)),
            )
        )
    return [(why[:1].upper() + why[1:], commands) for why, commands in out]


def _fixes(c: Comparison) -> list[dict[str, Any]]:
    """What to change, cause by cause; a lone cause needs no name."""
    found = findings.found(c)
    out = []
    for finding in found:
        lines = findings.fixes(c, finding)
        general = "".join(text for engine, text in lines if not engine)
        if lines:
            out.append(
                {
                    "title": findings.title(finding) if len(found) > 1 else "",
                    "any": general[:1].upper() + general[1:],
                    "engines": [item for item in lines if item[0]],
                }
            )
    return out


def _cause(c: Comparison, finding: Finding) -> dict[str, Any]:
    share, headline = finding.explained or 0.0, sp.clean(finding.headline)
    facts = [] if finding.ruled_out else findings.facts(c, finding)
    return {
        "id": sp.slug(finding.code),
        "code": sp.clean(finding.code),
        "name": sp.clean(finding.name),
        "share": sp.percent(finding.explained),
        "after": findings.after(c, finding).removeprefix(", ").capitalize(),
        "width": "" if finding.explained is None else f"{100 * min(max(share, 0.0), 1.0):.1f}",
        "headline": f"Ruled out: {headline}" if finding.ruled_out else headline[:1].upper() + headline[1:],
        "facts": [(label.capitalize(), lines) for label, lines in facts],
        "out": finding.ruled_out,
    }


def _reason(rank: int, finding: Finding) -> dict[str, Any]:
    headline = sp.clean(finding.headline)
    return {
        "id": sp.slug(finding.code),
        "code": sp.clean(finding.code),
        "name": sp.clean(finding.name),
        "rank": str(rank),
        "word": ", ".join(w for w in (reasons.word(finding), reasons.share(finding)) if w),
        "headline": headline[:1].upper() + headline[1:],
        "facts": [(label.capitalize(), lines) for label, lines in reasons.facts(finding, verbose=True)],
        "next": reasons.next_commands(finding),
    }


REPORTER = HtmlReporter()
