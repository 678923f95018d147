"""From agreement on single rows to accepted tokens a step, with intervals over prompts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hsparity.drafter.measurement import Counts, counted, drawn
from hsparity.drafter.result import Estimate

UNKNOWN = -1


@dataclass(frozen=True, slots=True, eq=False)
class Agreement:
    """One prompt, one feeding. k draft positions, S starts: start i is a row whose chain predicts the tokens after the next.

    `match_ks` int8 [k, S]: 1 where draft and target choose the same token, 0 where not, UNKNOWN where there is no row to
    ask. `overlap_ks` float32 [k, S]: 1 - total variation of their distributions; NaN where not known.
    """

    prompt: str
    prefill: int  # tokens of the prompt; the rest the target wrote
    match_ks: NDArray[np.int8]
    overlap_ks: NDArray[np.float32]
    nonfinite: int = 0  # rows that the head was fed, or from which it drafted, that are not finite


def walked(rows: Sequence[Agreement]) -> Counts:
    """What an engine counts that writes this text greedily: draft k tokens at the prompt's last row, accept those that agree up
    to the first that does not, take the target's own, go on at the row before that one.

    Only steps all of whose positions lie inside the text are counted.
    """
    return _counted(rows, _walk)


def every_start(rows: Sequence[Agreement], generated: bool) -> Counts:
    """Every row as a start: those of the generated text, or all of them."""
    return _counted(rows, lambda a: np.arange(max(a.prefill - 1, 0) if generated else 0, a.match_ks.shape[1]))


def _walk(a: Agreement) -> NDArray[np.int64]:
    lengths, known = _lengths(a.match_ks), _known(a.match_ks)
    at, starts = max(a.prefill - 1, 0), []
    while at < len(lengths) and known[at]:
        starts.append(at)
        at += int(lengths[at]) + 1
    return np.array(starts, np.int64)


def _counted(rows: Sequence[Agreement], starts_of: Callable[[Agreement], NDArray[np.int64]]) -> Counts:
    taken = []
    for a in rows:
        starts = starts_of(a)
        starts = starts[_known(a.match_ks)[starts]] if len(starts) else starts
        taken.append(_lengths(a.match_ks)[starts])
    return counted(taken, len(rows[0].match_ks) if rows else 0)


def _known(match_ks: NDArray[np.int8]) -> NDArray[np.bool_]:
    found: NDArray[np.bool_] = (match_ks != UNKNOWN).all(0)
    return found


def _lengths(match_ks: NDArray[np.int8]) -> NDArray[np.int64]:
    """Positions accepted from each start: those before the first that does not agree."""
    found: NDArray[np.int64] = np.cumprod(match_ks == 1, axis=0).sum(0).astype(np.int64)
    return found


def agreement_rates(rows: Sequence[Agreement], generated: bool) -> tuple[float, ...]:
    """Per draft position, the share of rows on which draft and target agree, whatever came before; NaN without any."""
    parts = [a.match_ks[:, max(a.prefill - 1, 0) if generated else 0 :] for a in rows]
    joined = np.concatenate(parts, axis=1) if parts else np.zeros((0, 0), np.int8)
    return tuple(float(np.mean(j[j != UNKNOWN])) if (j != UNKNOWN).any() else float("nan") for j in joined)


def overlap_rates(rows: Sequence[Agreement], generated: bool) -> tuple[tuple[float, ...], float | None]:
    """Per draft position the mean of 1 - total variation, the chance that a sampled draft token is accepted (Leviathan et al.
    2023, theorem 3.5), and the draft tokens that a chain of them gets a step; () and None where no distribution is known.

    The chain multiplies the chances along the text, so it holds where the text is such as the target would sample.
    """
    parts = [a.overlap_ks[:, max(a.prefill - 1, 0) if generated else 0 :] for a in rows]
    joined = np.concatenate(parts, axis=1) if parts else np.zeros((0, 0), np.float32)
    whole = joined[:, np.isfinite(joined).all(0)] if joined.size else joined
    if not whole.size:
        return (), None
    chain = np.cumprod(whole.astype(np.float64), axis=0).sum(0)
    return tuple(whole.mean(1).tolist()), float(chain.mean())


def estimate(counts: Counts) -> Estimate:
    """Draft tokens accepted a step, prompts drawn with replacement."""
    return _interval((counts,), None)


def by_position(counts: Counts) -> tuple[Estimate, ...]:
    """The share of steps in which each position is accepted."""
    return tuple(_interval((counts,), j) for j in range(counts.accepted_pk.shape[1]))


def difference(base: Counts, other: Counts) -> Estimate:
    """`other` less `base` in draft tokens accepted a step; the same prompts are drawn for both."""
    return _interval((other, base), None)


def differences(base: Counts, other: Counts) -> tuple[Estimate, ...]:
    """`other` less `base` in the share of steps that accept each position."""
    return tuple(_interval((other, base), j) for j in range(base.accepted_pk.shape[1]))


def _interval(of: tuple[Counts, ...], position: int | None) -> Estimate:
    """The figure of the first, less that of the second where there is one, with its interval over prompts."""
    prompts = len(of[0].steps_p)
    value = _figures(of, position, np.ones((1, prompts), np.int64))[0]
    if prompts < 2:
        return Estimate(float(value))
    low, high = np.quantile(_figures(of, position, drawn(prompts)), (0.025, 0.975))
    return Estimate(float(value), float(low), float(high))


def _figures(
    of: tuple[Counts, ...], position: int | None, weights_dp: NDArray[np.int64]
) -> NDArray[np.float64]:
    """[D], one figure a draw; `weights_dp` says how often each has each prompt."""
    found = np.zeros(len(weights_dp))
    for sign, counts in zip((1.0, -1.0), of, strict=False):
        accepted_p = counts.accepted_pk.sum(1) if position is None else counts.accepted_pk[:, position]
        found += sign * (weights_dp @ accepted_p) / np.maximum(weights_dp @ counts.steps_p, 1)
    return found
