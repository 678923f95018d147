"""The page that `hsparity audit` prints."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .plain_page import STYLES, as_page, entry, framed, wrapped

if TYPE_CHECKING:
    from ..audit.result import Audit, Group, Integrity, Server
    from ..report.base import Options

# Of the files alone: whose states they are is another question.
FILES = {"parity": "WHOLE", "diverged": "DAMAGED", "inconclusive": "UNCLEAR"}
OWN = " (the dataset's own)"


def render(audit: Audit, options: Options) -> str:
    """The result as text at `options.width` columns."""
    from ..report.spelling import clean
    from ..report.view import with_cost

    word = audit.verdict.value.upper() if audit.server else FILES[audit.verdict.value]
    verdict = f"{word}  {clean(with_cost(audit.headline, audit.cost))}"
    lines = [verdict]
    if not options.quiet:
        lines = wrapped(verdict, options.width, "")
        lines = [*_what(audit, options), "", *lines, "", *_body(audit, options)]
    return framed(word, lines, STYLES[audit.verdict.value], options)


def _what(audit: Audit, options: Options) -> list[str]:
    made = f", by {audit.producer}" if audit.producer else ""
    lines = entry("dataset", f"{audit.dataset}  ({audit.title}{made})", options)
    if audit.server is not None:
        s = audit.server
        lines += entry("server", f"{s.engine} {s.version}{_ids(s)}: {s.path}", options)
        lines += entry("model", f"{s.model}  ({s.architecture}, {s.num_layers} layers)", options)
    return lines


def _ids(server: Server) -> str:
    """What the server was told to feed."""
    if server.ids:
        return f", ids {','.join(map(str, server.ids))}{OWN if server.own else ''}"
    return ", no ids given: its default" if server.slots else ""


def _body(audit: Audit, options: Options) -> list[str]:
    from ..report.spelling import clean

    lines: list[str] = []
    if audit.server is not None:
        cut = (
            f", the first {audit.max_tokens} tokens of each"
            if audit.integrity.lengths[2] > audit.max_tokens
            else ""
        )
        lines += entry(
            "sampled",
            f"{audit.sampled} of {audit.integrity.samples:,} samples{cut}; {audit.tokens:,} tokens compared",
            options,
        )
        floor = next((g.comparison.floor for g in audit.groups if g.comparison), None)
        if floor is not None:
            lines += entry(
                "floor", floor.source if floor.kind != "none" else "none: numerics cannot be judged", options
            )
    lines += _integrity(audit.integrity, options)
    for number, group in enumerate(audit.groups):
        lines += ["", *_group(audit, group, number, options)]
    lines += [""] if audit.numbering or audit.fix or audit.repair else []
    lines += entry("numbering", audit.numbering, options) if audit.numbering else []
    lines += [line for text in audit.fix for line in entry("fix", text, options)]
    if audit.repair is not None:
        lines += entry("repair", _repair(audit), options)
    lines += [line for text in audit.notes if options.verbose for line in entry("note", text, options)]
    return [*lines, "", *(f"next      {clean(command)}" for command in audit.next)]


def _integrity(integrity: Integrity, options: Options) -> list[str]:
    from ..engines.machine import gigabytes

    if not integrity.complete:
        return entry(
            "files",
            f"{integrity.samples:,} samples, {gigabytes(integrity.bytes)}; not all read (--no-scan)",
            options,
        )
    short, middle, long = integrity.lengths
    words = (
        f"{integrity.samples:,} samples, {integrity.tokens:,} tokens ({short} to {long}, median {middle}), "
        f"{gigabytes(integrity.bytes)}; {integrity.slots} slots of {integrity.hidden_size}, {integrity.dtype}"
    )
    lines = entry("files", words, options)
    for trouble in integrity.troubles:
        named = ", ".join(trouble.samples) + (", …" if trouble.count > len(trouble.samples) else "")
        lines += entry(
            "", f"{trouble.count}× {trouble.kind}: {trouble.text}{f' ({named})' if named else ''}", options
        )
    if integrity.change:
        lines += entry("", f"a step: {integrity.change_text}", options)
    if not integrity.troubles and not integrity.change:
        lines += entry("", "none missing, doubled, unreadable or not finite", options)
    return lines


def _group(audit: Audit, group: Group, number: int, options: Options) -> list[str]:
    from ..report.columns import Column, table
    from ..report.spelling import error

    lines: list[str] = []
    if len(audit.groups) > 1:
        where = f"from {group.since} on" if group.since else f"{group.samples[0]} to {group.samples[-1]}"
        lines += wrapped(f"{len(group.samples)} of the sampled samples, {where}:", options.width, "")
    rows = group.readings
    marks: dict[bool | None, str] = {True: "as it should be", False: "not that", None: ""}
    columns = (
        Column("slot", tuple(r.slot for r in rows), left=True),
        Column(
            "said",
            tuple((r.said or "-") + (" (wrong)" if r.refuted else "") for r in rows),
            left=True,
            rank=2,
        ),
        Column("holds, by the data", tuple(r.holds or "no boundary" for r in rows), left=True),
        Column("rel-L2", tuple(error(r.error) for r in rows), rank=3),
        Column("next best", tuple(f"{r.rival} {error(r.rival_error)}" for r in rows), left=True, rank=4),
        Column("ought to be", tuple(r.server or "-" for r in rows), left=True),
        Column("", tuple(marks[r.right] for r in rows), left=True, rank=1),
    )
    lines += [line.plain for line in table(columns, options.width)]
    if group.comparison is not None:
        for finding in group.comparison.findings:
            if finding.severity == "cause" and not finding.ruled_out:
                # Which slot holds which layer is what the table above says.
                words = f"{finding.code} {finding.name}"
                words += "" if finding.code == "HS101" else f": {_named(finding.headline, group)}"
                lines += entry("cause", f"{words}  (hsparity explain {finding.code})", options)
    return lines


def _named(text: str, group: Group) -> str:
    """A finding's words with the file's own names in place of the sites its slots were compared as."""
    assert group.comparison is not None
    for key, label in sorted(group.comparison.cand.native_labels.items(), reverse=True):
        text = text.replace(f"the candidate's {key}", label).replace(key, label)
    for theirs, ours in (("candidate", "dataset"), ("reference", "server"), ("other side", "server")):
        text = text.replace(theirs, ours)
    return text


def _repair(audit: Audit) -> str:
    repair = audit.repair
    assert repair is not None
    if not repair.out:
        return ("possible, " if repair.possible else "not possible: ") + repair.text
    said = repair.verdict.value if repair.verdict else "not compared"
    return (
        f"{repair.text}. Written to {repair.out} (hsparity-repair.json there says which sample was which): "
        f"{repair.written:,} samples, {repair.left_out:,} left out; "
        f"the sampled ones, compared again: {said}"
    )


def as_html(audit: Audit, options: Options) -> str:
    """The page as one HTML file that asks nothing of the network."""
    return as_page(
        f"{audit.verdict.value.upper()}: {audit.dataset}", lambda wide: render(audit, wide), options
    )
