"""A comparison and what else was found of the same two captures, as one result that one page shows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ..drafter.result import DraftCost, summary
from ..errors import HsparityError
from ..experiments.result import Bisect
from ..model import Comparison
from ..replay.result import Replay

More = Bisect | DraftCost | Replay


def joined(comparison: Comparison, others: Sequence[More]) -> Comparison:
    """The comparison with a bisection's experiments, a replay's layers and a draft's cost in it; the verdict stays.

    Raises E223 for a result of other captures.
    """
    for other in others:
        _check(comparison, other)
        if isinstance(other, Bisect):
            comparison = replace(comparison, trials=other.trials())
        elif isinstance(other, Replay):
            comparison = replace(comparison, added=other.layer_errors())
        else:
            comparison = replace(comparison, cost=summary(other))
    return comparison


def _check(comparison: Comparison, other: More) -> None:
    mine = (comparison.ref.path, comparison.cand.path)
    theirs = (other.ref, other.cand) if isinstance(other, Replay) else (other.ref.path, other.cand.path)
    if mine == theirs:
        return
    width = max(len(other.schema), len(comparison.schema))
    raise HsparityError(
        "E223",
        "the results are of other captures",
        (
            f"{comparison.schema:<{width}}  {mine[0]} and {mine[1]}",
            f"{other.schema:<{width}}  {theirs[0]} and {theirs[1]}",
        ),
        f"make it of the same two, for instance: hsparity compare {theirs[0]} {theirs[1]} --json result.json",
    )
