"""(ref, cand, floors, query) -> Comparison. Nothing is printed, no file is written."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from hsparity.errors import HsparityError
from hsparity.query import Query
from hsprobe.streams import several_streams

if TYPE_CHECKING:
    from hsparity.capture.source import Source
    from hsparity.evidence import Evidence
    from hsparity.model import Comparison
    from hsparity.replay.result import Replay

__all__ = ["Query", "compare", "study"]

Progress = Callable[[float, float, str], None]


def compare(
    ref: Source,
    cand: Source,
    floors: Sequence[Source],
    query: Query,
    progress: Progress | None = None,
    replay: Replay | None = None,
) -> Comparison:
    """Compare two sources, measured against what `floors` make (see `yardstick.assign`); `replay` of the same two
    weighs on the diagnosis. Raises as `study` does."""
    return study(ref, cand, floors, query, progress, replay)[0]


def study(
    ref: Source,
    cand: Source,
    floors: Sequence[Source],
    query: Query,
    progress: Progress | None = None,
    replay: Replay | None = None,
) -> tuple[Comparison, Evidence]:
    """A comparison and what it rests on: the aligned rows, and the form in which each fault is undone.

    Returns only after every file of every source was found whole: a damaged shard is E206, never a verdict.
    Raises also E102, E103 (query), E203 (no token in common), E208 (different model), E210 (asked for but not
    captured), E211 (floor), E212 (tokens in common, but no row or site), E215 (a model of
    several residual streams).
    """
    sources = [ref, cand, *floors]
    check_models(ref, cand)
    try:
        # Imported here: digests are already being computed in the background while torch loads.
        from hsparity.comparing import run

        result = run(ref, cand, floors, query, progress, replay)
    except Exception:
        # A damaged shard can look like anything; that it is damaged is the better answer.
        for source in sources:
            source.verify()
        raise
    for source in sources:
        source.verify()
    return result


def check_models(ref: Source, cand: Source) -> None:
    """Raises E208 when the sides cannot be the same model, E215 for a model without a single residual stream.
    Names and architectures may differ: paths and engines do."""
    a, b = ref.manifest, cand.manifest
    for side, source in (("ref", ref), ("cand", cand)):
        _check_one_stream(side, source)
    for source, other in ((ref, b), (cand, a)):
        if not source.manifest.num_layers:  # a file of states does not say
            source.manifest = replace(source.manifest, num_layers=other.num_layers)
    a, b = ref.manifest, cand.manifest
    if (a.num_layers, a.hidden_size) == (b.num_layers, b.hidden_size):
        return
    width = max(len(ref.path), len(cand.path))
    notes = [
        f"{side}  {s.path:<{width}}  {m.num_layers} layers, hidden size {m.hidden_size}, "
        f"{m.architecture or m.model}"
        for side, s, m in (("ref ", ref, a), ("cand", cand, b))
    ]
    raise HsparityError(
        "E208", "the sides are different models", notes, "capture the same model on both sides"
    )


def _check_one_stream(side: str, source: Source) -> None:
    manifest = source.manifest
    why = several_streams(manifest.architecture, manifest.model_config)
    if not why:
        return
    raise HsparityError(
        "E215",
        f"{manifest.architecture or manifest.model} keeps no single residual stream",
        (f"{side}  {source.path}: {why}",),
        "hidden + residual is no state of this model, so no slot could be named: compare logits instead",
    )
