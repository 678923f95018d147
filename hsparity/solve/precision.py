"""How the states were stored: a narrow format behind the values, fp16's limits, or values cut instead of
rounded. Exact properties of the stored numbers, so they are asked of samples and need no floor."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import torch

from hsparity.solve.storage import Fp16Limits, Stored, fp16_limits, stored_format
from hsparity.solve.truncation import Truncation, truncation
from hsparity.stream import pool_map
from hsprobe.schema import Site

if TYPE_CHECKING:
    from hsparity.solve.solution import Given

FIRST_ROWS, ROWS = 4, 32  # a healthy site is told by the first few
CUT_ROWS, CUT_SITES = 1024, 8
CUT_VALUES = 4e6  # values of all sites together that the rounding is looked at in
# Relative error that a format alone makes: half a step over the square root of three, over the mantissas.
ALLOWANCE = {"e4m3fn": 0.03, "e4m3fnuz": 0.03, "e5m2": 0.06}

SIDES = ("ref", "cand")


@dataclass(slots=True, eq=False)
class Precision:
    """What was found, by side and site."""

    stored: dict[tuple[str, str], Stored] = field(default_factory=dict)
    fp16: dict[tuple[str, str], Fp16Limits] = field(default_factory=dict)
    cut: dict[str, Truncation] = field(default_factory=dict)  # by side
    cut_sites: tuple[str, ...] = ()
    against: str = ""  # what the cut was measured against

    def allowance(self, side: str, site: str) -> float:
        """Error that the storage of a site alone makes."""
        found = self.stored.get((side, site))
        return ALLOWANCE.get(found.kind, 0.0) if found else 0.0


def precision(given: Given, numbers: Sequence[int], odd: Mapping[int, np.ndarray]) -> Precision:
    """The storage of both sides at these pairs. `odd`: aligned tokens of a pair that hold extreme values, to
    be looked at first."""
    result = Precision()
    stored: dict[tuple[int, str], Stored | None] = {}
    limits: dict[int, Fp16Limits] = {}

    def work(k: int) -> None:
        pair = given.pairs[k]
        for which, key in enumerate((pair.ref, pair.cand)):
            if (which, key) not in stored and Site.parse(key).kind in ("boundary", "slot", "final_norm"):
                stored[which, key] = _stored(given, which, key)
        limits[k] = fp16_limits(*_both(given, k, odd.get(k)))

    pool_map(work, numbers)
    for (which, key), format_ in sorted(stored.items()):
        if format_ is not None:
            result.stored[SIDES[which], key] = format_
    for k in numbers:
        if limits[k].found:
            result.fp16["cand", given.pairs[k].cand] = limits[k]
    return result


def _stored(given: Given, which: int, key: str) -> Stored | None:
    for limit in (FIRST_ROWS, ROWS):
        rows = _rows(given, which, key, _places(given, limit))
        found = stored_format(rows) if len(rows) else None
        if found is None:
            return None
    return found if found is not None and found.kind != "fp16" else None


def _places(given: Given, limit: int) -> list[tuple[int, np.ndarray]]:
    """Up to `limit` aligned tokens spread evenly: (prompt, places of its rows)."""
    total = given.prompts[-1].stop if given.prompts else 0
    chosen = (
        np.unique(np.linspace(0, total - 1, min(limit, total)).astype(np.int64))
        if total
        else np.zeros(0, int)
    )
    return _by_prompt(given, chosen)


def _by_prompt(given: Given, tokens: Iterable[int]) -> list[tuple[int, np.ndarray]]:
    chosen = np.sort(np.asarray(list(tokens), np.int64))
    found = []
    for p, prompt in enumerate(given.prompts):
        inside = chosen[(chosen >= prompt.start) & (chosen < prompt.stop)] - prompt.start
        if len(inside):
            found.append((p, inside))
    return found


def _rows(given: Given, which: int, key: str, places: list[tuple[int, np.ndarray]]) -> torch.Tensor:
    """Rows [n, H] in the dtype on disk."""
    source, parts = given.sources[which], []
    for p, inside in places:
        prompt = given.prompts[p]
        rows, name = prompt.rows[which][inside], prompt.prompts[which]
        if name and (rows >= 0).all() and source.span(name, key) is not None:
            held = source.rows(name, key, rows)
            # An 8-bit file is exact in bf16, which more is implemented for.
            parts.append(held.bfloat16() if held.element_size() == 1 else held.clone())
    return torch.cat(parts) if parts else torch.empty(0, source.manifest.hidden_size)


def _both(given: Given, k: int, odd: np.ndarray | None) -> tuple[torch.Tensor, torch.Tensor | None]:
    """The candidate's rows of a pair and the reference's, those with extreme values among them."""
    pair = given.pairs[k]
    places = _places(given, ROWS)
    if odd is not None and len(odd):
        places = _by_prompt(given, odd[:ROWS])
    left, right = _rows(given, 0, pair.ref, places), _rows(given, 1, pair.cand, places)
    return right, left if left.shape == right.shape else None


def look_for_cuts(given: Given, numbers: Sequence[int], result: Precision) -> None:
    """Which side's values are cut, against the fp32 capture of the floor or the other side."""
    if result.stored:  # an 8-bit lattice looks cut too
        return
    known = [
        k
        for k in numbers
        if (b := given.pairs[k].boundary) is not None and b > 0 and not given.pairs[k].landed
    ]
    if not known:
        return
    chosen = [
        known[i] for i in np.unique(np.linspace(0, len(known) - 1, min(CUT_SITES, len(known))).astype(int))
    ]
    width = given.sources[0].manifest.hidden_size
    places = _places(given, min(CUT_ROWS, max(64, int(CUT_VALUES / (width * len(chosen))))))
    truth = given.roles.fp32
    depths = [given.pairs[k].boundary or 0 for k in chosen]
    result.cut_sites = tuple(given.pairs[k].ref for k in chosen)
    result.against = "Transformers in fp32" if truth is not None else "the other side"
    found: dict[int, Truncation] = {}

    def rows(which: int) -> list[torch.Tensor]:
        keys = [(given.pairs[k].ref, given.pairs[k].cand)[which] for k in chosen]
        return [_rows(given, which, key, places) for key in keys]

    def exact(source: int) -> list[torch.Tensor]:
        return [_rows(given, source, given.pairs[k].floor_site, places) for k in chosen]

    def work(which: int) -> None:
        own, base = rows(which), exact(truth) if truth is not None else rows(1 - which)
        if which != truth and all(a.shape == b.shape and len(a) for a, b in zip(base, own, strict=True)):
            found[which] = truncation(base, own, truth=truth is not None, depths=depths)

    pool_map(work, (0, 1))
    for which in sorted(found):
        if found[which].found or found[which].compounding:
            result.cut[SIDES[which]] = found[which]
