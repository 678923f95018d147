"""The page that `hsparity drafter check` prints."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .plain_page import entry, framed, wrapped

if TYPE_CHECKING:
    from ..drafter.checking import DraftCheck, Fed
    from ..drafter.checks.base import Change, Problem
    from ..report.base import Options

STYLES = {"ok": "green", "problems": "red", "unclear": "yellow"}
INDENT = " " * 10


def render(result: DraftCheck, options: Options) -> str:
    """The result as text at `options.width` columns."""
    from ..report.spelling import clean

    word = result.verdict.upper()
    verdict = f"{word}  {clean(result.headline)}"
    lines = [verdict]
    if not options.quiet:
        lines = [*_what(result, options), "", *wrapped(verdict, options.width, ""), ""]
        lines += [*_feeds(result, options), *_problems(result, options), *_rest(result, options)]
    return framed(word, lines, STYLES[result.verdict], options)


def _what(result: DraftCheck, options: Options) -> list[str]:
    lines = entry(
        "draft", f"{result.draft}  ({result.architecture or 'no class'}, {result.layout} layout)", options
    )
    lines += entry("target", result.model or "not named", options)
    version = "" if result.version_given or not result.version else ", the newest that was read"
    flag = f", {result.algorithm.upper()}" if result.algorithm else ""
    lines += entry("engine", f"{result.fed[0].engine}{version}{flag}", options)
    return lines + [line for doubt in result.doubts for line in entry("", doubt, options)]


def _feeds(result: DraftCheck, options: Options) -> list[str]:
    """What this engine does with the ids, then what every other one would."""
    from ..report.columns import Column, table

    written = "; ".join(f"{key} {_list(ids)}" for key, ids in result.written) or "no ids"
    lines = entry("written", written, options)
    if result.trained is not None:
        lines += entry("trained", f"boundaries {_list(result.trained)}, {result.trained_words}", options)
    rows = [*result.fed, *result.others]
    columns = (
        Column("", tuple("this" if r in result.fed else "" for r in rows), left=True),
        Column("engine", tuple(_engine(r) for r in rows), left=True),
        Column("ids from", tuple(_key(r) for r in rows), left=True, rank=1),
        Column("feeds boundaries", tuple(r.spelled for r in rows), left=True),
        Column("", tuple(_fits(result, r) for r in rows), left=True),
        Column("rule", tuple("" if r.ids is None else r.rule for r in rows), left=True, rank=2),
    )
    lines += ["", *(line.plain for line in table(columns, options.width))]
    if result.runner:
        lines += ["", *entry("runner", result.runner, options)]
    return lines


def _engine(row: Fed) -> str:
    return f"{row.engine} {row.runner.upper()}".strip()


def _key(row: Fed) -> str:
    """Which list, in words: the keys themselves are in the line of what is written."""
    if row.ids is None:
        return "default"
    return "eagle_config" if "." in row.key else "top level"


def _fits(result: DraftCheck, row: Fed) -> str:
    """Whether a row feeds what the head was trained on, where that is known."""
    if result.trained is None or row.boundaries is None:
        return ""
    return "as trained" if sorted(row.boundaries) == sorted(result.trained) else "not as trained"


def _list(ids: tuple[int, ...]) -> str:
    return "[" + ",".join(map(str, ids)) + "]"


def _problems(result: DraftCheck, options: Options) -> list[str]:
    lines: list[str] = []
    for problem in result.problems:
        lines += ["", *_problem(problem, options)]
    return lines


def _problem(problem: Problem, options: Options) -> list[str]:
    from ..report.spelling import clean

    lines = entry(problem.severity, f"{problem.code} {problem.name}: {problem.headline}", options)
    width = max((len(who) for who, _ in problem.sides), default=0)
    for who, what in problem.sides:
        lines += wrapped(f"{INDENT}{who:<{width}}  {clean(what)}", options.width, INDENT + " " * (width + 2))
    for change in problem.changes:
        lines += wrapped(f"{INDENT}change  {clean(_change(change))}", options.width, INDENT + " " * 8)
    if problem.advice:
        lines += wrapped(f"{INDENT}do      {clean(problem.advice)}", options.width, INDENT + " " * 8)
    if problem.rival:
        lines += wrapped(f"{INDENT}unless  {clean(problem.rival)}", options.width, INDENT + " " * 8)
    if problem.settle:
        lines += wrapped(f"{INDENT}settle  {clean(problem.settle)}", options.width, INDENT + " " * 8)
    return lines


def _change(change: Change) -> str:
    if not change.old:
        return f"{change.file}: add {change.key} {change.new}"
    if not change.new:
        return f"{change.file}: remove {change.key} {change.old}"
    return f"{change.file}: {change.key} {change.old} -> {change.new}"


def _rest(result: DraftCheck, options: Options) -> list[str]:
    lines = [""]
    if result.fine:
        lines += entry("fine", ", ".join(result.fine), options)
    by_reason: dict[str, list[str]] = {}
    for name, reason in result.unchecked:
        by_reason.setdefault(reason, []).append(name)
    for number, (reason, names) in enumerate(by_reason.items()):
        lines += entry("unchecked" if not number else "", f"{', '.join(names)}  ({reason})", options)
    return lines
