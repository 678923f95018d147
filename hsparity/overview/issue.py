"""An overview as Markdown: a table, worst first, each result a link relative to where the file lies."""

from __future__ import annotations

from pathlib import Path

from hsparity.report import spelling as sp
from hsparity.report.to_markdown import escaped

from .axes import differing, model_names, settings_words, shared
from .result import Overview
from .words import SAID, counted, excess, link, skipped_words, title


def render(overview: Overview, path: str) -> str:
    """GitHub-flavoured Markdown, to be written to `path`."""
    entries, folder = overview.entries, Path(overview.folder)
    parts = [f"**{escaped(counted(overview))}**"]
    same = shared(entries) if len(entries) > 1 else None
    if same is not None:
        said = [*same.axes, *(f for f in same.facts if f[0] in SAID)]
        parts += [f"All with {escaped('; '.join(f'{n} {v}' for n, v in said))}."] if said else []
    names, facts = model_names(entries), differing(entries)
    lines = [
        "| verdict | excess | model | ref | cand | settings that differ | worst layer | cause | accepted |",
        "|:--|--:|:--|:--|:--|:--|:--|:--|:--|",
    ]
    for e in entries:
        word = f"[{e.verdict.value}]({link(folder, e.report, path)})"
        cells = [
            excess(e),
            names[e.file],
            e.ref,
            e.cand,
            settings_words(facts[e.file][0]),
            e.layer,
            "; ".join(p for p in (title(e), e.why) if p),
            e.accepted,
        ]
        lines.append(f"| {word} | {' | '.join(escaped(c) for c in cells)} |")
    parts += ["\n".join(lines)] if entries else []
    parts += [
        f"- draft {escaped(d.draft)} of {escaped(d.model)}, "
        f"[{d.verdict.value}]({link(folder, d.report, path)}): {escaped(d.ref)} → "
        f"{escaped(d.cand)}, accepted {escaped(d.accepted)}"
        for d in overview.drafts
    ]
    other, none = skipped_words(overview)
    parts += [f"{escaped(other)}."] if other else []
    if none:
        listed = "\n".join(f"- {escaped(s.file)}: {escaped(s.why)}" for s in overview.skipped if not s.kind)
        parts.append(f"{escaped(none)}:\n\n{listed}")
    return "\n\n".join([*parts, f"Made by hsparity {sp.clean(overview.hsparity)}."]) + "\n"
