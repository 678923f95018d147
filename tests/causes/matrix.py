"""The confusion matrix: every fault in every variant on real streams, against the cause that is named first.

python -m tests.causes.matrix [FILE] prints it as Markdown, or writes it.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from hsparity.capture.read import open_source
from hsparity.capture.source import Source
from hsparity.compare import compare
from hsparity.errors import HsparityError
from hsparity.model import Comparison
from hsparity.query import Query
from tests.causes.faults import FAULTS
from tests.causes.faults.base import SLOTS, Change, handed, query_of, with_facts
from tests.causes.faults.pairs import PAIRS
from tests.causes.real import NAMES, load
from tests.causes.streams import Capture, edited

NOTHING = "nothing"
THOROUGH = 1  # variants of a fault that the tests try on both models
TRIED = 3  # variants that the tests try at all; `make confusion` tries every one
FLOOR = ("hf-fp32", "hf-bf16")


@dataclass(frozen=True)
class Step:
    change: Change
    options: Mapping[str, Any]
    handed_over: bool = False


@dataclass(frozen=True)
class Case:
    """A candidate, how it was damaged, and the names that have to be found; none for a healthy pair."""

    expected: tuple[str, ...]
    label: str
    model: str
    ref: str = "hf-bf16"
    cand: str = "vllm"
    steps: tuple[Step, ...] = ()
    shape: str = "all"
    floor: bool = True
    query: Query | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)
    unit: float = 1.0
    ref_steps: tuple[Step, ...] = ()

    @property
    def name(self) -> str:
        what = "+".join(self.expected) or "healthy"
        floor = "" if self.floor else ", no floor"
        return f"{what}: {self.label} ({self.model}, {self.ref} against {self.cand}, {self.shape}{floor})"

    @cached_property
    def layers(self) -> int:
        return load(self.model, self.ref).model.layers

    @property
    def claim(self) -> Query:
        return self.query or query_of(self.shape, self.layers)

    def candidate(self) -> Capture:
        """The damaged capture, as it is handed over."""
        made = in_unit(load(self.model, self.cand), self.facts, self.unit)
        for step in self.steps:
            if not step.handed_over:
                made = step.change(made, **step.options)
        made = handed(made, self.shape)
        for step in self.steps:
            if step.handed_over:
                made = step.change(made, **step.options)
        return made


def in_unit(made: Capture, facts: Mapping[str, Any], unit: float) -> Capture:
    """The capture of the same model in another unit of its stream, its config saying `facts`."""
    if facts:
        made = with_facts(made, **facts)
    if unit == 1.0:
        return made
    # The norm takes the unit out again; beside a larger stream epsilon is nothing.
    model = replace(made.model, eps=made.model.eps * min(unit, 1.0) ** 2)
    scaled = edited(made, lambda _, s: {k: x if k == "final_norm" else x * unit for k, x in s.items()})
    return replace(scaled, real=model)


class Bench:
    """Runs cases; the undamaged captures are written into its folder once."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._opened: dict[Any, Source] = {}
        self._runs = 0

    def run(self, case: Case) -> Comparison:
        """The comparison of a case. Raises what `compare` raises."""
        ref = self._undamaged(case, case.ref)
        floors = [self._undamaged(case, name) for name in FLOOR] if case.floor else []
        self._runs += 1
        folder = self.folder / f"run-{self._runs:04d}"
        if case.ref_steps:
            made = in_unit(load(case.model, case.ref), case.facts, case.unit)
            for step in case.ref_steps:
                made = step.change(made, **step.options)
            ref = open_source(made.write(folder / "ref"))
        cand = open_source(case.candidate().write(folder / "cand"))
        try:
            return compare(ref, cand, floors, case.claim)
        finally:
            cand.close()
            shutil.rmtree(folder)

    def _undamaged(self, case: Case, name: str) -> Source:
        key = (case.model, name, tuple(sorted(case.facts.items())), case.unit)
        if key not in self._opened:
            made = in_unit(load(case.model, name), case.facts, case.unit)
            folder = self.folder / f"{len(self._opened):03d}-{case.model}-{name}"
            self._opened[key] = open_source(made.write(folder))
        return self._opened[key]


def single_cases(everything: bool = True) -> Iterator[Case]:
    """Every fault, variant and model; else a fault's first variants, on which the models take turns."""
    for fault in FAULTS:
        for i, variant in enumerate(fault.variants if everything else fault.variants[:TRIED]):
            turn = variant.models[i % len(variant.models)]
            for model in variant.models if everything or i < THOROUGH else (turn,):
                step = Step(fault.change, variant.options, fault.handed_over)
                made: dict[str, Any] = {"ref_steps" if fault.side == "ref" else "steps": (step,)}
                yield Case((fault.name,), variant.label, model, **_how(variant), **made)


def pair_cases() -> Iterator[Case]:
    for pair in PAIRS:
        faults = pair.faults
        steps = tuple(Step(c, o, f.handed_over) for (c, o), f in zip(pair.steps, faults, strict=True))
        label = " + ".join(", ".join(f"{k} {x}" for k, x in o.items()) or "as it is" for _, o in pair.steps)
        for model in pair.how.models:
            yield Case((faults[0].name, faults[1].name), label, model, steps=steps, **_how(pair.how))


def _how(variant: Any) -> dict[str, Any]:
    return {
        name: getattr(variant, name) for name in ("ref", "cand", "shape", "floor", "query", "facts", "unit")
    }


def healthy_cases() -> Iterator[Case]:
    """Engines that agree, in every order; a capture and itself; every shape, with a floor and without."""
    engines = ("hf-bf16", "vllm", "sglang")
    for model in NAMES:
        for ref in engines:
            for cand in engines:
                yield Case((), "equal" if ref == cand else "as captured", model, ref, cand)
        yield Case((), "bf16 against fp32", model, "hf-fp32", "vllm")
        yield Case((), "fp32 against bf16", model, "sglang", "hf-fp32")
        for i, shape in enumerate(("all", *SLOTS)):
            ref, cand = (("hf-bf16", "vllm"), ("vllm", "sglang"))[i % 2]
            yield Case((), "as captured", model, ref, cand, shape=shape, floor=False)
            if shape != "all":
                yield Case((), "as captured", model, cand, ref if ref == "vllm" else "sglang", shape=shape)


def causes(result: Comparison) -> list[str]:
    """Names of the causes found, first the one that explains most."""
    return [f.name for f in result.findings if f.severity == "cause" and not f.ruled_out]


@dataclass(frozen=True)
class Outcome:
    case: Case
    found: tuple[str, ...]  # causes in order; an error's code where the comparison was refused

    @property
    def first(self) -> str:
        return self.found[0] if self.found else NOTHING

    @property
    def right(self) -> bool:
        if not self.case.expected:
            return not self.found
        return self.first in self.case.expected and set(self.case.expected) <= set(self.found)


def outcomes(cases: Sequence[Case], folder: Path) -> list[Outcome]:
    bench, found = Bench(folder), []
    for case in cases:
        try:
            found.append(Outcome(case, tuple(causes(bench.run(case)))))
        except HsparityError as error:
            found.append(Outcome(case, (error.code,)))
    return found


def markdown(singles: Sequence[Outcome], pairs: Sequence[Outcome], healthy: Sequence[Outcome]) -> str:
    """The matrix (rows: the fault that was made; columns: the cause named first), the pairs and every miss."""
    rows = list(dict.fromkeys(o.case.expected[0] for o in singles))
    counts = Counter((o.case.expected[0], o.first) for o in singles)
    others = sorted({o.first for o in singles} - set(rows))
    columns = [*rows, *others]
    lines = ["# Which cause is named first", "", _summary(singles, pairs, healthy), ""]
    lines += ["Rows: the fault that was made. Columns: the cause named first, by its row's number.", ""]
    heads = [*(str(i) for i in range(1, len(rows) + 1)), *others]
    lines += [f"| | made | {' | '.join(heads)} |", "|--:|---|" + "--:|" * len(columns)]
    for i, row in enumerate(rows, 1):
        cells = " | ".join(str(counts[row, column] or "·") for column in columns)
        lines.append(f"| {i} | {row} | {cells} |")
    lines += ["", "## Two faults at once", "", "| made | named, in order | |", "|---|---|---|"]
    lines += [
        f"| {' + '.join(o.case.expected)} | {', '.join(o.found) or NOTHING} | {_word(o)} |" for o in pairs
    ]
    wrong = [o for o in (*singles, *pairs, *healthy) if not o.right]
    lines += ["", "## Not as they should be", ""]
    lines += [f"- {o.case.name}: {', '.join(o.found) or NOTHING}" for o in wrong] or ["None."]
    return "\n".join(lines) + "\n"


def _word(outcome: Outcome) -> str:
    return "right" if outcome.right else "wrong"


def _summary(singles: Sequence[Outcome], pairs: Sequence[Outcome], healthy: Sequence[Outcome]) -> str:
    def share(found: Sequence[Outcome]) -> str:
        return f"{sum(o.right for o in found)} of {len(found)}"

    return (
        f"Real captures of {' and '.join(NAMES)}, damaged in {len(singles)} ways. Own name first: {share(singles)}; "
        f"both of two faults, one of them first: {share(pairs)}; healthy pairs without a cause: {share(healthy)}."
    )


def matrix(folder: Path) -> str:
    return markdown(
        outcomes(list(single_cases()), folder / "singles"),
        outcomes(list(pair_cases()), folder / "pairs"),
        outcomes(list(healthy_cases()), folder / "healthy"),
    )


def main(file: str = "") -> None:
    with tempfile.TemporaryDirectory(prefix="hsparity-matrix-") as scratch:
        text = matrix(Path(scratch))
    if file:
        Path(file).write_text(text)
    else:
        sys.stdout.write(text)


if __name__ == "__main__":
    main(*sys.argv[1:2])
