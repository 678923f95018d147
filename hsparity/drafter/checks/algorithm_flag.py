"""HS601."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from hsparity.drafter.checks.base import ERROR, NOTE, Change, Unchecked, problem, shaped

if TYPE_CHECKING:
    from hsparity.drafter.checks.base import Case, Problem

ATTENTION = ("layers.0.self_attn.q_proj.weight", "layers.0.self_attn.q_a_proj.weight")
FEEDS = {"eagle": "one state of the target, no auxiliary ones", "eagle3": "the auxiliary states through fc"}


class AlgorithmFlag:
    """
    ## What it is
    The engine is told another EAGLE than the head is: EAGLE for an EAGLE-3 head, or EAGLE3 for a head of EAGLE-1 or 2.
    ## Why it happens
    The flag is typed by hand. An EAGLE-3 head takes several states through fc and embeddings beside them into its first
    layer, an EAGLE-1 head takes one state and has fc in front of both.
    ## How it shows
    Acceptance of exactly one token a step and no message: with SGLang's EAGLE nothing is captured and fc is skipped, because
    the width of one state is already the head's.
    ## Fix
    Start SGLang with --speculative-algorithm EAGLE3, vLLM with "method": "eagle3"; for an EAGLE-1 head EAGLE and "eagle".
    """

    code, name = "HS601", "algorithm-flag"

    def look(self, case: Case) -> Sequence[Problem] | Unchecked:
        head = "eagle" if one_state(case) else "eagle3"
        said = case.algorithm
        if not said:
            return self._inferred(case, head)
        if said not in ("eagle", "eagle3"):
            return Unchecked(f"--algorithm {said} is no EAGLE")
        if said == head:
            return ()
        width = case.draft.tensors["fc.weight"].shape
        return (
            problem(
                self,
                ERROR,
                f"the engine is told {said.upper()}, the head is {head.upper()}",
                sides=(
                    ("draft", f"{shaped('fc.weight', width)}, {_first_layer(case)}"),
                    (case.engine, f"{said.upper()}: " + FEEDS[said]),
                ),
                changes=(_flag(case.contract.engine, said, head),),
            ),
        )

    def _inferred(self, case: Case, head: str) -> Sequence[Problem] | Unchecked:
        """vLLM without a method goes by the name of the folder."""
        if case.contract.engine != "vllm" or case.draft.layout == "speculators":
            return Unchecked("the engine's flag is not known: --algorithm EAGLE or EAGLE3")
        name = case.draft.spelled.lower()
        taken = "eagle" if "eagle-" in name else "eagle3" if "eagle3" in name else "draft_model"
        if taken == head:
            return ()
        return (
            problem(
                self,
                NOTE,
                f'without "method" vLLM takes this folder\'s name for {taken}, and the head is {head}',
                sides=(("draft", case.draft.spelled), (case.engine, f"method {taken}, from the name")),
                changes=(Change("--speculative-config", "method", "", f'"{head}"'),),
            ),
        )


def _flag(engine: str, said: str, head: str) -> Change:
    if engine == "vllm":
        return Change("--speculative-config", "method", f'"{said}"', f'"{head}"')
    return Change("command line", "--speculative-algorithm", said.upper(), head.upper())


def one_state(case: Case) -> bool:
    """Whether this is a head of EAGLE-1 or 2: fc takes the embedding and one state, and the layer what comes out of it."""
    width = case.draft.hidden_size
    first = next(
        (case.draft.tensors[n] for n in ATTENTION if n in case.draft.tensors),
        None,
    )
    return (
        first is not None
        and first.shape[-1] == width
        and "layers.0.hidden_norm.weight" not in case.draft.tensors
    )


def _first_layer(case: Case) -> str:
    name = next((n for n in ATTENTION if n in case.draft.tensors), "")
    return shaped(name, case.draft.tensors[name].shape) if name else "no attention"


CHECK = AlgorithmFlag()
