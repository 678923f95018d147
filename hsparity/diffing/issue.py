"""A diff as Markdown to paste into an issue: foreign text cannot mention people, link, or break out of its cell."""

from __future__ import annotations

from hsparity.report import spelling as sp
from hsparity.report import view
from hsparity.report.to_markdown import escaped

from .result import Diff
from .tables import WORDS, cost_line, few, finding_line, grouped, ratio_head, setting_lines
from .terminal import error_cell, ratio_cell, verdict_words

SETTINGS_SHOWN = 20


def render(diff: Diff) -> str:
    """GitHub-flavoured Markdown, of the requested sites only."""
    d = diff
    parts = [f"**{WORDS[d.change].upper()}** {escaped(d.headline)}"]
    parts += [f"The verdict: {escaped(d.verdict_reason)}."] if d.verdict_reason else []
    parts += [f"**Where it starts.** {escaped(d.start)}"] if d.start else []
    parts += ["\n".join(f"- warning, {escaped(w)}" for w in d.warnings)] if d.warnings else []
    rows = [
        f"| {word} | {escaped(s.file)} | {escaped(s.sides)} | {s.verdict.value} | {escaped(s.compared)} |"
        for word, s in (("then", d.then), ("now", d.now))
    ]
    parts += [
        "\n".join(["| | file | sides | verdict | compared |", "|---|---|---|---|---|", *rows]),
        _sites(d),
    ]
    parts += (
        ["\n".join(f"- {f.status}: {escaped(finding_line(f))}" for f in d.findings)] if d.findings else []
    )
    parts += [f"Draft {escaped(cost_line(d.cost))}."] if d.cost is not None else []
    lines = setting_lines(d)
    more = [f"- {len(lines) - SETTINGS_SHOWN} more"] if len(lines) > SETTINGS_SHOWN else []
    parts += [
        "\n".join(
            [escaped(d.explained), "", *(f"- {escaped(x)}" for x in lines[:SETTINGS_SHOWN]), *more]
        ).rstrip()
    ]
    steps = [f"{escaped(why[:1].upper() + why[1:])}:\n\n{_block(commands)}" for why, commands in grouped(d)]
    return "\n\n".join([*parts, *steps, f"Made by hsparity {escaped(d.hsparity)}."]) + "\n"


def _block(commands: list[str]) -> str:
    """Indented code: nothing in it can end it, as commands hold no line break."""
    return "\n".join(f"    {sp.clean(c)}" for c in commands)


def _sites(d: Diff) -> str:
    shown, hidden = few(d)
    head = escaped(ratio_head(shown))
    lines = [
        f"| layer | boundary | rel-L2 then | now | {head} then | now | verdict | change |",
        "|--:|--:|--:|--:|--:|--:|:--|:--|",
    ]
    for s in shown:
        cells = [
            *view.place(s.ref),
            error_cell(s.then),
            error_cell(s.now),
            ratio_cell(s.then),
            ratio_cell(s.now),
        ]
        lines.append(f"| {' | '.join(escaped(c) for c in (*cells, verdict_words(s), s.change.value))} |")
    return "\n".join(lines) + (f"\n\n{hidden} more requested sites." if hidden else "")
