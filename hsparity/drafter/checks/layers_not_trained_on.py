"""HS607."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from hsparity.drafter.checks.base import CONFIG, ERROR, NO_MODEL, WARNING, Change, Unchecked, problem, spelled
from hsparity.drafter.classes import NESTED, TOP

if TYPE_CHECKING:
    from hsparity.drafter.checks.base import Case, Problem


class LayersNotTrainedOn:
    """
    ## What it is
    This engine will feed the head other layers than it was trained on.
    ## Why it happens
    One list of ids means different layers in different tools: SGLang adds 1 for most families, vLLM does not, speculators 0.3
    and 0.4 meant outputs of layers, SpecForge writes 1, L//2-1, L-4 for boundaries 2, L//2, L-3. A list that is carried
    over as it stands is one layer off. See `hsparity conventions`.
    ## How it shows
    First-position acceptance well below the trainer's own evaluation, no error. Neighbouring layers are nearly parallel, so the
    head still accepts something.
    ## Fix
    Write the ids that mean the trained boundaries on this engine; the report gives the line.
    """

    code, name = "HS607", "layers-not-trained-on"

    def look(self, case: Case) -> Sequence[Problem] | Unchecked:
        contract, trained = case.contract, case.trained
        if trained is None:
            return Unchecked("what it was trained on is not known: --trained-on LIST or --trained-by TRAINER")
        if contract.reading.boundaries is None:
            return (
                NO_MODEL
                if contract.num_layers is None
                else Unchecked("the table has no rule for this target")
            )
        wanted = tuple(sorted(trained.boundaries))
        wrong = [
            r for r in contract.readings if r.boundaries is not None and tuple(sorted(r.boundaries)) != wanted
        ]
        if not wrong:
            return ()
        every = len(wrong) == len(contract.readings)
        sure = every and trained.given and contract.exact
        reading = wrong[0]
        runner = f" in its {reading.runner.upper()} runner" if not every else ""
        key = reading.key or "no key, its default"
        return (
            problem(
                self,
                ERROR if sure else WARNING,
                f"fed boundaries {reading.spelled}{runner}, trained on {', '.join(map(str, wanted))}",
                sides=(
                    ("trained", f"{', '.join(map(str, wanted))}  {trained.words}"),
                    (case.engine, f"{reading.spelled}  from {key}{_ids(reading.ids)}: {contract.rule.rule}"),
                ),
                changes=_write(case, wanted, reading.ids),
                rival="" if trained.given else "it was trained on the very layers that this engine feeds",
                settle=""
                if sure
                else "--runner v1 or --runner v2"
                if not every
                else "--trained-on with the boundaries that the trainer read",
            ),
        )


def _ids(ids: tuple[int, ...] | None) -> str:
    return f" {spelled(ids)}" if ids else ""


def _write(case: Case, wanted: tuple[int, ...], ids: tuple[int, ...] | None) -> tuple[Change, ...]:
    """The list that this engine reads as the trained boundaries."""
    numbers = case.contract.rule.numbering.write(wanted, case.contract.num_layers).ids
    key = NESTED if case.contract.engine == "sglang" else TOP
    if (
        numbers is None
        or case.contract.engine == "hf"
        or (case.draft.layout == "speculators" and key == NESTED)
    ):
        return ()
    old = case.draft.ids_by_key.get(key)
    return (Change(CONFIG, key, spelled(old) if old else "", spelled(numbers)),)


CHECK = LayersNotTrainedOn()
