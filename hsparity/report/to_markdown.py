"""A summary to paste into an issue: foreign text cannot mention people, link, or break out of its cell."""

from __future__ import annotations

import re
from collections.abc import Sequence

from ..model import Comparison, SiteDelta
from . import drafts, lacking, view
from . import spelling as sp
from .base import Options
from .columns import Column
from .delta_columns import delta_columns, slot_columns

_ENTITIES = {"&": "&amp;", "<": "&lt;", ">": "&gt;", "@": "&#64;", "#": "&#35;", "|": "&#124;"}


class MarkdownReporter:
    suffix = ".md"

    def render(self, comparison: Comparison, options: Options) -> str:
        """GitHub-flavoured Markdown, of the requested sites only."""
        c, lead = comparison, view.leading(comparison)
        parts = [f"**{c.verdict.value.upper()}** {escaped(view.verdict_line(c))}"]
        if lead is not None:
            explains = (
                f" explains {escaped(sp.percent(lead.explained))} of the excess"
                if lead.explained is not None
                else ""
            )
            headline = "." if view.repeats_headline(c, lead) else f": {escaped(lead.headline)}"
            parts.append(f"**{escaped(lead.code)} {escaped(lead.name)}**{explains}{headline}")
        no_floor, missing = lacking.floor_words(c), lacking.missing_reasons(c)
        if no_floor:
            parts.append(f"Floor: {escaped(no_floor)}.")
        if missing:
            parts.append("\n".join(["What is missing:", "", *(f"- {escaped(m)}" for m in missing[:6])]))
        parts += [_sides(c), *_sites(c)]
        slots = view.native_slots(c)
        if slots:
            parts += [
                "Where each native slot lies among the boundaries, by the data:",
                _table(slot_columns(slots)),
            ]
        parts += _findings(c)
        ids = "; ".join(f"{engine}: {ids}" for engine, ids in drafts.lines(c))
        if ids:
            words = drafts.purpose(c)
            parts.append(f"{escaped(words[:1].upper() + words[1:])}: {escaped(ids)}.")
        if lead is not None and lead.fix:
            fixes = sorted(lead.fix.items(), key=lambda kv: (kv[0] != "any", kv[0]))
            lines = [
                escaped(text) if engine == "any" else f"- {escaped(engine)}: {escaped(text)}"
                for engine, text in fixes
            ]
            parts.append(
                "**Fix.** " + "\n".join(lines) if fixes[0][0] == "any" else "**Fix.**\n\n" + "\n".join(lines)
            )
        steps = view.next_commands(c)
        if steps:
            parts.append(_fenced([f"{command}  # {why}" for command, why in steps]))
        parts += [f"- warning, {escaped(w)}" for w in view.warnings(c)[:6]]
        parts.append(f"Made by hsparity {escaped(c.hsparity)} with {code(view.command_line(c))}.")
        return "\n\n".join(parts) + "\n"


def escaped(text: str) -> str:
    """Foreign text as Markdown that reads as written."""
    text = "".join(_ENTITIES.get(ch, ch) for ch in sp.clean(text))
    return re.sub(r"([\\`*_\[\]~])", r"\\\1", text)


def code(text: str) -> str:
    """A code span; its fence is longer than any run of backticks inside."""
    text = sp.clean(text)
    fence = "`" * (max((len(run) for run in re.findall(r"`+", text)), default=0) + 1)
    pad = " " if text.startswith("`") or text.endswith("`") else ""
    return f"{fence}{pad}{text}{pad}{fence}"


def _sides(c: Comparison) -> str:
    rows = []
    for side in (c.ref, c.cand):
        facts = ", ".join(f for f in view.side_facts(side) if f)
        rows.append(f"| {side.role} | {escaped(side.path)} | {escaped(facts)} |")
    compared = (
        f"{escaped(view.requested_words(c))}; {view.compared_words(c)}; floor: {escaped(view.floor_line(c))}."
    )
    return "\n".join(["| side | capture | engine |", "|---|---|---|", *rows, "", f"Compared {compared}"])


def _sites(c: Comparison) -> list[str]:
    rows: Sequence[SiteDelta] = view.few(view.requested(c) or c.deltas)
    if not rows:
        return []
    parts = [_table(delta_columns(c, rows, dict.fromkeys(view.Verdict, "")))]
    worst = view.worst_requested(c)
    if worst is not None and worst.worst is not None:
        words = view.worst_token_words(worst)
        parts.append(f"W{escaped(words)[1:]}.")
    return parts


def _table(columns: Sequence[Column]) -> str:
    """The widest form of every column; alternatives of one name are shown once."""
    shown = {c.name or f"{i}": c for i, c in reversed(list(enumerate(columns))) if not (c.rank and c.empty)}
    kept = [c for c in columns if any(c is s for s in shown.values())]
    heads = [f"{c.group.split(' ')[0]} {c.head}" if c.group else c.head for c in kept]
    lines = ["| " + " | ".join(heads) + " |", "|" + "|".join(":--" if c.left else "--:" for c in kept) + "|"]
    for i in range(len(kept[0].cells)):
        lines.append("| " + " | ".join(escaped(c.cells[i]) for c in kept) + " |")
    return "\n".join(lines)


def _findings(c: Comparison) -> list[str]:
    lines = []
    for f in view.causes(c):
        words = "ruled out" if f.ruled_out else "; ".join(f.evidence) or f.headline
        share = "" if f.explained is None else f", {escaped(sp.percent(f.explained))}"
        lines.append(f"- {escaped(f.code)} {escaped(f.name)}{share}: {escaped(words)}")
    lines += [
        f"- note {escaped(f.code)} {escaped(f.name)}: {escaped(view.note_words(f))}" for f in view.notes(c)
    ]
    return (
        ["Causes, by how much of the excess goes away when each is undone:\n\n" + "\n".join(lines)]
        if lines
        else []
    )


def _fenced(lines: Sequence[str]) -> str:
    longest = max((len(run) for line in lines for run in re.findall(r"`+", line)), default=0)
    fence = "`" * max(3, longest + 1)
    return "\n".join([f"{fence}sh", *lines, fence])


REPORTER = MarkdownReporter()
