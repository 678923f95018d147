"""Two capture folders compared as `hsparity compare` compares them, for notebooks and tests."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hsparity.model import Comparison

Folder = str | os.PathLike[str]
Numbers = str | int | Sequence[int]


def compare(
    ref: Folder,
    cand: Folder,
    *,
    layers: Numbers | None = None,
    boundaries: Numbers | None = None,
    offset: int = 0,
    tokens: str | None = None,
    tol: float | None = None,
    floor: Folder | Sequence[Folder] | None = None,
) -> Comparison:
    """Compare two captures, or files that `hsparity compare` reads; no engine is started.

    The arguments mean what the command's options mean: `layers` is "2,30,58", a number or numbers; `floor` names captures,
    or "none", and is what lies beside a side where it is left out. What is left out is taken from hsparity.toml in the current
    folder, as the command does. Raises HsparityError as the command reports it.
    """
    from hsparity.capture.read import open_source
    from hsparity.capture.sides import resolve_pair
    from hsparity.compare import Query
    from hsparity.compare import compare as compare_sources
    from hsparity.query import one_measure
    from hsparity.yardstick import find_floors

    Query(tol=tol)  # a bad one is refused before anything is read
    named = () if floor is None else (floor,) if isinstance(floor, (str, os.PathLike)) else tuple(floor)
    floors_named = [os.fspath(path) for path in named]
    one_measure(tol, floors_named)
    chosen = resolve_pair(
        _folder(ref),
        _folder(cand),
        floors=floors_named,
        allow_capture=False,
        layers=_listed(layers),
        boundaries=_listed(boundaries),
        tokens=tokens,
    )
    query = Query(chosen.layers, chosen.boundaries, offset, chosen.tokens, tol)
    floors = [source for path in chosen.floors for source in find_floors(path)]
    return compare_sources(open_source(chosen.ref), open_source(chosen.cand), floors, query)


def _folder(path: Folder) -> str:
    """The path, so that a folder called vllm is no engine."""
    text = os.fspath(path)
    return text if os.sep in text or not text else os.path.join(os.curdir, text)


def _listed(numbers: Numbers | None) -> str | None:
    if numbers is None or isinstance(numbers, str):
        return numbers
    return str(numbers) if isinstance(numbers, int) else ",".join(map(str, numbers))
