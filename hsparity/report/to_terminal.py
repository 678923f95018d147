"""The report as text: verdict, cause, numbers, picture, next step."""

from __future__ import annotations

from rich.cells import cell_len
from rich.text import Text

from ..model import Comparison, SiteDelta, Verdict
from . import commands, drafts, findings, lacking, reasons, view
from . import spelling as sp
from .bars import bars, marks
from .base import Options
from .columns import table
from .delta_columns import apart_columns, delta_columns, slot_columns
from .page import Page, pad

CAUSES_SHOWN, EVIDENCE_SHOWN, WARNINGS_SHOWN = 4, 3, 4

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


class _Page(Page):
    """The parts of the report; every method adds one."""

    def __init__(self, comparison: Comparison, options: Options) -> None:
        super().__init__(options)
        self.c = comparison

    def full(self) -> None:
        self.sides()
        self.gap()
        self.verdict()
        self.cause_lines()
        self.missing()
        self.gap()
        self.deltas()
        self.excess_bars()
        self.token_bars()
        self.apart()
        self.slots()
        self.causes()
        self.reasons()
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

    def sides(self) -> None:
        pair = (self.c.ref, self.c.cand)
        paths = [sp.clean(s.path) if self.options.unicode else sp.to_ascii(sp.clean(s.path)) for s in pair]
        facts = [view.side_facts(s) for s in pair]
        compared = view.compared_words(self.c)
        wide = [max(cell_len(f[i]) for f in facts) for i in range(len(facts[0]))]
        aligned = ["  ".join(pad(f, w) for f, w in zip(fact, wide, strict=True)) for fact in facts]
        path = max(cell_len(p) for p in paths)
        if 5 + path + 2 + cell_len(aligned[0]) + 2 + len(compared) <= self.width:
            for side, name, fact, tail in zip(pair, paths, aligned, (compared, ""), strict=True):
                self.lines.append(Text(f"{side.role:<4} {pad(name, path)}  {fact}  {tail}"))
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

    def cause_lines(self) -> None:
        """Every cause in a sentence, strongest first."""
        said = findings.summary(self.c)
        if len(said) == 1:
            words, colon, headline = said[0].partition(": ")
            self.prose(words + colon.rstrip())
            if headline:
                self.prose(headline)
            return
        shown = said if self.options.verbose else said[:CAUSES_SHOWN]
        if said:
            self.prose(f"{len(said)} causes at once, strongest first:")
        for i, line in enumerate(shown, 1):
            self.prose(line, f"{i}  ")
        if len(shown) < len(said):
            self.prose(f"{len(said) - len(shown)} more below")

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
        worst = view.farthest(self.c)
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
        if self.c.verdict is Verdict.DIVERGED and not any(h > 0 for h in heights):
            return  # the medians are healthy: few tokens, or few rows, are not
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

    def token_bars(self) -> None:
        """One bar per token, where rows are at fault or few tokens: the median over the requested boundaries."""
        heights, starts = view.token_heights(self.c)
        if len(heights) < 4 or not any(h > 0 for h in heights):
            return
        healthy = all(view.within(d, self.c) for d in self.c.deltas if d.tokens)
        if self.c.verdict is not Verdict.DIVERGED or not (
            healthy or any(f.rows for f in findings.found(self.c))
        ):
            return
        row, per_bar = bars(heights, self.width - 4, self.options.unicode)
        pooled = f", {per_bar} to a bar" if per_bar > 1 else ""
        self.heading(f"excess by token, prompts side by side, log scale{pooled}")
        self.lines.append(Text(f"  {row}"))
        labels = [(at // per_bar, sp.clean(prompt)) for at, prompt in starts]
        self.lines.append(Text(f"  {marks(labels, len(row) + 2)}"))

    def apart(self) -> None:
        rows: tuple[SiteDelta, ...] = view.apart_rows(self.c)
        if self.options.verbose:
            rows = tuple(d for d in view.requested(self.c) if d.tokens)
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
        found, out = findings.found(self.c), findings.ruled_out(self.c)
        if not found and not out:
            return
        self.gap()
        if found:
            self.prose("causes, by how much of the excess goes away when each is undone")
        indent = "  " if found else ""
        lines = None if self.options.verbose else EVIDENCE_SHOWN
        for finding in found:
            self.prose(
                "  ".join(w for w in (findings.title(finding), findings.share(self.c, finding)) if w),
                "  ",
                "    ",
            )
            for label, words in findings.facts(self.c, finding, lines):
                for i, line in enumerate(words):
                    self.prose(line, f"    {label if i == 0 else '':<11}", " " * 15)
        if not self.options.verbose and out:
            self.prose(f"ruled out: {', '.join(findings.title(f) for f in out)}", indent, indent + "  ")
            return
        for finding in out:
            line = f"ruled out: {findings.title(finding)}: {sp.clean(finding.headline)}"
            self.prose(line, indent, indent + "  ")

    def reasons(self) -> None:
        """Why the numbers differ: the fingerprint, then the hypotheses with what speaks for and against each."""
        found, verbose = reasons.hypotheses(self.c), self.options.verbose
        if not found:
            return
        self.heading(reasons.heading(self.c))
        for i, line in enumerate(reasons.fingerprint(self.c, verbose)):
            self.prose(line, f"  {'measured' if i == 0 else '':<11}", " " * 13)
        for finding in found:
            words = (findings.title(finding), reasons.word(finding), reasons.share(finding))
            self.prose(f"{'  '.join(w for w in words if w)}: {sp.clean(finding.headline)}", "  ", "    ")
            for label, lines in reasons.facts(finding, verbose):
                for i, line in enumerate(lines):
                    self.prose(line, f"    {label if i == 0 else '':<9}", " " * 13)
        out = reasons.out_lines(self.c, verbose)
        for i, line in enumerate(out):
            self.prose(line, f"  {'ruled out' if i == 0 else '':<11}", " " * 13)

    def notes(self) -> None:
        found = view.notes(self.c)
        if found:
            self.gap()
        for finding in found:
            self.prose(f"note {findings.title(finding)}: {findings.note(finding)}", "", " " * 5)
        for line in findings.left_to_check(self.c):
            self.prose(line, " " * 5, " " * 7)

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
        """What to change, for every cause that says so, in each engine's terms."""
        told = [(f, findings.fixes(self.c, f)) for f in findings.found(self.c) if f.fix]
        if told:
            self.gap()
        for finding, lines in told:
            head = f"{findings.title(finding)}: " if len(findings.found(self.c)) > 1 else ""
            if head and lines[0][0]:
                self.prose(head.rstrip(), "fix  ")
                head = ""
                first = "     "
            else:
                first = "fix  "
            for i, (engine, text) in enumerate(lines):
                words = f"{engine}: {text}" if engine else text
                self.prose(f"{head}{words}" if i == 0 else words, first if i == 0 else "     ")

    def next_steps(self) -> None:
        steps = commands.next_commands(self.c)
        if not steps:
            return
        if not any(f.fix for f in findings.found(self.c)):
            self.gap()
        widest = max(cell_len(c) for c, _ in steps)
        aligned = widest + 8 + max(len(w) for _, w in steps) <= self.width
        said = ""
        for i, (command, why) in enumerate(steps):
            lead = "next " if i == 0 else "     "
            if aligned:
                self.lines.append(Text(f"{lead}{pad(command, widest)}   {why}"))
                continue
            if why != said:
                self.prose(f"{why}:", lead)
            said = why
            self.command(command, " " * 7)

    def warnings(self) -> None:
        found = view.warnings(self.c)
        if not self.options.verbose:
            said = {line for f in findings.found(self.c) for line in f.evidence}
            found = tuple(w for w in found if w.removeprefix("tokens: ") not in said)
        if found:
            self.gap()
        shown = found if self.options.verbose else found[:WARNINGS_SHOWN]
        for line in shown:
            self.prose(line, "warning ", " " * 8)
        if len(shown) < len(found):
            self.prose(f"{len(found) - len(shown)} more warnings: -v")
        if self.c.redacted:
            self.gap()
            self.prose(view.REDACTED)


def _worst_words(delta: view.SiteDelta) -> str:
    ratios = ", ".join(f"{r.of} {sp.ratio(r.median)}" for r in view.main_ratios(delta))
    return f"{view.place_words(delta.ref)}: rel-L2 {sp.error(view.rel_l2(delta).p50)}" + (
        f"; × floor: {ratios}" if ratios else ""
    )


REPORTER = TerminalReporter()
