"""HS623."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from hsparity.drafter.checks.base import CONFIG, ERROR, WARNING, Change, Unchecked, problem, spelled
from hsparity.drafter.classes import LLAMA, HeadClass, head_class

if TYPE_CHECKING:
    from hsparity.drafter.checks.base import Case, Problem


class TensorsUnread:
    """
    ## What it is
    The weights hold tensors that the class this engine builds has no place for.
    ## Why it happens
    Norms of queries and keys in a head that is loaded as Llama, biases, a second naming. SGLang leaves such tensors out without
    a word; vLLM stops.
    ## How it shows
    SGLang: acceptance as of a head that lacks them. vLLM: there is no module or parameter named so.
    ## Fix
    Name the class that has these parts in architectures, or export the head without them.
    """

    code, name = "HS623", "tensors-unread"

    def look(self, case: Case) -> Sequence[Problem] | Unchecked:
        draft, engine = case.draft, case.contract.engine
        made = head_class(engine, draft)
        if made is None:
            return () if engine == "hf" else Unchecked("the engine has no class for this head")
        odd = [
            stored
            for name, stored in draft.stored.items()
            if not made.holds(name) or not _spelled(made, name, stored)
        ]
        if not odd:
            return ()
        shown = ", ".join(odd[:4]) + (f" and {len(odd) - 4} more" if len(odd) > 4 else "")
        what = "stops at them" if made.strict else "leaves them out without a word"
        qk = [n for n in odd if "q_norm" in n or "k_norm" in n]
        change = Change(
            CONFIG, "architectures", spelled([draft.architecture]), spelled(["Eagle3Qwen3ForCausalLM"])
        )
        return (
            problem(
                self,
                ERROR if case.contract.exact else WARNING,
                f"{case.engine} has no place for {len(odd)} tensor{'s' * (len(odd) > 1)} and {what}",
                sides=(("draft", shown), (case.engine, f"its {made.family} class")),
                changes=(change,) if qk and engine == "vllm" and draft.layout != "speculators" else (),
            ),
        )


def _spelled(made: HeadClass, name: str, stored: str) -> bool:
    """Whether the engine comes from the stored name to the canonical one."""
    short = stored.replace("midlayer.", "layers.0.", 1)
    if made.engine == "sglang" and made.family == LLAMA:
        short = short.removeprefix("model.")
        for old, new in (
            ("aux_norm_low", "fc_norm.0"),
            ("aux_norm_mid", "fc_norm.1"),
            ("aux_norm_high", "fc_norm.2"),
        ):
            short = short.replace(old, new)
    return short == name


CHECK = TensorsUnread()
