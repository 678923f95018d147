"""Where each site of one side lies among the boundaries of another, by the data: the pair-error matrix and
its best fits.

Errors, not cosines: neighbouring boundaries of a residual stream are nearly parallel. Massive channels are
masked, or they would make every pairing look alike; tokens whose norm dwarfs the others (sinks) are left out
for the same reason.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from hsparity.align.tokens import PromptRows
from hsparity.capture.source import Source
from hsparity.metrics.kernel import Norm, apply_norm
from hsparity.stream import pool_map

SAMPLE_TOKENS, FEWEST_TOKENS = 256, 64
SAMPLE_WORK = 3e8  # subtractions: a quarter of a second on one core
RUN = 8  # consecutive rows of the sample: one read each
MASKED_SHARE = 0.02
SINK = 10.0


@dataclass(frozen=True, slots=True)
class Place:
    """A site of one side. `number` is the boundary it is said to be; L + 1 stands for final_norm; None: not
    said."""

    key: str
    number: int | None
    normed: bool = False  # the final norm is applied to the site first


@dataclass(frozen=True, slots=True, eq=False)
class Matrix:
    """Median relative error over the sampled tokens of every pairing. Errors are relative to the ruler's
    norm."""

    ruler: tuple[Place, ...]
    located: tuple[Place, ...]
    error_kk: NDArray[np.float32]  # [ruler, located]
    tokens: int
    distinct: int = 0  # of them, rows of the ruler that are not equal


@dataclass(frozen=True, slots=True)
class Fit:
    """The best place of one located site on the ruler, and the next best."""

    located: Place
    best: Place
    error: float
    runner_up: Place | None
    runner_up_error: float
    margin: float  # log10(runner-up / best), both clamped below by the resolution


def sample_size(pairings: int, width: int) -> int:
    """Tokens to sample for a matrix of `pairings` cells: 256, fewer for a large matrix, 64 at least."""
    affordable = int(SAMPLE_WORK / max(1, pairings * width))
    return min(SAMPLE_TOKENS, max(FEWEST_TOKENS, affordable // RUN * RUN))


def sample(
    prompts: Sequence[PromptRows], limit: int = SAMPLE_TOKENS
) -> list[tuple[PromptRows, NDArray[np.int64]]]:
    """At most `limit` tokens in short runs spread evenly over all tokens: (prompt, places of its rows).

    The first position of a prompt is skipped while there are others: it is the usual sink.
    """
    total = prompts[-1].stop if prompts else 0
    if total <= limit:
        chosen = np.arange(total)
    else:
        starts = np.linspace(0, total - RUN, limit // RUN).astype(np.int64)
        chosen = np.unique((starts[:, None] + np.arange(RUN)).ravel())
    parts = []
    for prompt in prompts:
        inside = chosen[(chosen >= prompt.start) & (chosen < prompt.stop)] - prompt.start
        kept = inside[prompt.positions[inside] > 0]
        for at in range(0, len(kept), RUN):
            parts.append((prompt, kept[at : at + RUN]))
    return parts or [(p, np.arange(len(p.positions))) for p in prompts]


def search_mask(massive: Mapping[str, NDArray[np.int64]], width: int) -> NDArray[np.int64]:
    """Channels left out of the search: those massive at most sites, 2 % of all at most."""
    found = [channels for channels in massive.values() if len(channels)]
    if not found:
        return np.zeros(0, np.int64)
    counts = np.bincount(np.concatenate(found), minlength=width)
    most = np.argsort(-counts, kind="stable")[: max(1, round(width * MASKED_SHARE))]
    return np.sort(most[counts[most] > 0])


def measure(
    ruler: tuple[Source, int, Sequence[Place]],
    located: tuple[Source, int, Sequence[Place]],
    tokens: Sequence[tuple[PromptRows, NDArray[np.int64]]],
    mask: NDArray[np.int64],
    norm: Norm | None = None,
) -> Matrix:
    """The matrix of two sources, each given with its place among a prompt's rows (0 ref, 1 cand, 2…
    floors)."""
    parts: list[NDArray[np.float32]] = [np.zeros((0, len(ruler[2]), len(located[2])), np.float32)] * len(
        tokens
    )
    index = torch.from_numpy(mask)

    def work(task: int) -> None:
        prompt, places = tokens[task]
        held = (prompt.rows[ruler[1]][places] >= 0) & (prompt.rows[located[1]][places] >= 0)
        if not held.any():
            return
        left = _stack(ruler, prompt, places[held], index, norm)
        right = _stack(located, prompt, places[held], index, norm)
        distance = torch.cdist(left, right, compute_mode="donot_use_mm_for_euclid_dist")
        size = torch.linalg.vector_norm(left, dim=2)
        error = distance.div_(size.unsqueeze(2)).numpy()
        error[~np.isfinite(error)] = np.nan
        parts[task] = np.concatenate((error, size.numpy()[:, :, None]), axis=2)

    pool_map(work, range(len(tokens)))
    filled = [p for p in parts if p.shape[0]]
    shape = (len(ruler[2]), len(located[2]))
    if not filled:
        return Matrix(tuple(ruler[2]), tuple(located[2]), np.full(shape, np.nan, np.float32), 0)
    whole = np.concatenate(filled)
    errors, sizes = whole[:, :, :-1], whole[:, :, -1]
    errors[sizes > SINK * medians(sizes)] = np.nan
    distinct = len(np.unique(sizes[:, -1])) if sizes.shape[1] else 0
    return Matrix(tuple(ruler[2]), tuple(located[2]), medians(errors), len(whole), distinct)


def medians(values: NDArray[np.floating[Any]]) -> NDArray[Any]:
    """Median over tokens of what is finite; NaN where nothing is."""
    ordered = np.sort(np.where(np.isfinite(values), values, np.nan), axis=0)  # NaN sorts last
    known = np.isfinite(ordered).sum(0)
    low = np.take_along_axis(ordered, np.maximum(known - 1, 0)[None] // 2, 0)[0]
    high = np.take_along_axis(ordered, np.minimum(known // 2, len(ordered) - 1)[None], 0)[0]
    result: NDArray[Any] = np.where(known > 0, (low + high) / 2, np.nan).astype(values.dtype)
    return result


def _stack(
    side: tuple[Source, int, Sequence[Place]],
    prompt: PromptRows,
    places: NDArray[np.int64],
    mask: torch.Tensor,
    norm: Norm | None,
) -> torch.Tensor:
    """float32 [n, K, H] of all places of one side, masked; a site the prompt lacks is NaN."""
    source, which, wanted = side
    rows = prompt.rows[which][places]
    stack = torch.empty(len(rows), len(wanted), source.manifest.hidden_size)
    for k, place in enumerate(wanted):
        if source.span(prompt.prompts[which], place.key) is None:
            stack[:, k] = torch.nan
            continue
        stack[:, k] = source.rows(prompt.prompts[which], place.key, rows)
        if place.normed and norm:
            apply_norm(stack[:, k], norm)
    return stack.index_fill_(2, mask, 0.0)


def fits(matrix: Matrix, resolution: float) -> tuple[Fit, ...]:
    """The best fit of every located site; sites with no finite error are left out."""
    found = []
    for k, located in enumerate(matrix.located):
        column = matrix.error_kk[:, k]
        order = np.argsort(column, kind="stable")  # NaN last
        order = order[np.isfinite(column[order])]
        if not len(order):
            continue
        best = matrix.ruler[order[0]]
        # The same boundary once normed and once not are two places, but a twin of the best is no rival to it.
        rivals = [i for i in order[1:] if matrix.ruler[i].number != best.number]
        error = float(column[order[0]])
        rival = float(column[rivals[0]]) if rivals else float("nan")
        margin = float(np.log10(max(rival, resolution) / max(error, resolution))) if rivals else float("nan")
        found.append(Fit(located, best, error, matrix.ruler[rivals[0]] if rivals else None, rival, margin))
    return tuple(found)
