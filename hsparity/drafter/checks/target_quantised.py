"""HS644."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from hsparity.drafter.checks.base import NO_MODEL, NOTE, WARNING, Unchecked, problem
from hsparity.drafter.verifier import verifier

if TYPE_CHECKING:
    from hsparity.drafter.checks.base import Case, Problem


class TargetQuantised:
    """
    ## What it is
    The target is quantised, and the head's config names another one as what it was trained for.
    ## Why it happens
    A head learns the states of one checkpoint. Those of a quantised copy differ by some per cent, which costs a little. A
    quantiser that rotates the stream (QuaRot, SpinQuant, a transform_config) leaves the outputs alone and turns every state: a
    head that was trained before is then fed what it has never seen.
    ## How it shows
    A few points of acceptance; with a rotation nearly all of it.
    ## Fix
    Measure with `hsparity compare` on captures of both. For a rotated target train on it, or rotate fc.
    """

    code, name = "HS644", "target-quantised"

    def look(self, case: Case) -> Sequence[Problem] | Unchecked:
        if case.target is None:
            return NO_MODEL
        config = case.target.config.get("quantization_config")
        if not isinstance(config, dict):
            return ()
        how = str(config.get("quant_method") or config.get("quant_algo") or "quantised")
        trained = Path(str(verifier(case.draft).get("name_or_path") or "")).name
        turned = config.get("transform_config") or {}
        if isinstance(turned, dict) and turned.get("config_groups"):
            return (
                problem(
                    self,
                    WARNING,
                    "the target's quantiser transforms its weights, and may have turned its stream",
                    sides=(
                        ("target", f"{how}, transform_config"),
                        ("draft", f"trained for {trained or 'a target it does not name'}"),
                    ),
                    rival="the head was trained on this very checkpoint",
                    settle="hsparity compare of captures of this target and of the one trained on",
                ),
            )
        if not trained:
            return Unchecked("the head's config does not say which target it was trained on")
        if trained == case.target.folder.name or trained == Path(case.target.spelled).name:
            return ()
        return (
            problem(
                self,
                NOTE,
                f"the target is quantised ({how}); the head was trained for {trained}",
                sides=(("draft", f"verifier {trained}"), ("target", f"{case.target.spelled}, {how}")),
                settle="hsparity drafter DRAFT REF CAND with captures of both says what it costs",
            ),
        )


CHECK = TargetQuantised()
