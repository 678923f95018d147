"""Where the sites of both sides lie by the data: the matrices of a comparison, and what they prove."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from hsparity.align.layers import Fit, Matrix, Place, fits, measure, sample, sample_size, search_mask
from hsparity.align.tokens import PromptRows
from hsparity.capture.source import Source
from hsparity.metrics.kernel import Norm
from hsparity.model import Alignment, SlotMatch
from hsparity.pairing import Pairing, boundaries_of, slots_of
from hsparity.solve.readings import CLOSE, FEWEST, PLAIN_MARGIN

Noise = Callable[[int], float]  # reference boundary -> the pair error that is still at the floor


@dataclass(frozen=True, slots=True, eq=False)
class Located:
    """One matrix and its fits. `ruler` and `side` are "ref", "cand" or "floor"; a side on its own ruler is a
    self match."""

    ruler: str
    side: str
    matrix: Matrix
    fits: tuple[Fit, ...]

    @property
    def name(self) -> str:
        """The `side` of a SlotMatch."""
        if self.ruler == self.side:
            return f"{self.side} self"
        return f"{self.side} on floor" if self.ruler == "floor" else self.side


def locate(
    sources: Sequence[Source],
    prompts: Sequence[PromptRows],
    pairing: Pairing,
    *,
    massive: Mapping[str, NDArray[np.int64]],
    norm: Norm | None,
    resolution: float,
    ruler_floor: int | None,
) -> list[Located]:
    """Every matrix that can tell something; the main one (one side on the other) comes first."""
    ref, cand = sources[0], sources[1]
    cells = max(len(ref.sites()), 1) * max(len(cand.sites()), 1)
    tokens = sample(prompts, sample_size(cells, ref.manifest.hidden_size))
    mask = search_mask(massive, ref.manifest.hidden_size)

    last = ref.manifest.num_layers

    def on(ruler: str, side: str, which: tuple[int, int], wanted: Sequence[Place]) -> Located:
        left = (sources[which[0]], which[0], _ruler(sources[which[0]], norm))
        matrix = measure(left, (sources[which[1]], which[1], wanted), tokens, mask, norm)
        return Located(ruler, side, matrix, fits(matrix, resolution))

    found = []
    counts = [len(boundaries_of(s)) for s in (ref, cand)]
    if counts[0] and (counts[0] >= counts[1]):
        found.append(on("ref", "cand", (0, 1), _with_normed(_places(cand, "cand", pairing), last, norm)))
    elif counts[1]:
        found.append(on("cand", "ref", (1, 0), _with_normed(_places(ref, "ref", pairing), last, norm)))
    for which, (name, source) in enumerate((("ref", ref), ("cand", cand))):
        slots = [p for p in _places(source, name, pairing) if p.key.startswith("slot.")]
        # In a file, boundaries are claims like any other; a probe's are what the layers held.
        if slots and counts[which] and not source.from_file:
            found.append(on(name, name, (which, which), slots))
        elif slots and ruler_floor is not None and not any(counts):
            found.append(on("floor", name, (ruler_floor, which), slots))
    return found


def _ruler(source: Source, norm: Norm | None) -> list[Place]:
    """Boundaries, and the normed last one where it can be had."""
    held = boundaries_of(source)
    last = source.manifest.num_layers
    places = [Place(key, number) for number, key in held.items()]
    if "final_norm" in source.sites():
        places.append(Place("final_norm", last + 1))
    elif norm is not None and last in held:
        places.append(Place(held[last], last + 1, normed=True))
    return places


def _places(source: Source, name: str, pairing: Pairing) -> list[Place]:
    claims = pairing.claims.get(name, {})
    boundaries = [Place(key, number) for number, key in boundaries_of(source).items()]
    return boundaries + [Place(key, claims.get(key)) for key in slots_of(source)]


def _with_normed(places: list[Place], last: int, norm: Norm | None) -> list[Place]:
    """Also the last boundary with the final norm applied: it fits a ruler whose own last boundary is normed
    already."""
    if norm is None:
        return places
    return places + [Place(p.key, p.number, normed=True) for p in places if p.number == last]


def expected(located: Located, fit: Fit, offset: int) -> int | None:
    """The ruler's boundary that the claim puts this site at."""
    number = fit.located.number
    if number is None:
        return None
    if located.ruler == "ref" and located.side == "cand":
        return number + offset
    if located.ruler == "cand" and located.side == "ref":
        return number - offset
    return number


def is_proved(fit: Fit, noise: Noise | None, distinct: int) -> bool:
    """At the floor and at least ten times closer than the runner-up, on enough rows that are not equal."""
    if distinct < FEWEST:
        return False
    close = noise(fit.best.number or 0) if noise else CLOSE
    return bool(fit.margin >= PLAIN_MARGIN and fit.error <= close)


def matches(
    found: Sequence[Located], labels: Mapping[str, Mapping[str, str]], noise: Noise | None
) -> tuple[SlotMatch, ...]:
    """Every fit as the result shows it."""
    rows = []
    for located in found:
        for fit in located.fits:
            if fit.located.normed:
                continue
            rival = fit.runner_up.number if fit.runner_up else None
            match = SlotMatch(
                cand=fit.located.key,
                side=located.name,
                claimed=fit.located.number,
                best=fit.best.number or 0,
                error=fit.error,
                runner_up=rival if rival is not None else -1,
                runner_up_error=fit.runner_up_error,
                margin=fit.margin,
                proved=is_proved(fit, noise, located.matrix.distinct),
                native_label=labels.get(located.side, {}).get(fit.located.key, ""),
            )
            rows.append(match)
    return tuple(rows)


def testable(found: Sequence[Located], offset: int) -> bool:
    """Whether the ruler holds a neighbour of where some site is claimed to be."""
    for located in found:
        if located.ruler == located.side:
            continue
        numbers = {p.number for p in located.matrix.ruler}
        for fit in located.fits:
            claimed = expected(located, fit, offset)
            if claimed is None and len(numbers) > 1:
                return True
            if claimed is not None and (claimed + 1 in numbers or claimed - 1 in numbers):
                return True
    return False


def alignment(
    tokens: int,
    prompts: int,
    gaps: Sequence[str],
    *,
    found: Sequence[Located],
    rows: tuple[SlotMatch, ...],
    offset: int,
) -> Alignment:
    """The alignment record: the common shift of the main matrix and its margin."""
    result = Alignment(tokens, prompts, tuple(gaps), None, False, float("nan"), 0, rows)
    cross = [f for f in found if f.ruler not in (f.side, "floor")]
    if not cross or not cross[0].fits:
        return result
    main = cross[0]
    ref_axis, cand_axis, matrix = _axes(main)
    result = replace(result, ref_boundaries=ref_axis, cand_boundaries=cand_axis, pair_error_kk=matrix)
    if not testable([main], offset):
        return result
    sign = 1 if main.side == "cand" else -1
    last = max((p.number or 0) for p in main.matrix.ruler if p.key != "final_norm")
    shifts = [
        (sign * ((f.best.number or 0) - f.located.number), f.margin)
        for f in main.fits
        if f.located.number is not None and not f.located.normed and (f.best.number or 0) <= last
    ]
    if not shifts:
        return replace(result, offset_testable=True)
    values, counts = np.unique([s for s, _ in shifts], return_counts=True)
    # The most frequent shift; of equally frequent ones the smallest.
    best = int(min(zip(-counts, np.abs(values), values, strict=True))[2])
    margins = [m for s, m in shifts if s == best and np.isfinite(m)]
    margin = float(np.median(margins)) if margins else float("nan")
    agreeing = int(counts[values == best][0])
    return replace(result, offset=best, offset_testable=True, margin=margin, rows_agreeing=agreeing)


def _axes(main: Located) -> tuple[tuple[int, ...], tuple[int, ...], NDArray[np.float32]]:
    """Boundary numbers of both axes and the matrix [ref, cand]; unlabelled slots stand where they fit
    best."""
    ruler = [i for i, p in enumerate(main.matrix.ruler) if not p.normed and p.key != "final_norm"]
    best = {f.located.key: f.best.number for f in main.fits}
    located = []
    for k, place in enumerate(main.matrix.located):
        if place.normed:
            continue
        number = place.number if place.number is not None else best.get(place.key)
        if number is not None:
            located.append((number, k))
    error = main.matrix.error_kk[np.ix_(ruler, [k for _, k in located])]
    numbers = tuple(main.matrix.ruler[i].number or 0 for i in ruler)
    others = tuple(n for n, _ in located)
    return (
        (numbers, others, error) if main.ruler == "ref" else (others, numbers, np.ascontiguousarray(error.T))
    )
