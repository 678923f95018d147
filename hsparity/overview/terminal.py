"""An overview as text: how many stand how, then every result, worst first."""

from __future__ import annotations

from rich.text import Text

from hsparity.model import Verdict
from hsparity.report import spelling as sp
from hsparity.report.base import Options
from hsparity.report.page import Page

from .axes import ABSENT, differing, model_names, settings_words, shared
from .result import Entry, Overview
from .words import SAID, counted, excess, skipped_words, title

SHOWN, SKIPPED_SHOWN = 20, 4
STYLES = {Verdict.PARITY: "green", Verdict.DIVERGED: "red", Verdict.INCONCLUSIVE: "yellow"}


def render(overview: Overview, options: Options) -> str:
    """The page at `options.width` columns, without a final newline; with `quiet` the first line alone."""
    page = Page(options)
    page.prose(counted(overview))
    if options.quiet:
        return page.text()
    entries = overview.entries
    if len(entries) > 1:
        same = shared(entries)
        said = [*same.axes, *(f for f in same.facts if f[0] in SAID or options.verbose)]
        page.labelled("all with", ["; ".join(f"{name} {value}" for name, value in said)] if said else [])
    names, facts = model_names(entries), differing(entries)
    shown = entries if options.verbose else entries[:SHOWN]
    for entry in shown:
        page.gap()
        few, rest = facts[entry.file]
        told = settings_words([*few, *rest] if options.verbose else few)
        more = len([f for f in rest if f[1] != ABSENT])
        hidden = f"{', ' if told else ''}{more} more: -v" if more and not options.verbose else ""
        _entry(page, entry, names[entry.file], f"{told}{hidden}")
    if len(shown) < len(entries):
        page.gap()
        page.prose(f"{sp.count(len(entries) - len(shown), 'more result')}: -v")
    for draft in overview.drafts:
        page.gap()
        word = Text(draft.verdict.value.upper(), STYLES.get(draft.verdict, ""))
        page.prose(
            Text.assemble(
                word,
                f"  accepted {draft.accepted}  draft {draft.draft}; {draft.model}: {draft.ref} → {draft.cand}",
            )
        )
        page.prose(sp.clean(draft.file), " " * 2)
    for i, words in enumerate(skipped_words(overview)):
        if not words:
            continue
        page.gap()
        found = [k for k in overview.skipped if bool(k.kind) is (i == 0)]
        # Other saved results are known by their kind.
        listed = found if options.verbose else () if i == 0 else found[:SKIPPED_SHOWN]
        page.prose(f"{words}{':' if listed else ': named with -v'}")
        for skipped in listed:
            page.prose(f"{sp.clean(skipped.file)}: {skipped.kind or sp.clean(skipped.why)}", "  ", "    ")
        if 0 < len(listed) < len(found):
            page.prose(f"{len(found) - len(listed)} more: -v", "  ")
    return page.text()


def _entry(page: Page, entry: Entry, model: str, facts: str) -> None:
    """Two lines or more: how it stands, what it is of, where it lies."""
    stands = [excess(entry), entry.layer, title(entry)]
    word = Text(entry.verdict.value.upper(), STYLES.get(entry.verdict, ""))
    page.prose(Text.assemble(word, "  ", "  ".join(s for s in stands if s not in ("", "-"))))
    if entry.why:
        page.prose(f"diverged because {entry.why}", "  ", "    ")
    accepted = f"; accepted {entry.accepted}" if entry.accepted else ""
    page.prose(f"{model}: {entry.ref} → {entry.cand}{f'; {facts}' if facts else ''}{accepted}", "  ", "    ")
    page.prose(sp.clean(entry.file), "  ", "    ")
