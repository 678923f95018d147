"""A summary to paste into an issue: foreign text cannot mention people, link, or break out of its cell."""

from __future__ import annotations

import re
from collections.abc import Sequence

from ..model import Comparison, SiteDelta
from . import commands, drafts, findings, lacking, reasons, view
from . import spelling as sp
from .base import Options
from .columns import Column
from .delta_columns import delta_columns, slot_columns

_ENTITIES = {"&": "&amp;", "<": "&lt;", ">": "&gt;", "@": "&#64;", "#": "&#35;", "|": "&#124;"}


class MarkdownReporter:
    suffix = ".md"

    def render(self, comparison: Comparison, options: Options) -> str:
        """GitHub-flavoured Markdown, of the requested sites only."""
        c = comparison
        parts = [f"**{c.verdict.value.upper()}** {escaped(view.verdict_line(c))}", *_summary(c)]
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
        parts += [*_findings(c), *_reasons(c)]
        ids = "; ".join(f"{engine}: {ids}" for engine, ids in drafts.lines(c))
        if ids:
            words = drafts.purpose(c)
            parts.append(f"{escaped(words[:1].upper() + words[1:])}: {escaped(ids)}.")
        parts += _fixes(c)
        steps = commands.next_commands(c)
        if steps:
            parts.append(_fenced([f"{command}  # {why}" for command, why in steps]))
        parts += [f"- warning, {escaped(w)}" for w in view.warnings(c)[:6]]
        if c.redacted:
            parts.append(f"R{view.REDACTED[1:]}.")
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
    worst = view.farthest(c)
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


def _summary(c: Comparison) -> list[str]:
    """Every cause in a line of its own, strongest first."""
    said = []
    for finding, line in zip(findings.found(c), findings.summary(c), strict=True):
        title, rest = findings.title(finding), line[len(findings.title(finding)) :]
        said.append(f"**{escaped(title)}**{escaped(rest)}")
    if len(said) < 2:
        return said
    return ["\n".join(f"{i}. {line}" for i, line in enumerate(said, 1))]


def _findings(c: Comparison) -> list[str]:
    lines = []
    for f in findings.found(c):
        share = findings.share(c, f)
        lines.append(f"- {escaped(findings.title(f))}{f', {escaped(share)}' if share else ''}")
        for label, words in findings.facts(c, f):
            lines += [f"  - {label}: {escaped(words[0])}"] if len(words) == 1 else [f"  - {label}:"]
            lines += [f"    - {escaped(word)}" for word in words] if len(words) > 1 else []
    out = ", ".join(findings.title(f) for f in findings.ruled_out(c))
    lines += [f"- ruled out: {escaped(out)}"] if out else []
    lines += [f"- note {escaped(findings.title(f))}: {escaped(findings.note(f))}" for f in view.notes(c)]
    lines += [f"  - {escaped(line)}" for line in findings.left_to_check(c)]
    heading = "Causes, by how much of the excess goes away when each is undone:"
    if not findings.found(c):
        heading = "Notes:"
    return [heading + "\n\n" + "\n".join(lines)] if lines else []


def _reasons(c: Comparison) -> list[str]:
    """Why the numbers differ: the fingerprint, and the hypotheses by rank."""
    found = reasons.hypotheses(c)
    if not found:
        return []
    words = reasons.heading(c)
    lines = [f"- measured: {escaped('; '.join(reasons.fingerprint(c)))}"] if reasons.fingerprint(c) else []
    for i, f in enumerate(found, 1):
        said = ", ".join(w for w in (reasons.word(f), reasons.share(f)) if w)
        lines.append(f"- {i}. **{escaped(findings.title(f))}**, {escaped(said)}: {escaped(f.headline)}")
        for label, facts in reasons.facts(f):
            lines += [f"  - {label}: {escaped(facts[0])}"] if len(facts) == 1 else [f"  - {label}:"]
            lines += [f"    - {escaped(fact)}" for fact in facts] if len(facts) > 1 else []
    lines += [f"- ruled out: {escaped(line)}" for line in reasons.out_lines(c)]
    return [f"{words[:1].upper()}{words[1:]}:\n\n" + "\n".join(lines)]


def _fixes(c: Comparison) -> list[str]:
    """What to change, for every cause that says so."""
    found = findings.found(c)
    out = []
    for f in found:
        lines = findings.fixes(c, f)
        if not lines:
            continue
        head = f"**Fix {escaped(findings.title(f))}.**" if len(found) > 1 else "**Fix.**"
        general = " ".join([head, *(escaped(text) for engine, text in lines if not engine)])
        engines = [f"- {escaped(engine)}: {escaped(text)}" for engine, text in lines if engine]
        out.append("\n\n".join([general, *(["\n".join(engines)] if engines else [])]))
    return out


def _fenced(lines: Sequence[str]) -> str:
    longest = max((len(run) for line in lines for run in re.findall(r"`+", line)), default=0)
    fence = "`" * max(3, longest + 1)
    return "\n".join([f"{fence}sh", *lines, fence])


REPORTER = MarkdownReporter()
