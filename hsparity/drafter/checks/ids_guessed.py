"""HS604."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from hsparity.conventions.numbering import DEEPSEEK, GPT_OSS
from hsparity.drafter.checks.base import NO_MODEL, NOTE, Unchecked, problem, spelled

if TYPE_CHECKING:
    from hsparity.drafter.checks.base import Case, Problem


class IdsGuessed:
    """
    ## What it is
    This engine guesses from one id of the list how all of them are meant.
    ## Why it happens
    SGLang reads a list for DeepSeek and Kimi models as outputs of layers (boundary k + 1) when its first id is 1 and as
    boundaries otherwise; for gpt-oss as boundaries when the last boundary is in it and as outputs otherwise. The rule tells
    the two ways of writing apart for the lists that trainers write by default, and errs for others.
    ## How it shows
    All slots are one boundary off, and changing one id moves every slot.
    ## Fix
    Say with --trained-on which boundaries the head was trained on; the report then gives the list that is read as these.
    """

    code, name = "HS604", "ids-guessed"

    def look(self, case: Case) -> Sequence[Problem] | Unchecked:
        rule, reading = case.contract.rule, case.contract.reading
        layers = case.contract.num_layers
        if reading.ids is None or case.contract.engine != "sglang":
            return ()
        if rule.numbering is DEEPSEEK:
            odd = reading.ids[:1] == (1,)
            why = "the first id is 1, so 1 is added to all"
        elif rule.numbering is GPT_OSS:
            if layers is None:
                return NO_MODEL
            odd = max(reading.ids) == layers
            why = f"{layers} is among the ids, so nothing is added"
        else:
            return ()
        if not odd or (case.trained is not None and case.trained.boundaries == reading.boundaries):
            return ()
        return (
            problem(
                self,
                NOTE,
                f"the meaning of the ids is guessed: {why}",
                sides=(
                    ("draft", f"{reading.key} {spelled(reading.ids)}"),
                    (case.engine, f"boundaries {reading.spelled}"),
                ),
                settle="--trained-on LIST",
            ),
        )


CHECK = IdsGuessed()
