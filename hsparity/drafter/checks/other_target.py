"""HS647."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from hsparity.drafter.checks.base import NO_MODEL, WARNING, Unchecked, problem
from hsparity.drafter.verifier import verifier

if TYPE_CHECKING:
    from hsparity.drafter.checks.base import Case, Problem


class OtherTarget:
    """
    ## What it is
    The head's config names a target of another family than this one.
    ## Why it happens
    Heads are published beside targets of similar names, and a head loads on any target of its width.
    ## How it shows
    Acceptance near that of chance from the first position on.
    ## Fix
    Serve the head on the target that its config names.
    """

    code, name = "HS647", "other-target"

    def look(self, case: Case) -> Sequence[Problem] | Unchecked:
        if case.target is None:
            return NO_MODEL
        told = verifier(case.draft)
        named = told.get("architectures")
        mine = str(named[0]) if isinstance(named, list) and named else ""
        if not mine or not case.target.architecture:
            return Unchecked("the head's config names no target")
        if _family(mine) == _family(case.target.architecture):
            return ()
        return (
            problem(
                self,
                WARNING,
                f"the head was made for {mine}, the target is {case.target.architecture}",
                sides=(("draft", f"verifier {told.get('name_or_path')}"), ("target", case.target.spelled)),
                rival="the same model under two class names",
            ),
        )


def _family(name: str) -> str:
    for ending in ("ForCausalLM", "ForConditionalGeneration"):
        name = name.removesuffix(ending)
    return name


CHECK = OtherTarget()
