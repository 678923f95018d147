"""HS643."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from hsparity.drafter.checks.base import ERROR, NO_MODEL, NOTE, Unchecked, problem

if TYPE_CHECKING:
    from hsparity.drafter.checks.base import Case, Problem

LOW = ("F8_E4M3", "F8_E5M2", "U8", "I8", "I32")


class DraftDtype:
    """
    ## What it is
    The head is stored in another 16-bit format than its target runs in, or quantised without saying how.
    ## Why it happens
    Engines load the head in the target's dtype. float16 and bfloat16 round differently, and large values of a bfloat16 head
    overflow float16. Quantised weights without quantization_config are loaded as if they were not.
    ## How it shows
    A little acceptance lost; overflow or nonsense where the range does not do.
    ## Fix
    Nothing, as a rule; export the head in the target's dtype, and with its quantization_config where it has one.
    """

    code, name = "HS643", "draft-dtype"

    def look(self, case: Case) -> Sequence[Problem] | Unchecked:
        draft = case.draft
        fc = draft.tensors.get("fc.weight")
        quantised = sorted(
            {h.dtype for n, h in draft.tensors.items() if h.dtype in LOW and n.endswith("weight")}
        )
        config = draft.config.get("quantization_config") or draft.layer.get("quantization_config")
        if quantised and not config:
            return (
                problem(
                    self,
                    ERROR,
                    f"weights are stored as {quantised[0]} and the config does not say how",
                    sides=(
                        ("draft weights", ", ".join(quantised)),
                        ("draft config", "no quantization_config"),
                    ),
                    advice="export the head unquantised, or its quantization_config with it",
                ),
            )
        if case.target is None:
            return NO_MODEL
        runs = str(case.target.config.get("dtype") or case.target.config.get("torch_dtype") or "")
        mine = {"F16": "float16", "BF16": "bfloat16"}.get(fc.dtype if fc else "", "")
        if not mine or runs not in ("float16", "bfloat16") or runs == mine:
            return ()
        return (
            problem(
                self,
                NOTE,
                f"the head is stored in {mine}, its target runs in {runs}",
                sides=(("draft", f"fc.weight {mine}"), ("target", runs)),
            ),
        )


CHECK = DraftDtype()
