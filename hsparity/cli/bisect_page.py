"""The page that `hsparity bisect` prints."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from .plain_page import entry, framed, wrapped

if TYPE_CHECKING:
    from ..experiments.result import Bisect, Blame, Experiment, SideFacts, Span
    from ..report.base import Options

STYLES = {"nothing to explain": "green", "within noise": "green", "settled": "red", "inconclusive": "yellow"}
WHY = {"alike": "differs", "toggle": "try", "split": "to part it", "rule": "to rule out"}


def render(found: Bisect, options: Options) -> str:
    """The result as text at `options.width` columns."""
    from ..report.spelling import clean

    planned = any(e.state.value == "planned" for e in found.experiments)
    word = "PLAN" if planned else found.outcome.value.upper()
    verdict = f"{word}  {clean(found.headline)}"
    lines = [verdict]
    if not options.quiet:
        lines = [*_what(found, options), "", *wrapped(verdict, options.width, ""), ""]
        lines += _plan(found, options) if planned else _body(found, options)
    return framed(word, lines, STYLES[found.outcome.value], options).rstrip()


def _what(found: Bisect, options: Options) -> list[str]:
    from ..report.spelling import error, ratio

    lines = entry("ref", _side(found.ref), options) + entry("cand", _side(found.cand), options)
    lines += entry("floor", found.floor, options)
    size = (
        f"{error(found.distance)} at boundary {found.boundaries[-1]}"
        if found.boundaries
        else error(found.distance)
    )
    size += f", {found.differing:,} of {found.tokens:,} tokens differ"
    if found.ratio is not None:
        size += f"; at most {ratio(found.ratio)}× the floor"
    return lines + entry("apart", size, options)


def _side(side: SideFacts) -> str:
    return f"{side.path}  ({side.engine} {side.version}, {side.dtype})"


def _body(found: Bisect, options: Options) -> list[str]:
    lines: list[str] = []
    for number, cause in enumerate(found.causes, 1):
        lines += [*_cause(number, cause, options), ""]
    if found.experiments:
        lines += [*_experiments(found, options), ""]
    for note in found.notes:
        lines += entry("note", note, options)
    if options.verbose:
        lines += _blocked(found, options)
    elif found.blocked:
        knobs = ", ".join(dict.fromkeys(each.knob for each in found.blocked))
        lines += entry("not here", f"{knobs} (-v says why)", options)
    return [*lines, *(f"next      {command}" for command in found.next)]


def _cause(number: int, cause: Blame, options: Options) -> list[str]:
    first = (
        f"{number}. {cause.code} {cause.name}, {cause.confidence}: {percent(cause.share)} of the difference"
    )
    lines = wrapped(first, options.width, "   ")
    texts = [cause.headline, *cause.evidence, *(f"against: {t}" for t in cause.against)]
    texts += [f"rival: {cause.rival}"] if cause.rival else []
    for text in texts:
        lines += wrapped(f"   {text}", options.width, "     ")
    return lines


def percent(span: Span | None) -> str:
    """`97 % (95 to 99)`; the interval left out where it says nothing."""
    if span is None:
        return "-"
    # Noise may take a share a little past the whole; nobody is helped by 101 %.
    value, low, high = (round(100 * min(v, 1.0)) for v in (span.value, span.low, span.high))
    return f"{value} %" if low == high else f"{value} % ({low} to {high})"


def _experiments(found: Bisect, options: Options) -> list[str]:
    from ..report.columns import Column, table
    from ..report.spelling import error

    rows = found.experiments
    unit = "moved, × floor" if found.ratio is not None else "moved"
    columns = (
        Column("", tuple(str(i) for i in range(1, len(rows) + 1))),
        Column("turned", _turned(rows), left=True),
        Column("gone", tuple(percent(e.share) if _measured(e) else "" for e in rows), left=True, rank=1),
        Column(
            "of the tail", tuple(percent(e.tail) if _measured(e) else "" for e in rows), left=True, rank=3
        ),
        Column(unit, tuple("" if e.moved is None else f"{e.moved:.2g}" for e in rows), rank=2),
        Column("left", tuple(error(e.left) if e.left is not None else "" for e in rows), rank=4),
        Column("", tuple("" if _measured(e) else e.state.value for e in rows), left=True),
    )
    lines = [line.plain for line in table(columns, options.width)]
    for number, e in enumerate(rows, 1):
        if not _measured(e) or e.note:
            said = "; ".join(filter(None, (e.proof, e.note)))
            lines += wrapped(f"{number}: {said}", options.width, "   ") if said else []
    return lines


def _measured(experiment: Experiment) -> bool:
    return experiment.state.value == "measured"


def _plan(found: Bisect, options: Options) -> list[str]:
    from ..engines.machine import gigabytes
    from ..report.columns import Column, table

    rows = [e for e in found.experiments if e.state.value == "planned"]
    columns = (
        Column("", tuple(str(i) for i in range(1, len(rows) + 1))),
        Column("turn", _turned(rows), left=True),
        Column("why", tuple(WHY[e.purpose] for e in rows), left=True, rank=2),
        Column("seconds", tuple("cached" if e.cached else _seconds(e) for e in rows), rank=1),
        Column("disk", tuple("" if e.cached else gigabytes(e.bytes) for e in rows), rank=3),
    )
    lines = [line.plain for line in table(columns, options.width)]
    new = [e for e in rows if not e.cached]
    known = [e.seconds for e in new if e.seconds is not None]
    some = "" if len(known) == len(new) else ", and some that were not timed"
    total = f"about {sum(known):.0f} s{some}, {gigabytes(sum(e.bytes for e in new))}; stops when a cause is settled"
    lines += ["", *entry("total", total, options)]
    for e in found.experiments:
        if e.state.value != "planned":
            lines += entry(e.state.value, f"{' + '.join(e.turned)}: {e.proof}", options)
    lines += _blocked(found, options)
    return [*lines, "", *(f"next      {command}" for command in found.next)]


def _blocked(found: Bisect, options: Options) -> list[str]:
    """What cannot be turned here, a line for each reason and side."""
    reasons: dict[tuple[str, str], list[str]] = {}
    for each in found.blocked:
        reasons.setdefault((each.role, each.why), []).append(f"{each.knob} {each.value}")
    lines: list[str] = []
    for (role, why), names in reasons.items():
        lines += entry("not here", f"{role} {', '.join(names)}: {why}", options)
    return lines


def _turned(rows: Sequence[Experiment]) -> tuple[str, ...]:
    """What each row turned; several knobs by the numbers of the rows that turn one."""
    single = {e.turned[0]: str(n) for n, e in enumerate(rows, 1) if len(e.turned) == 1}
    said = []
    for e in rows:
        numbers = [single.get(t, t) for t in e.turned]
        said.append(e.turned[0] if len(numbers) == 1 else f"{' and '.join(numbers)} together")
    return tuple(said)


def _seconds(experiment: Experiment) -> str:
    return "?" if experiment.seconds is None else f"{experiment.seconds:.0f}"
