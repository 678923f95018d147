"""What varies over many results: it makes the rows and columns; what is the same everywhere is said once."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from .result import Entry

AXES = ("model", "reference", "candidate", "settings")
MOST_COLUMNS = 8
ABSENT = "-"
SIDES = ("ref ", "cand ")  # how the settings of a side begin; other facts are about the question


@dataclass(frozen=True, slots=True)
class Matrix:
    """Cells by row and column; `heads` names the axes whose values a row lists."""

    heads: tuple[str, ...]
    column_axis: str  # "" where one column holds everything
    columns: tuple[str, ...]
    rows: tuple[tuple[tuple[str, ...], tuple[tuple[Entry, ...], ...]], ...]


@dataclass(frozen=True, slots=True)
class Shared:
    """What is the same over all results."""

    axes: tuple[tuple[str, str], ...]  # (axis, its one value)
    facts: tuple[tuple[str, str], ...]


def model_names(entries: Sequence[Entry]) -> dict[str, str]:
    """By file: the model's name, with its weights' hash where one name stands for several."""
    hashes: dict[str, set[str]] = {}
    for e in entries:
        hashes.setdefault(e.model, set()).add(e.weights)
    several = {name for name, known in hashes.items() if len(known - {""}) > 1}
    return {
        e.file: f"{e.model} ({e.weights or 'not hashed'})" if e.model in several else e.model for e in entries
    }


def varying(entries: Sequence[Entry]) -> tuple[str, ...]:
    """Settings of the sides in which results differ although model and both releases are the same."""
    names = model_names(entries)
    groups: dict[tuple[str, str, str], list[Entry]] = {}
    for e in entries:
        groups.setdefault((names[e.file], e.ref, e.cand), []).append(e)
    keys = dict.fromkeys(key for e in entries for key in e.facts)
    sides = [k for k in keys if k.startswith(SIDES)]
    return tuple(k for k in sides if any(_differs(group, k) for group in groups.values()))


def differing(entries: Sequence[Entry]) -> dict[str, tuple[tuple[str, str], ...]]:
    """By file: every fact in which results with the same two engines differ, whatever their releases, and its value."""
    groups: dict[tuple[str, str], list[Entry]] = {}
    for e in entries:
        groups.setdefault((e.ref.split(" ")[0], e.cand.split(" ")[0]), []).append(e)
    found = {}
    for group in groups.values():
        keys = [k for k in dict.fromkeys(k for e in group for k in e.facts) if _differs(group, k)]
        for e in group:
            found[e.file] = tuple((k, e.facts.get(k, ABSENT)) for k in keys)
    return found


def shared(entries: Sequence[Entry]) -> Shared:
    """Axes and facts with one value."""
    names = model_names(entries)
    axes = []
    for axis, value in (("model", names), ("reference", None), ("candidate", None)):
        values = {value[e.file] if value is not None else _release(e, axis) for e in entries}
        if len(values) == 1:
            axes.append((axis, values.pop()))
    keys = dict.fromkeys(key for e in entries for key in e.facts)
    facts = tuple(
        (k, entries[0].facts[k]) for k in keys if k in entries[0].facts and not _differs(entries, k)
    )
    return Shared(tuple(axes), facts)


def matrix(entries: Sequence[Entry]) -> Matrix:
    """Results by what varies: the candidate makes the columns where it can, else the axis with fewest values."""
    names, facts = model_names(entries), varying(entries)
    # Where only one side's settings vary, its name stands in the heading.
    roles = {k.split(" ")[0] for k in facts}
    cut = len(next(iter(roles))) + 1 if len(roles) == 1 else 0
    titles = {"settings": f"{next(iter(roles))} settings" if cut else "settings"}
    value_of: dict[str, Callable[[Entry], str]] = {
        "model": lambda e: names[e.file],
        "reference": lambda e: e.ref,
        "candidate": lambda e: e.cand,
        "settings": lambda e: settings_words([(k[cut:], e.facts.get(k, ABSENT)) for k in facts]) or ABSENT,
    }
    values = {axis: sorted({value_of[axis](e) for e in entries}, key=natural) for axis in AXES}
    several = [axis for axis in AXES if len(values[axis]) > 1]
    fitting = [axis for axis in several if len(values[axis]) <= MOST_COLUMNS]
    across = "candidate" if "candidate" in fitting else min(fitting, key=lambda a: len(values[a]), default="")
    heads = tuple(axis for axis in several if axis != across)
    if not heads and across:
        # One thing varies: a list reads better than one long row.
        heads, across = (across,), ""
    columns = tuple(values[across]) if across else ("result",)
    found: dict[tuple[str, ...], dict[str, list[Entry]]] = {}
    for e in entries:
        row = tuple(value_of[axis](e) for axis in heads)
        column = value_of[across](e) if across else columns[0]
        found.setdefault(row, {}).setdefault(column, []).append(e)
    rows = sorted(found, key=lambda row: [natural(part) for part in row])
    return Matrix(
        tuple(titles.get(axis, axis) for axis in heads),
        titles.get(across, across),
        columns,
        tuple((row, tuple(tuple(found[row].get(column, ())) for column in columns)) for row in rows),
    )


def settings_words(facts: Sequence[tuple[str, str]]) -> str:
    """cand tp 2, cand mode eager; what a side does not have is left out."""
    return ", ".join(f"{name} {value}" for name, value in facts if value != ABSENT)


def natural(text: str) -> tuple[tuple[int, int, str], ...]:
    """A key by which 0.9 stands before 0.10."""
    parts = re.findall(r"[0-9]+|[^0-9]+", text)
    # By length and then digit by digit: a number may have more digits than int() takes.
    whole = [(p.lstrip("0"), p[0].isdigit()) for p in parts]
    return tuple((0, len(n), n) if number else (1, 0, p) for (n, number), p in zip(whole, parts, strict=True))


def _release(entry: Entry, axis: str) -> str:
    return entry.ref if axis == "reference" else entry.cand


def _differs(entries: Sequence[Entry], key: str) -> bool:
    return len({e.facts.get(key, ABSENT) for e in entries}) > 1
