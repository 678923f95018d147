"""A diff as text: what became of the verdict, where it starts, numbers, causes, candidates, next step."""

from __future__ import annotations

from rich.text import Text

from hsparity.report import spelling as sp
from hsparity.report import view
from hsparity.report.base import Options
from hsparity.report.columns import Column, table
from hsparity.report.page import Page

from .result import Change, Diff, FindingChange, SiteChange, Standing
from .tables import WORDS, cost_line, few, finding_line, grouped, ratio_head, setting_lines

STYLES = {Change.WORSE: "red", Change.BETTER: "green", Change.SAME: "green", Change.UNKNOWN: "yellow"}
SETTINGS_SHOWN = 10


def render(diff: Diff, options: Options) -> str:
    """The page at `options.width` columns, without a final newline; with `quiet` the first line alone."""
    page = _Page(diff, options)
    if options.quiet:
        page.lines.append(page.verdict_line())
    else:
        page.full()
    return page.text()


class _Page(Page):
    def __init__(self, diff: Diff, options: Options) -> None:
        super().__init__(options)
        self.diff = diff

    def verdict_line(self) -> Text:
        word = WORDS[self.diff.change].upper()
        return Text.assemble((word, STYLES[self.diff.change]), f"  {self.diff.headline}")

    def full(self) -> None:
        d = self.diff
        for label, one in (("then", d.then), ("now", d.now)):
            self.labelled(label, [one.file, f"{one.sides}; {one.compared}"], 6)
        self.gap()
        self.prose(self.verdict_line())
        if d.verdict_reason:
            self.labelled("verdict", [d.verdict_reason])
        if d.start:
            self.labelled("starts", [d.start])
        for line in d.warnings:
            self.labelled("warning", [line])
        self.sites()
        self.findings()
        if d.cost is not None:
            self.gap()
            self.labelled("draft", [cost_line(d.cost)])
        self.settings()
        for i, (why, commands) in enumerate(grouped(d)):
            self.gap() if i == 0 else None
            self.prose(f"{why}:", "next " if i == 0 else "     ")
            for command in commands:
                self.command(command, " " * 7)

    def sites(self) -> None:
        shown, hidden = few(self.diff, self.options.verbose)
        if not shown:
            return
        self.gap()
        self.lines += table(site_columns(shown), self.width)
        if hidden:
            self.prose(f"{hidden} more requested sites: -v")
        open_ = {s.reason: None for s in shown if s.change is Change.UNKNOWN}
        for reason in list(open_)[:4]:
            self.labelled("", [f"not comparable: {reason}"], 0)

    def findings(self) -> None:
        for i, finding in enumerate(self.diff.findings):
            self.gap() if i == 0 else None
            self.prose(*_finding(finding))

    def settings(self) -> None:
        self.gap()
        self.prose(self.diff.explained, "changed  ")
        lines = setting_lines(self.diff)
        shown = lines if self.options.verbose else lines[:SETTINGS_SHOWN]
        for line in shown:
            self.prose(line, " " * 9, " " * 11)
        if len(shown) < len(lines):
            self.prose(f"{len(lines) - len(shown)} more: -v", " " * 9)


def _finding(finding: FindingChange) -> tuple[str, str, str]:
    return finding_line(finding), f"{finding.status:<8}", " " * 8


def site_columns(sites: tuple[SiteChange, ...]) -> list[Column]:
    """Layer, boundary, rel-L2 and ratio then and now, and the word; what matters least is dropped first."""

    def pair(cell: object, head: str, group: str, rank: int, name: str = "") -> list[Column]:
        assert callable(cell)
        return [
            Column(
                word, tuple(cell(getattr(s, word)) for s in sites), rank, group=group, name=f"{name}{word}"
            )
            for word in ("then", "now")
        ]

    places = [view.place(s.ref) for s in sites]
    columns = [Column("layer", tuple(p[0] for p in places)), Column("boundary", tuple(p[1] for p in places))]
    if any(s.cand != s.ref for s in sites):
        columns.append(Column("cand", tuple(_cand(s) for s in sites), 1))
    columns += pair(error_cell, "rel-L2", "rel-L2", 0, "error ")
    if any(s.of for s in sites):
        head = ratio_head(sites)
        columns += pair(ratio_cell, head, head, 4, "ratio ")
        columns += pair(median_cell, head, head, 0, "ratio ")
        if "of" in head:
            columns.append(Column("of", tuple(s.of or "-" for s in sites), 0))
    columns.append(Column("verdict", tuple(verdict_words(s) for s in sites), 3, left=True))
    words = tuple(s.change.value for s in sites)
    columns.append(Column("change", words, left=True, styles=tuple(STYLES[s.change] for s in sites)))
    return columns


def _cand(site: SiteChange) -> str:
    layer, boundary = view.place(site.cand)
    return boundary if boundary != "-" else layer


def error_cell(standing: Standing | None) -> str:
    return "-" if standing is None else sp.error(standing.rel_l2)


def median_cell(standing: Standing | None) -> str:
    return "-" if standing is None or standing.ratio is None else sp.ratio(standing.ratio.value)


def ratio_cell(standing: Standing | None) -> str:
    """0.95 (0.89–1.0)."""
    if standing is None or standing.ratio is None:
        return "-"
    span = standing.ratio
    if not span.low < span.high:
        return sp.ratio(span.value)
    return f"{sp.ratio(span.value)} ({sp.ratio(span.low)}–{sp.ratio(span.high)})"


def verdict_words(site: SiteChange) -> str:
    """parity → diverged, or one word where it stayed."""
    words = [one.verdict.value if one is not None else "-" for one in (site.then, site.now)]
    return words[0] if words[0] == words[1] else " → ".join(words)
