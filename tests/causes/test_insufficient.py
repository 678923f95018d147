"""Where the evidence cannot decide, the answer is INCONCLUSIVE, exit 3, and nothing is accused."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from hsparity.cli.main import invoke
from tests.causes import real, streams
from tests.causes.streams import Capture, as_slots, edited

TOY = "toy"
MODELS = (TOY, *real.NAMES)
THREE = {TOY: (2, 4, 6), real.TINY: (2, 4, 6), real.SMOL: (2, 15, 27)}

Change = Callable[[Capture], Capture]


def engine(model: str, name: str) -> Capture:
    """A recorded capture without its branches, or the toy's in its place."""
    if model != TOY:
        made = real.load(model, name)
        return edited(made, lambda _, s: {k: x for k, x in s.items() if not k.startswith(real.BRANCHES)})
    seeds = {"hf-fp32": None, "hf-bf16": 0, "vllm": 1, "sglang": 2}
    facts: dict[str, Any] = {"engine": name.partition("-")[0]}
    if name.startswith("hf"):
        facts["version"] = "5.19.0"
    if name == "hf-fp32":
        facts["dtype"] = torch.float32
    return replace(streams.capture(seeds[name]), **facts)


def slots(model: str, by: int = 0) -> Change:
    chosen = tuple(b + by for b in THREE[model])
    return lambda made: edited(made, lambda _, s: as_slots(s, chosen))


def three(model: str, by: int = 0) -> Change:
    """Three boundaries alone, each holding the one `by` further on."""
    names = [f"boundary.{b:03d}" for b in THREE[model]]
    return lambda made: edited(
        made, lambda _, s: {k: s[f"boundary.{b + by:03d}"] for k, b in zip(names, THREE[model], strict=True)}
    )


def first_tokens(count: int) -> Change:
    """The first prompt alone, cut after `count` tokens."""

    def change(made: Capture) -> Capture:
        name = next(iter(made.states))
        states = {name: {k: v[:count] for k, v in made.states[name].items()}}
        ids = {name: list(made.ids[name])[:count]}
        return replace(made, states=states, ids=ids, prefill={}, generated={})

    return change


def prompt(name: str) -> Change:
    def change(made: Capture) -> Capture:
        return replace(
            made,
            states={name: made.states[name]},
            ids={name: made.ids[name]},
            prefill={k: v for k, v in made.prefill.items() if k == name},
            generated={},
        )

    return change


def equal_rows(made: Capture) -> Capture:
    """Every row of the capture is one and the same, and no sink."""
    name = next(iter(made.states))
    row = {k: v[1:2] for k, v in made.states[name].items()}
    return edited(made, lambda _, s: {k: np.repeat(row[k], len(v), 0) for k, v in s.items()})


def later(by: int) -> Change:
    """Every boundary holds the one `by` further on."""
    return lambda made: edited(made, lambda _, s: streams.shifted(s, by, made.model.layers))


def normed_last(made: Capture) -> Capture:
    last = f"boundary.{made.model.layers:03d}"
    return edited(made, lambda _, s: {**s, last: s["final_norm"]})


def idle_layer(made: Capture) -> Capture:
    """Layer 3 adds nothing: boundary 4 is boundary 3."""
    return edited(made, lambda _, s: {**s, "boundary.004": s["boundary.003"]})


@dataclass(frozen=True)
class Case:
    """Two captures of one model: what is done to the candidate's stream, then to every capture."""

    label: str
    model: str
    every: tuple[Change, ...] = ()
    cand: tuple[Change, ...] = ()
    ref_slots: Change | None = None
    cand_slots: Change | None = None
    floor: bool = False
    options: tuple[str, ...] = ()
    says: frozenset[str] = frozenset()  # true of the candidate, and plain enough to be said
    exits: tuple[int, ...] = (3,)

    @property
    def name(self) -> str:
        return f"{self.model}: {self.label}{', floor' if self.floor else ''}"


HOW: dict[str, tuple[Change, ...]] = {"healthy": (), "one later": (later(1),), "normed last": (normed_last,)}
NORMED = frozenset({"final-norm-applied"})
OFF = frozenset({"beyond-floor", "few-tokens-beyond"})  # that the candidate differs, not how


def three_on_both_sides() -> Iterator[Case]:
    for model in MODELS:
        listed = ("--boundaries", ",".join(map(str, THREE[model])))
        for by, how in ((0, "as they are"), (1, "one later")):
            for what, make in (("slots", slots), ("boundaries", three)):
                ref, cand = make(model), make(model, by)
                yield Case(f"three {what}, {how}", model, ref_slots=ref, cand_slots=cand, options=listed)


def few_tokens() -> Iterator[Case]:
    """Of boundaries above the embedding: equal tokens are equal rows there."""
    for model in MODELS:
        inner = ("--boundaries", f"1-{28 if model == real.SMOL else 6}")
        five = first_tokens(5) if model == TOY else prompt("p2")
        kinds = {"one token": first_tokens(1), "five tokens of one prompt": five, "equal rows": equal_rows}
        for (what, every), (how, cand) in product(kinds.items(), HOW.items()):
            says = NORMED if how == "normed last" else frozenset[str]()
            yield Case(f"{what}, {how}", model, (every,), cand, options=inner, says=says)
            # States that are off by as much as they are large are lost on any number of tokens.
            lost = how == "one later"
            yield Case(
                f"{what}, {how}", model, (every,), cand, floor=True, options=inner,
                says=says | OFF if lost else says, exits=(1, 3) if lost else (3,),
            )  # fmt: skip


def arranged(folder: Path, case: Case) -> list[str]:
    """Writes a case's captures; the arguments of its comparison."""

    def write(name: str, place: str, *changes: Change | None) -> None:
        made = engine(case.model, name)
        for change in changes:
            made = change(made) if change else made
        made.write(folder / place)

    write("vllm", "ref", *case.every, case.ref_slots)
    write("sglang", "cand", *case.cand, *case.every, case.cand_slots)
    arguments = ["compare", str(folder / "ref"), str(folder / "cand"), *case.options]
    if case.floor:
        write("hf-fp32", "floor/fp32", *case.every)
        write("hf-bf16", "floor/bf16", *case.every)
        arguments += ["--floor", str(folder / "floor")]
    return [*arguments, "--json", str(folder / "result.json")]


def accused(folder: Path) -> list[dict[str, Any]]:
    result = json.loads((folder / "result.json").read_text())
    return [f for f in result["findings"] if f["severity"] == "cause" and not f["ruled_out"]]


@pytest.mark.parametrize(
    "case", [*three_on_both_sides(), *few_tokens()], ids=lambda c: c.name.replace(" ", "-")
)
def test_what_cannot_be_decided_is_inconclusive(
    case: Case, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit 3 and no structural cause; what is said besides is true."""
    assert invoke(arranged(tmp_path, case)) in case.exits, capsys.readouterr()
    found = accused(tmp_path)
    assert [f["name"] for f in found if f["structural"]] == []
    assert {f["name"] for f in found} - case.says == set()


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("floor", [False, True])
def test_a_slot_that_fits_two_boundaries_is_not_placed(
    model: str, floor: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A layer that adds nothing leaves two equal boundaries: the slot is one of them, and the margin says so."""
    case = Case(
        "idle", model, (idle_layer,), cand_slots=lambda m: edited(m, lambda _, s: as_slots(s, (2, 4, 6)))
    )
    assert invoke(arranged(tmp_path, replace(case, floor=floor))) == 3
    lines = capsys.readouterr().out.splitlines()
    (row,) = [line for line in lines if line.startswith("cand slot.001")]
    assert row.endswith("not proved")
    assert float(row.split()[-3]) == pytest.approx(0.0, abs=0.05)
    assert sum(line.startswith("cand slot.") and line.endswith(" proved") for line in lines) == 3
    assert sum(line.startswith("cand slot.") and line.endswith("not proved") for line in lines) == 1
    assert accused(tmp_path) == []


def test_the_process_exits_3(tmp_path: Path) -> None:
    """What a shell sees of three slots on both sides."""
    case = next(three_on_both_sides())
    command = [sys.executable, "-m", "hsparity", *arranged(tmp_path, case)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 3, done.stderr
    assert "INCONCLUSIVE" in done.stdout
