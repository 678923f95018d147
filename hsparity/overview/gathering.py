"""Every result below a folder, read one at a time and kept as a line."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from hsparity import __version__
from hsparity.diffing.settings import flat
from hsparity.drafter.result import DraftCost, FedSide
from hsparity.errors import HsparityError
from hsparity.model import Comparison, Side, Verdict
from hsparity.report import spelling as sp
from hsparity.report import view

from .result import SCHEMA, DraftEntry, Entry, Overview, Skipped

Result = Comparison | DraftCost
MOST_BYTES = 1 << 28  # results stay far under it; a data set may not
NAMED = 4  # files named in an error


def gather(
    folder: Path,
    read: Callable[[str], Result],
    leave: frozenset[str] = frozenset(),
    tell: Callable[[float, float], None] | None = None,
) -> Overview:
    """The results in `folder` and below, worst first; `leave` names real paths that are not looked at, `tell` is told how
    many files are read of how many. Raises E256."""
    entries: list[tuple[Entry, tuple[str, ...]]] = []
    costs: list[tuple[str, DraftCost]] = []
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
            skipped.append(Skipped(name, "; ".join(error.notes) or error.message))
            continue
        if isinstance(found, Comparison):
            entries.append((_entry(folder, path, found), _pair(found.ref, found.cand)))
        else:
            costs.append((name, found))
    if not entries and not costs:
        raise _nothing(folder, skipped)
    priced, left = _priced(entries, costs)
    return Overview(
        SCHEMA,
        __version__,
        str(folder),
        tuple(sorted(priced, key=_badness)),
        tuple(_draft(folder, name, cost) for name, cost in left),
        tuple(skipped),
    )


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
    excess, over = _excess(c)
    facts = {
        **{f"ref {k}": v for k, v in _settings(c.ref).items()},
        **{f"cand {k}": v for k, v in _settings(c.cand).items()},
        "asked": sp.clean(c.request.spelled.rsplit("--", 1)[-1]) or "-",
        "tokens": sp.clean(c.request.tokens),
        "floor": view.FLOOR_WORDS.get(c.floor.kind, sp.clean(c.floor.kind)),
        "hsparity": sp.clean(c.hsparity),
    }
    return Entry(
        file=path.relative_to(folder).as_posix(),
        report=_page_beside(path).relative_to(folder).as_posix(),
        model=sp.clean(c.ref.model).rstrip("/").rsplit("/", 1)[-1] or "-",
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
    )


def _page_beside(path: Path) -> Path:
    page = path.with_suffix(".html")
    return page if page.is_file() else path


def _settings(side: Side) -> dict[str, str]:
    return {"dtype": sp.clean(side.dtype), **flat(side.settings)}


def _engine(side: Side | FedSide) -> str:
    return sp.clean(f"{side.engine} {side.version}".strip()) or "-"


def _excess(c: Comparison) -> tuple[float, str]:
    """(how many times the yardstick the worst requested site stands at, the yardstick)."""
    worst = view.worst_requested(c)
    if worst is None:
        return math.nan, ""
    ratios = [r.median for r in view.main_ratios(worst) if math.isfinite(r.median)]
    error = view.rel_l2(worst).p50
    if ratios:
        return max(ratios), "floor"
    if c.floor.kind == "tolerance" and c.floor.limit > 0:
        return error / c.floor.limit, "tolerance"
    if worst.floor is not None and worst.floor.p50 > 0:
        return error / worst.floor.p50, "floor"
    return (error / c.floor.resolution, "half-ulp") if c.floor.resolution > 0 else (math.nan, "")


def _badness(entry: Entry) -> tuple[float, str]:
    """Largest excess first; what has none stands first where it diverged, last elsewhere."""
    unknown = math.inf if entry.verdict is Verdict.DIVERGED else -1.0
    return (-(unknown if math.isnan(entry.excess) else entry.excess), entry.file)


def _pair(ref: Side | FedSide, cand: Side | FedSide) -> tuple[str, ...]:
    """What tells that a draft head was priced on the captures of a comparison."""
    return tuple(part for s in (ref, cand) for part in (s.path, s.engine, s.version))


def _priced(
    entries: list[tuple[Entry, tuple[str, ...]]], costs: list[tuple[str, DraftCost]]
) -> tuple[list[Entry], list[tuple[str, DraftCost]]]:
    """Entries with the cost to a draft head beside them, and the costs that belong to none or share one."""
    by_pair: dict[tuple[str, ...], tuple[str, DraftCost]] = {}
    left = []
    known = {pair for _, pair in entries}
    for name, cost in costs:
        pair = _pair(cost.ref, cost.cand)
        if pair in known and pair not in by_pair:
            by_pair[pair] = (name, cost)
        else:
            left.append((name, cost))
    priced = []
    for entry, pair in entries:
        if pair in by_pair:
            name, cost = by_pair[pair]
            priced.append(replace(entry, accepted=_accepted(cost), accepted_file=name))
        else:
            priced.append(entry)
    return priced, left


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
    )
