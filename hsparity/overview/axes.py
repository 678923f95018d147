"""What varies over many results: it makes the rows and columns; what is the same everywhere is said once."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from .result import Entry

AXES = ("model", "reference", "candidate", "settings")
MOST_COLUMNS = 8
ABSENT = "-"
SIDES = ("ref ", "cand ")  # how the settings of a side begin
QUESTION = ("asked", "tokens", "offset")  # always told where they differ
MOST_TOLD, FEW_TOLD = 6, 3

Facts = tuple[tuple[str, str], ...]


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
    """A few facts that tell results apart although model and both releases are the same."""
    names = model_names(entries)
    groups: dict[tuple[str, ...], list[Entry]] = {}
    for e in entries:
        groups.setdefault((names[e.file], e.ref, e.cand), []).append(e)
    keys = [k for k in _keys(entries) if k in QUESTION or k.startswith(SIDES)]
    keys = [k for k in keys if any(_differs(group, k) for group in groups.values())]
    return tuple(k for k in keys if k in _telling(entries, keys, list(groups.values())))


def differing(entries: Sequence[Entry]) -> dict[str, tuple[Facts, Facts]]:
    """By file: facts in which results with the same two engines differ, whatever their releases: the few that tell them
    apart, and the rest."""
    names = model_names(entries)
    groups: dict[tuple[str, str], list[Entry]] = {}
    for e in entries:
        groups.setdefault((e.ref.split(" ")[0], e.cand.split(" ")[0]), []).append(e)
    found = {}
    for group in groups.values():
        keys = [k for k in _keys(group) if _differs(group, k)]
        parts: dict[tuple[str, ...], list[Entry]] = {}
        for e in group:
            parts.setdefault((names[e.file], e.ref, e.cand), []).append(e)
        telling = _telling(group, keys, list(parts.values()))
        for e in group:
            facts = [(k, e.facts.get(k, ABSENT)) for k in keys]
            found[e.file] = (
                tuple(f for f in facts if f[0] in telling),
                tuple(f for f in facts if f[0] not in telling),
            )
    return found


def _telling(entries: Sequence[Entry], keys: Sequence[str], parts: list[list[Entry]]) -> set[str]:
    """About MOST_TOLD of `keys`: what was asked, how it was judged, and then, one by one, the setting that parts most of
    the results that the columns and those before it leave together. What only some results record comes last."""
    chosen = [k for k in keys if not k.startswith(SIDES)]
    for key in chosen:
        parts = _parted(parts, key)
    rest = [k for k in keys if k.startswith(SIDES)]
    everywhere = {k for k in rest if all(k in e.facts for e in entries)}
    told: list[str] = []
    while rest and len(chosen) + len(told) < MOST_TOLD:
        gain = {k: len(_parted(parts, k)) - len(parts) for k in rest}
        best = max(rest, key=lambda k: (gain[k] > 0 and k in everywhere, gain[k]))
        if not gain[best]:
            break
        told.append(best)
        rest.remove(best)
        parts = _parted(parts, best)
    if not told:
        # Where no setting tells any apart, those that came with a release are still worth a few words.
        names = model_names(entries)
        models = [[e for e in entries if names[e.file] == name] for name in dict.fromkeys(names.values())]
        told = [k for k in rest if any(_differs(model, k) for model in models)][:FEW_TOLD]
    return {*chosen, *told}


def _parted(parts: list[list[Entry]], key: str) -> list[list[Entry]]:
    out: list[list[Entry]] = []
    for part in parts:
        by: dict[str, list[Entry]] = {}
        for e in part:
            by.setdefault(e.facts.get(key, ABSENT), []).append(e)
        out += by.values()
    return out


def _keys(entries: Sequence[Entry]) -> list[str]:
    """Every fact; what was asked stands first."""
    keys = dict.fromkeys(key for e in entries for key in e.facts)
    return [*(k for k in QUESTION if k in keys), *(k for k in keys if k not in QUESTION)]


def shared(entries: Sequence[Entry]) -> Shared:
    """Axes and facts with one value."""
    names = model_names(entries)
    axes = []
    for axis, value in (("model", names), ("reference", None), ("candidate", None)):
        values = {value[e.file] if value is not None else _release(e, axis) for e in entries}
        if len(values) == 1:
            axes.append((axis, values.pop()))
    facts = tuple(
        (k, entries[0].facts[k]) for k in _keys(entries) if k in entries[0].facts and not _differs(entries, k)
    )
    return Shared(tuple(axes), facts)


def matrix(entries: Sequence[Entry]) -> Matrix:
    """Results by what varies: the candidate makes the columns where it can, else the axis with fewest values."""
    names, facts = model_names(entries), varying(entries)
    # Where only one side's settings vary, its name stands in the heading.
    roles = {k.split(" ")[0] if k.startswith(SIDES) else "" for k in facts}
    cut = len(next(iter(roles))) + 1 if len(roles) == 1 and "" not in roles else 0
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
