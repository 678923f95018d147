"""Every result below a folder, read one at a time and kept as a line."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from hsparity import __version__
from hsparity.diffing import names as named
from hsparity.diffing.settings import flat
from hsparity.drafter.result import DraftCost, FedSide
from hsparity.errors import HsparityError
from hsparity.model import Comparison, Side
from hsparity.report import spelling as sp
from hsparity.report import view

from .result import SCHEMA, DraftEntry, Entry, Overview, Skipped
from .standing import VERDICTS, badness, excess_of, why_diverged

Result = Comparison | DraftCost
MOST_BYTES = 1 << 26  # results stay far under it; a data set may not
NAMED = 4  # files named in an error
FAMILY = "hsparity."  # how the schema of every saved result begins
OWN = ("hsparity.comparison/", "hsparity.draft-cost/")  # what is shown


def gather(
    folder: Path,
    read: Callable[[str], Result],
    leave: frozenset[str] = frozenset(),
    tell: Callable[[float, float], None] | None = None,
) -> Overview:
    """The results in `folder` and below, worst first; `leave` names real paths that are not looked at, `tell` is told how
    many files are read of how many. Raises E256."""
    entries: list[tuple[Entry, _Captures]] = []
    costs: list[tuple[DraftEntry, _Captures]] = []
    skipped: list[Skipped] = []
    paths = list(_files(folder, skipped))
    for i, path in enumerate(paths):
        if tell is not None:
            tell(i, len(paths))
        name = path.relative_to(folder).as_posix()
        if os.path.realpath(path) in leave:
            continue
        try:
            found = _read(path, read)
        except HsparityError as error:
            skipped.append(Skipped(name, "; ".join(error.notes) or error.message, _other_schema(path)))
            continue
        if isinstance(found, Comparison):
            of = _captures(path, found.ref, found.cand, found.ref.model, found.redacted)
            entries.append((_entry(folder, path, found), of))
        else:
            of = _captures(path, found.ref, found.cand, found.model, found.redacted)
            costs.append((_draft(folder, name, found), of))
    if not entries and not costs:
        raise _nothing(folder, skipped)
    called = named.shown([e.model for e, _ in entries] + [d.model for d, _ in costs])
    priced = [replace(e, model=called[e.model]) for e in _priced(entries, costs)]
    drafts = [replace(d, model=called[d.model]) for d, _ in costs]
    return Overview(
        SCHEMA,
        __version__,
        str(folder),
        tuple(sorted(priced, key=badness)),
        tuple(sorted(drafts, key=lambda d: (VERDICTS.index(d.verdict), d.file))),
        tuple(skipped),
    )


@dataclass(frozen=True, slots=True)
class _Captures:
    """What tells whether two results are of the same two captures."""

    sides: tuple[str, ...]  # path, engine and version of each; empty where they were taken out
    model: str
    place: Path | None  # the result's folder, where a path of a side is relative to some folder


def _captures(path: Path, ref: Side | FedSide, cand: Side | FedSide, model: str, redacted: bool) -> _Captures:
    whole = all(Path(s.path).is_absolute() for s in (ref, cand))
    sides = () if redacted else tuple(part for s in (ref, cand) for part in (s.path, s.engine, s.version))
    return _Captures(sides, model, None if whole else path.parent)


def _same_captures(a: _Captures, b: _Captures) -> bool:
    """Whether both are of one pair; no, where that is in doubt."""
    models = not a.model or not b.model or named.same(a.model, b.model)
    return bool(a.sides) and a.sides == b.sides and models and a.place == b.place


def _other_schema(path: Path) -> str:
    """The schema of a saved result that is of another kind than those shown; empty for any other file."""
    try:
        if not path.is_file() or path.stat().st_size > MOST_BYTES:
            return ""
        text = path.read_text(encoding="utf-8")
        raw = json.loads(text) if f'"{FAMILY}' in text else None
    except (OSError, ValueError, RecursionError):
        return ""
    schema = raw.get("schema") if isinstance(raw, dict) else None
    known = isinstance(schema, str) and schema.startswith(FAMILY) and not schema.startswith(OWN)
    return sp.clean(schema) if known and isinstance(schema, str) else ""


def _files(folder: Path, skipped: list[Skipped]) -> Iterator[Path]:
    """JSON files in a settled order; linked folders are not followed."""

    def unreadable(error: OSError) -> None:
        place = os.path.relpath(error.filename or folder, folder)
        skipped.append(Skipped(place, f"folder not read: {error.strerror}"))

    for here, folders, files in os.walk(folder, onerror=unreadable):
        folders.sort()
        yield from (Path(here, name) for name in sorted(files) if name.lower().endswith(".json"))


def _read(path: Path, read: Callable[[str], Result]) -> Result:
    if not path.is_file():
        raise HsparityError("E213", f"cannot read {path}", ("no file that can be read",))
    if path.stat().st_size > MOST_BYTES:
        raise HsparityError("E213", f"{path} is no result", (f"larger than {MOST_BYTES >> 20} MB: not read",))
    return read(str(path))


def _nothing(folder: Path, skipped: list[Skipped]) -> HsparityError:
    notes = [f"{sp.clean(s.file)}  {sp.clean(s.why)}" for s in skipped[:NAMED]]
    more = [f"and {sp.count(len(skipped) - NAMED, 'more file')}"] if len(skipped) > NAMED else []
    what = "no folder is called" if not folder.is_dir() else "no result lies in"
    return HsparityError(
        "E256",
        f"{what} {sp.clean(str(folder))}",
        (*notes, *more),
        f"hsparity compare REF CAND --json {sp.clean(str(folder))}/NAME.json",
    )


def _entry(folder: Path, path: Path, c: Comparison) -> Entry:
    worst, lead = view.worst_requested(c), view.leading(c)
    excess, over = excess_of(c)
    facts = {
        **{f"ref {k}": v for k, v in _settings(c.ref).items()},
        **{f"cand {k}": v for k, v in _settings(c.cand).items()},
        "asked": sp.clean(c.request.spelled.rsplit("--", 1)[-1]) or "-",
        "tokens": sp.clean(c.request.tokens),
        **({"offset": f"{c.request.offset:+d}"} if c.request.offset else {}),
        "floor": view.FLOOR_WORDS.get(c.floor.kind, sp.clean(c.floor.kind)),
        "hsparity": sp.clean(c.hsparity),
    }
    return Entry(
        file=path.relative_to(folder).as_posix(),
        report=_page_beside(path).relative_to(folder).as_posix(),
        model=c.ref.model,
        weights=c.ref.weights_sha256[:8],
        ref=_engine(c.ref),
        cand=_engine(c.cand),
        verdict=c.verdict,
        headline=sp.clean(view.verdict_line(c)),
        layer=view.place_words(worst.ref) if worst is not None else "-",
        excess=excess,
        over=over,
        rel_l2=view.rel_l2(worst).p50 if worst is not None else math.nan,
        code=sp.clean(lead.code) if lead is not None else "",
        cause=sp.clean(lead.name) if lead is not None else "",
        compared=view.compared_words(c),
        facts=facts,
        accepted=f"{c.cost.ref:.2f} → {c.cost.cand:.2f}" if c.cost is not None else "",
        why=why_diverged(c, excess, over),
    )


def _page_beside(path: Path) -> Path:
    page = path.with_suffix(".html")
    return page if page.is_file() else path


def _settings(side: Side) -> dict[str, str]:
    return {"dtype": sp.clean(side.dtype), **flat(side.settings)}


def _engine(side: Side | FedSide) -> str:
    return sp.clean(f"{side.engine} {side.version}".strip()) or "-"


def _priced(entries: list[tuple[Entry, _Captures]], costs: list[tuple[DraftEntry, _Captures]]) -> list[Entry]:
    """Entries with the cost to a draft head beside them, where a result of the same captures says it."""
    out = []
    for entry, captures in entries:
        one = next((d for d, of in costs if _same_captures(captures, of)), None)
        out.append(entry if one is None else replace(entry, accepted=one.accepted, accepted_file=one.file))
    return out


def _accepted(cost: DraftCost) -> str:
    return f"{cost.feed('ref').accepted.value:.2f} → {cost.feed('cand').accepted.value:.2f}"


def _draft(folder: Path, name: str, cost: DraftCost) -> DraftEntry:
    return DraftEntry(
        name,
        _page_beside(folder / name).relative_to(folder).as_posix(),
        sp.clean(cost.draft).rstrip("/").rsplit("/", 1)[-1],
        _engine(cost.ref),
        _engine(cost.cand),
        cost.verdict,
        _accepted(cost),
        cost.model,
    )
