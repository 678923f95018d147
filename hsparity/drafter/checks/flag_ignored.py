"""HS622."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from hsparity.drafter.checks.base import CONFIG, ERROR, WARNING, Change, Unchecked, problem
from hsparity.drafter.classes import FLAGS, head_class

if TYPE_CHECKING:
    from hsparity.drafter.checks.base import Case, Problem


class FlagIgnored:
    """
    ## What it is
    The head was trained with a flag that this engine's class does not look at.
    ## Why it happens
    norm_before_residual is vLLM's and speculators'; SGLang 0.5.23 takes the residual before the norm in every head.
    norm_before_fc is known to the Llama and Qwen classes only. A speculators config without norm_before_residual is true to
    vLLM and false to speculators.
    ## How it shows
    No error; the head computes another function than in training, and acceptance collapses.
    ## Fix
    Serve the head on an engine that honours the flag, or train it without.
    """

    code, name = "HS622", "flag-ignored"

    def look(self, case: Case) -> Sequence[Problem] | Unchecked:
        draft, engine = case.draft, case.contract.engine
        made = head_class(engine, draft)
        if made is None:
            return () if engine == "hf" else Unchecked("the engine has no class for this head")
        found = [
            problem(
                self,
                ERROR if case.contract.exact else WARNING,
                f"{flag} is true, and {case.engine} does not look at it",
                sides=(
                    ("draft", f"{flag} true"),
                    (case.engine, f"{made.family} class: {_reads(made.honours)}"),
                ),
                advice="serve it on vLLM, which honours the flag" if engine == "sglang" else "",
            )
            for flag in FLAGS
            if draft.says(flag) and flag not in made.honours
        ]
        if draft.layout == "speculators" and engine == "vllm" and "norm_before_residual" not in draft.config:
            found.append(
                problem(
                    self,
                    WARNING,
                    "norm_before_residual is not stated: vLLM takes true, speculators false",
                    sides=(("draft", "no norm_before_residual"), (case.engine, "true where it is absent")),
                    changes=(Change(CONFIG, "norm_before_residual", "", "what it was trained with"),),
                    rival="it was trained with true",
                )
            )
        return found


def _reads(honours: frozenset[str]) -> str:
    return "reads " + ", ".join(f for f in FLAGS if f in honours)


CHECK = FlagIgnored()
