"""The report as text: verdict, cause, numbers, picture, next step."""

from __future__ import annotations

import io
from collections.abc import Iterable

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from ..model import Comparison, Verdict
from . import drafts, lacking, view
from . import spelling as sp
from .bars import bars, marks
from .base import Options
from .columns import table
from .delta_columns import apart_columns, delta_columns, slot_columns

STYLES = {
    Verdict.PARITY: "green",
    Verdict.DIVERGED: "red",
    Verdict.INCONCLUSIVE: "yellow",
    Verdict.MISSING: "yellow",
}


class TerminalReporter:
    suffix = ".txt"

    def render(self, comparison: Comparison, options: Options) -> str:
        """The report at `options.width` columns, without a final newline."""
        page = _Page(comparison, options)
        if options.quiet:
            page.verdict()
        elif comparison.verdict is Verdict.PARITY:
            page.parity()
        else:
            page.full()
        return page.text()


class _Page:
    """Lines under construction; every method adds one part."""

    def __init__(self, comparison: Comparison, options: Options) -> None:
        self.c, self.options = comparison, options
        self.width = max(options.width, 20)
        self.lines: list[Text] = []

    def full(self) -> None:
        self.sides()
        self.gap()
        self.verdict()
        self.cause_line()
        self.missing()
        self.gap()
        self.deltas()
        self.excess_bars()
        self.apart()
        self.slots()
        self.causes()
        self.notes()
        self.draft()
        self.fix()
        self.next_steps()
        self.warnings()

    def parity(self) -> None:
        self.sides()
        self.gap()
        self.verdict()
        self.labelled("compared", [f"{view.requested_words(self.c)}; {view.compared_words(self.c)}"])
        self.labelled("floor", [view.floor_line(self.c)])
        worst = view.worst_requested(self.c)
        if worst is not None:
            self.labelled("worst", [_worst_words(worst)])
        if self.options.verbose:
            self.gap()
            self.deltas()
            self.excess_bars()
            self.apart()
            self.causes()
        ids = drafts.lines(self.c)
        if ids:
            self.labelled("draft ids", [f"write {'; '.join(f'{ids} in {engine}' for engine, ids in ids)}"])
        self.slots()
        self.notes()
        self.warnings()

    def text(self) -> str:
        """Everything as one string; the words say the same without colour."""
        out = io.StringIO()
        console = Console(
            file=out,
            width=self.width,
            color_system="standard" if self.options.color else None,
            force_terminal=self.options.color,
            highlight=False,
            legacy_windows=False,
            _environ={},
        )
        for line in self.lines:
            line.rstrip()
            shown = line if self.options.unicode else _ascii(line)
            console.print(shown, soft_wrap=True)
        return out.getvalue().rstrip("\n")

    def gap(self) -> None:
        if self.lines and self.lines[-1].plain:
            self.lines.append(Text())

    def heading(self, words: str) -> None:
        self.gap()
        self.prose(words)

    def prose(self, words: str | Text, first: str = "", rest: str | None = None) -> None:
        """Words wrapped at the width, `first` before the first line and `rest` before the others."""
        rest = " " * cell_len(first) if rest is None else rest
        text = Text(words) if isinstance(words, str) else words
        if not self.options.unicode:
            text, first, rest = (
                _ascii(text),
                sp.to_ascii(first),
                sp.to_ascii(rest),
            )  # escapes take room: before wrapping
        room = max(self.width - max(cell_len(first), cell_len(rest)), 10)
        # A token of a model may be wider than the terminal; it folds, it is not cut.
        wrapped = text.wrap(Console(width=room, file=io.StringIO(), _environ={}), room, overflow="fold")
        for i, line in enumerate(wrapped):
            line.rstrip()
            self.lines.append(Text(rest if i else first) + line)

    def labelled(self, label: str, lines: Iterable[str], column: int = 10) -> None:
        for i, line in enumerate(lines):
            self.prose(line, (label if i == 0 else "").ljust(column))

    def command(self, command: str, indent: str) -> None:
        """A command over several lines, each but the last ending in a backslash, so that it pastes."""
        line = indent
        for word in (command if self.options.unicode else sp.to_ascii(command)).split(" "):
            joined = f"{line} {word}" if line.strip() else f"{indent}{word}"
            if cell_len(joined) > self.width - 2 and line.strip():
                self.lines.append(Text(f"{line} \\"))
                joined = f"{indent}  {word}"
            line = joined
        self.lines.append(Text(line))

    def sides(self) -> None:
        pair = (self.c.ref, self.c.cand)
        paths = [sp.clean(s.path) if self.options.unicode else sp.to_ascii(sp.clean(s.path)) for s in pair]
        facts = [view.side_facts(s) for s in pair]
        compared = view.compared_words(self.c)
        wide = [max(cell_len(f[i]) for f in facts) for i in range(len(facts[0]))]
        aligned = ["  ".join(_pad(f, w) for f, w in zip(fact, wide, strict=True)) for fact in facts]
        path = max(cell_len(p) for p in paths)
        if 5 + path + 2 + cell_len(aligned[0]) + 2 + len(compared) <= self.width:
            for side, name, fact, tail in zip(pair, paths, aligned, (compared, ""), strict=True):
                self.lines.append(Text(f"{side.role:<4} {_pad(name, path)}  {fact}  {tail}"))
            return
        for side, name, known in zip(pair, paths, facts, strict=True):
            self.prose(name, f"{side.role:<5}")
            self.prose("  ".join(f for f in known if f), " " * 5)
        self.prose(compared, " " * 5)

    def verdict(self) -> None:
        word = self.c.verdict.value.upper()
        text = Text.assemble((word, STYLES[self.c.verdict]), f"  {sp.clean(view.verdict_line(self.c))}")
        if self.options.quiet:
            self.lines.append(text)
        else:
            self.prose(text)

    def cause_line(self) -> None:
        lead = view.leading(self.c)
        if lead is None:
            return
        explains = (
            f" explains {sp.percent(lead.explained)} of the excess" if lead.explained is not None else ""
        )
        repeats = view.repeats_headline(self.c, lead)
        self.prose(f"{sp.clean(lead.code)} {sp.clean(lead.name)}{explains}{'.' if repeats else ':'}")
        if not repeats:
            self.prose(sp.clean(lead.headline))

    def missing(self) -> None:
        no_floor, reasons = lacking.floor_words(self.c), lacking.missing_reasons(self.c)
        if no_floor:
            self.labelled("floor", [no_floor])
        if reasons or (self.c.verdict is Verdict.INCONCLUSIVE and not no_floor):
            self.labelled("missing", reasons[:6] or ["nothing was compared"])

    def deltas(self) -> None:
        shown = view.requested(self.c) or self.c.deltas
        rows = self.c.deltas if self.options.verbose else view.few(shown)
        if not rows:
            return
        self.lines += table(delta_columns(self.c, rows, STYLES), self.width)
        if len(rows) < len(shown):
            self.prose(f"{len(shown) - len(rows)} more rows: -v")
        if not lacking.floor_words(self.c):
            self.prose(f"floor: {view.floor_line(self.c)}")
        worst = view.worst_requested(self.c)
        if worst is not None and worst.worst is not None:
            self.prose(view.worst_token_words(worst))
        bad = [d for d in rows if any(d.nonfinite)]
        if bad:
            ref, cand = sum(d.nonfinite[0] for d in bad), sum(d.nonfinite[1] for d in bad)
            self.prose(f"not finite (NaN or Inf), left out above: {ref:,} elements in ref, {cand:,} in cand")

    def excess_bars(self) -> None:
        """One bar per boundary that was read on both sides."""
        drawn = [(view.boundary_of(d.ref), d) for d in self.c.deltas]
        known = [(b, d) for b, d in drawn if b is not None and d.tokens]
        if len(known) < 4:
            return
        against = "the floor" if self.c.floor.kind != "none" else "the storage half-ulp (no floor)"
        heights = [0.0 if view.within(d, self.c) else view.excess(d, self.c) for _, d in known]
        row, per_bar = bars(heights, self.width - 4, self.options.unicode)
        pooled = f", {per_bar} to a bar" if per_bar > 1 else ""
        self.heading(f"excess over {against}, by boundary, log scale{pooled}")
        cell = 1 + max(len(str(b)) for b, _ in known)
        if len(known) <= view.FEW and len(known) * cell <= self.width - 2:  # room for every label
            self.lines.append(Text("  " + "".join(bar.ljust(cell) for bar in row)))
            self.lines.append(Text("  " + "".join(str(b).ljust(cell) for b, _ in known)))
            return
        self.lines.append(Text(f"  {row}"))
        asked = [(i // per_bar, str(b)) for i, (b, d) in enumerate(known) if d.requested]
        ends = [(0, str(known[0][0])), (len(row) - 1, str(known[-1][0]))]
        labels = asked if 0 < len(asked) <= view.FEW else ends
        self.lines.append(Text(f"  {marks(labels, len(row) + 2)}"))

    def apart(self) -> None:
        rows = [d for d in view.requested(self.c) if d.tokens and (self.options.verbose or view.apart(d))]
        if not rows:
            return
        self.heading("massive channels and sink tokens, apart (median rel-L2)")
        shown = rows if self.options.verbose else rows[: view.FEW]
        self.lines += table(apart_columns(shown), self.width)

    def slots(self) -> None:
        slots = view.native_slots(self.c)
        if not slots:
            return
        self.heading("where each native slot lies among the boundaries, by the data")
        shown = slots if self.options.verbose else slots[: view.FEW]
        self.lines += table(slot_columns(shown), self.width)
        if len(shown) < len(slots):
            self.prose(f"{len(slots) - len(shown)} more rows: -v")

    def causes(self) -> None:
        found = view.causes(self.c)
        if not found:
            return
        self.heading("causes, by how much of the excess goes away when each is undone")
        name = max(len(sp.clean(f.name)) for f in found)
        for finding in found:
            head = (
                f"  {sp.clean(finding.code)} {_pad(sp.clean(finding.name), name)} "
                f"{sp.percent(finding.explained):>7}  "
            )
            words = (
                ["ruled out"]
                if finding.ruled_out
                else [sp.clean(e) for e in finding.evidence or (finding.headline,)]
            )
            if finding.rival and not finding.ruled_out:
                words.append(f"next best: {sp.clean(finding.rival)}")
            indent = len(head)
            if self.width - indent < 24:
                self.prose(head.rstrip())
                head, indent = " " * 6, 6
            for i, line in enumerate(words):
                self.prose(line, head if i == 0 else " " * indent)

    def notes(self) -> None:
        found = view.notes(self.c)
        if found:
            self.gap()
        for finding in found:
            self.prose(
                view.note_words(finding), f"note {sp.clean(finding.code)} {sp.clean(finding.name)}: ", " " * 5
            )

    def draft(self) -> None:
        pairs = drafts.lines(self.c)
        if not pairs:
            return
        self.heading(drafts.purpose(self.c))
        name = max(len(engine) for engine, _ in pairs)
        for engine, ids in pairs:
            if self.width - name - 4 >= 18:
                self.prose(ids, f"  {engine:<{name}}  ")
            else:
                self.prose(f"{engine}: {ids}", "  ", "    ")

    def fix(self) -> None:
        lead = view.leading(self.c)
        if lead is None or not lead.fix:
            return
        self.gap()
        for i, (engine, text) in enumerate(sorted(lead.fix.items(), key=lambda kv: (kv[0] != "any", kv[0]))):
            words = sp.clean(text) if engine == "any" else f"{sp.clean(engine)}: {sp.clean(text)}"
            self.prose(words, "fix  " if i == 0 else "     ")

    def next_steps(self) -> None:
        steps = view.next_commands(self.c)
        if not steps:
            return
        if not (self.lines and self.lines[-1].plain.startswith(("fix ", "     "))):
            self.gap()
        widest = max(cell_len(c) for c, _ in steps)
        aligned = widest + 8 + max(len(w) for _, w in steps) <= self.width
        said = ""
        for i, (command, why) in enumerate(steps):
            lead = "next " if i == 0 else "     "
            if aligned:
                self.lines.append(Text(f"{lead}{_pad(command, widest)}   {why}"))
                continue
            if why != said:
                self.prose(f"{why}:", lead)
            said = why
            self.command(command, " " * 7)

    def warnings(self) -> None:
        found = view.warnings(self.c)
        if found:
            self.gap()
        shown = found if self.options.verbose else found[: view.FEW]
        for line in shown:
            self.prose(line, "warning ", " " * 8)
        if len(shown) < len(found):
            self.prose(f"{len(found) - len(shown)} more warnings: -v")


def _worst_words(delta: view.SiteDelta) -> str:
    ratios = ", ".join(f"{r.of} {sp.ratio(r.median)}" for r in view.main_ratios(delta))
    return f"{view.place_words(delta.ref)}: rel-L2 {sp.error(view.rel_l2(delta).p50)}" + (
        f"; × floor: {ratios}" if ratios else ""
    )


def _pad(text: str, width: int) -> str:
    return text + " " * (width - cell_len(text))


def _ascii(line: Text) -> Text:
    """The line in ASCII, its styles kept."""
    out = Text()
    for part in line.divide(sorted({o for s in line.spans for o in (s.start, s.end)})):
        out.append(sp.to_ascii(part.plain), style=part.spans[0].style if part.spans else "")
    return out


REPORTER = TerminalReporter()
