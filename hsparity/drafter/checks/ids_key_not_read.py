"""HS603."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from hsparity.drafter.checks.base import CONFIG, ERROR, NOTE, WARNING, Change, Unchecked, problem, spelled
from hsparity.drafter.classes import NESTED, TOP

if TYPE_CHECKING:
    from hsparity.drafter.checks.base import Case, Problem
    from hsparity.drafter.contract import Reading


class IdsKeyNotRead:
    """
    ## What it is
    The config names layers under a key that this engine's version does not read, and the engine feeds its default instead.
    ## Why it happens
    Speculators writes eagle_aux_hidden_state_layer_ids on the top level, SpecForge, ModelOpt and SGLang inside eagle_config.
    SGLang reads the inner one only; vLLM the outer one since 0.11.1, the inner one in its V1 runner since 0.22, and never
    in the V2 runner. What is not read is replaced by 2, L//2, L-3 without a word.
    ## How it shows
    The log names other layers than the config, or none; acceptance falls by as much as the layers differ.
    ## Fix
    Write the list under the key that this engine reads, in its own numbering; the report gives the line.
    """

    code, name = "HS603", "ids-key-not-read"

    def look(self, case: Case) -> Sequence[Problem] | Unchecked:
        draft, contract = case.draft, case.contract
        if contract.engine == "hf":
            return Unchecked("the reference code reads no list")
        written = draft.ids_by_key
        if not written:
            return ()
        missed = [r for r in contract.readings if r.default]
        if not missed:
            return ()
        key, ids = next(iter(written.items()))
        meant = _meanings(case, ids)
        reading = missed[0]
        if reading.boundaries is not None and case.trained is None and reading.boundaries in meant:
            return self._lucky(case, key, ids, reading)
        if case.trained is not None and reading.boundaries == case.trained.boundaries:
            return self._lucky(case, key, ids, reading)
        sure = contract.exact and len(missed) == len(contract.readings) and reading.boundaries is not None
        # The default may be what some rule would read from the list, and is then right by luck.
        settle = "" if sure else "--model M" if case.target is None else "--runner v1 or --runner v2"
        runner = f" in its {reading.runner.upper()} runner" if reading.runner else ""
        return (
            problem(
                self,
                ERROR if sure else WARNING,
                f"{key} is not read{runner}: it feeds {reading.spelled}",
                sides=(
                    ("draft", f"{key} {spelled(ids)}"),
                    (case.engine, f"reads no such key; boundaries {reading.spelled}, its default"),
                ),
                changes=_move(case, key),
                advice=_advice(case),
                settle=settle,
            ),
        )

    def _lucky(self, case: Case, key: str, ids: tuple[int, ...], reading: Reading) -> Sequence[Problem]:
        runner = f" in its {reading.runner.upper()} runner" if reading.runner else ""
        return (
            problem(
                self,
                NOTE,
                f"{key} is not read{runner}; the default happens to be the same layers",
                sides=(
                    ("draft", f"{key} {spelled(ids)}"),
                    (case.engine, f"boundaries {reading.spelled}, its default"),
                ),
                changes=_move(case, key),
            ),
        )


def _meanings(case: Case, ids: tuple[int, ...]) -> set[tuple[int, ...]]:
    """The boundaries that these ids may have been written for: as they stand, and as outputs of layers."""
    return {tuple(sorted(ids)), tuple(sorted(i + 1 for i in ids))}


def _move(case: Case, key: str) -> tuple[Change, ...]:
    """The list under the key that this engine reads. What a list means goes with its key: only where the trained boundaries
    are known can it be carried over."""
    wanted = NESTED if case.contract.engine == "sglang" else TOP
    if case.trained is None or (case.draft.layout == "speculators" and wanted == NESTED):
        return ()
    numbers = case.contract.rule.numbering.write(case.trained.boundaries, case.contract.num_layers).ids
    if numbers is None or key == wanted:
        return ()
    old = case.draft.ids_by_key.get(wanted)
    return (Change(CONFIG, wanted, spelled(old) if old else "", spelled(numbers)),)


def _advice(case: Case) -> str:
    if case.trained is not None and not case.contract.reads_no_list:
        return ""
    if case.contract.reads_no_list:
        return "this version reads no list, under any key: serve the head with a newer one"
    wanted = NESTED if case.contract.engine == "sglang" else TOP
    return f"write {wanted} as this engine numbers: {case.contract.rule.rule}; --trained-on gives the list"


CHECK = IdsKeyNotRead()
