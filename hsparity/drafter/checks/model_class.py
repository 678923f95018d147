"""HS646."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from hsparity.drafter.checks.algorithm_flag import one_state
from hsparity.drafter.checks.base import CONFIG, ERROR, WARNING, Change, problem, spelled
from hsparity.drafter.classes import DEEPSEEK, LLAMA, SGLANG, VLLM, head_class, resolved

if TYPE_CHECKING:
    from hsparity.drafter.checks.base import Case, Problem

WANTED = {
    ("vllm", LLAMA): "LlamaForCausalLMEagle3",
    ("vllm", DEEPSEEK): "Eagle3DeepseekV2ForCausalLM",
    ("sglang", LLAMA): "LlamaForCausalLMEagle3",
    ("sglang", DEEPSEEK): "Eagle3DeepseekV2ForCausalLM",
}


class ModelClass:
    """
    ## What it is
    This engine has no class for the head as its config names it, or builds one that its weights are not of.
    ## Why it happens
    A head is loaded by the name in architectures. SGLang 0.5.23 knows LlamaForCausalLMEagle3 and Eagle3DeepseekV2ForCausalLM and
    reads no speculators config, whose layer is nested; vLLM puts Eagle3 in front of a name without it and knows more.
    ## How it shows
    The engine stops: model architectures are not supported; or it loads a plain model of that name.
    ## Fix
    Set architectures to the class that the report names; for SGLang write a speculators head flat, with the layer's fields on top.
    """

    code, name = "HS646", "model-class"

    def look(self, case: Case) -> Sequence[Problem]:
        draft, engine = case.draft, case.contract.engine
        if engine == "hf" or one_state(case):
            return ()
        family = DEEPSEEK if draft.is_mla else LLAMA
        made = head_class(engine, draft)
        name = resolved(engine, draft)
        severity = ERROR if case.contract.exact else WARNING
        if made is not None and (made.family == DEEPSEEK) == (family == DEEPSEEK):
            return ()
        kind = (
            "speculators config"
            if draft.layout == "speculators"
            else draft.architecture or "no architectures"
        )
        if draft.layout == "speculators":
            words = f"{case.engine} does not load a speculators config" + (
                " of this kind" if engine == "vllm" else ""
            )
            advice = (
                "write it flat: the fields of transformer_layer_config on the top level, "
                f'"architectures": ["{WANTED[engine, family]}"], the ids inside eagle_config'
            )
            return (
                problem(
                    self,
                    severity,
                    words,
                    sides=(("draft", kind), (case.engine, _known(engine))),
                    advice=advice,
                ),
            )
        words = (
            f"{case.engine} has no class {name or 'for it'}"
            if made is None
            else f"{case.engine} builds a {made.family} head, the weights are of {family} attention"
        )
        change = Change(
            CONFIG,
            "architectures",
            spelled(draft.config.get("architectures")),
            spelled([WANTED[engine, family]]),
        )
        return (
            problem(
                self,
                severity,
                words,
                sides=(("draft", kind), (case.engine, _known(engine))),
                changes=(change,),
            ),
        )


def _known(engine: str) -> str:
    names = {"vllm": VLLM, "sglang": SGLANG}[engine]
    return "knows " + ", ".join(list(names)[:3]) + (" and others" if len(names) > 3 else "")


CHECK = ModelClass()
