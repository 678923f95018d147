"""Real engines that agree are accused of nothing, in whatever shape they are handed over; what is wrong in its values
alone gets no structural name."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch

from hsparity.capture.read import open_source
from hsparity.compare import Query, compare
from hsparity.model import Comparison, Verdict
from tests.causes.distortions import DISTORTIONS, distorted
from tests.causes.faults.base import SLOTS, handed, query_of
from tests.causes.matrix import causes
from tests.causes.real import NAMES, TINY, load
from tests.causes.streams import Capture, States, edited

FLOOR, REPEAT, NONE = "floor", "repeat", "none"
SHAPES = ("all", *SLOTS)
VALUES = {
    "beyond-floor",
    "few-tokens-beyond",
}  # what may be said of states that are wrong in their values alone

Change = Callable[[Capture], Capture]


@dataclass(frozen=True)
class Case:
    label: str
    model: str
    ref: str = "hf-bf16"
    cand: str = "vllm"
    every: Change | None = None  # to both sides and the floor
    changed: Change | None = None  # to the candidate alone
    shape: str = "all"
    floor: str = FLOOR
    query: Query = field(default_factory=Query)

    @property
    def name(self) -> str:
        parts = (self.model, self.label, f"{self.ref} against {self.cand}", self.shape, self.floor)
        return "-".join("-".join(parts).replace(",", "").split())


def ran_as(made: Capture, other: Capture) -> Capture:
    """The states as another run of the engine that made `other`."""
    return replace(
        made, engine=other.engine, version=other.version, settings=other.settings, dtype=other.dtype
    )


def result_of(case: Case, folder: Path) -> Comparison:
    """The comparison of a case. With a repeat, all three captures are runs of the reference's engine."""

    def made(name: str, shape: str = "all", changed: Change | None = None) -> Capture:
        found = load(case.model, name)
        if case.floor == REPEAT:
            found = ran_as(found, load(case.model, case.ref))
        if case.every:
            found = case.every(found)
        if changed:
            found = changed(found)
        return found if shape == "branches" else handed(found, shape)

    whole = "branches" if case.shape == "branches" else "all"
    cand = made(case.cand, case.shape, case.changed)
    given = {FLOOR: ("hf-fp32", "hf-bf16"), REPEAT: ("sglang",), NONE: ()}[case.floor]
    ref = open_source(made(case.ref, whole).write(folder / "ref"))
    floors = [open_source(made(name).write(folder / f"floor-{name}")) for name in given]
    query = case.query
    if case.shape in SLOTS:
        query = replace(query_of(case.shape, ref.manifest.num_layers), tokens=query.tokens, tol=query.tol)
    return compare(ref, open_source(cand.write(folder / "cand")), floors, query)


def alone(prompt: str) -> Change:
    def change(made: Capture) -> Capture:
        return replace(
            made,
            states={prompt: made.states[prompt]},
            ids={prompt: made.ids[prompt]},
            prefill={k: n for k, n in made.prefill.items() if k == prompt},
            generated={k: t for k, t in made.generated.items() if k == prompt},
        )

    return change


def reordered(order: str) -> Change:
    """Rows in another order on disk, each with its true position."""

    def change(made: Capture) -> Capture:
        rng = np.random.default_rng(4)
        found = {}
        for prompt, ids in made.ids.items():
            rows = np.arange(len(ids))
            found[prompt] = (rows[::-1] if order == "reversed" else rng.permutation(rows)).tolist()
        return replace(made, positions=found)

    return change


def without_rows(which: str) -> Change:
    """A candidate that kept its decode rows alone, or all but them."""

    def change(made: Capture) -> Capture:
        held = {
            p: [i for i in range(len(ids)) if (i >= made.prefill[p]) == (which == "decode")]
            for p, ids in made.ids.items()
        }
        return replace(made, positions=held)

    return change


def parts(made: Capture) -> Capture:
    """`hidden` and `residual` from the branches, as an engine that returns both hands them over."""

    def change(_: str, states: States) -> States:
        found = dict(states)
        for k in range(made.model.layers):
            if (mlp := states.get(f"mlp_out.{k:03d}")) is not None:
                found[f"hidden.{k + 1:03d}"] = mlp
                found[f"residual.{k + 1:03d}"] = states[f"boundary.{k + 1:03d}"] - mlp
        return found

    return edited(made, change)


def shapes(model: str) -> Iterator[Case]:
    """Every shape against every kind of floor."""
    engines = ("hf-bf16", "vllm", "sglang")
    for i, shape in enumerate(SHAPES):
        pair = engines[i % 3], engines[(i + 1) % 3]
        yield Case("as captured", model, *pair, shape=shape)
        yield Case("as captured", model, *pair, shape=shape, floor=NONE)
        yield Case("as captured", model, "vllm", "hf-bf16", shape=shape, floor=REPEAT)


def selections(model: str) -> Iterator[Case]:
    """A prompt alone, tokens by every kind of slice, an offset, a tolerance."""
    prompts = list(load(model, "vllm").ids)
    tokens = ("prefill", "0:3", "2:", "1:4", *(("decode",) if model == TINY else ()))
    for floor in (FLOOR, NONE):
        for prompt in (prompts[0], prompts[1], prompts[-1]):
            yield Case(f"{prompt} alone", model, "vllm", "sglang", alone(prompt), floor=floor)
        for chosen in tokens:
            query = Query(tokens=chosen)
            yield Case(f"tokens {chosen}", model, "sglang", "vllm", floor=floor, query=query)
        yield Case("offset 0", model, "vllm", "sglang", floor=floor, query=Query(offset=0))
    for tol in (0.9, 2.0):
        yield Case(f"tol {tol:g}", model, floor=NONE, query=Query(tol=tol))


def layouts(model: str) -> Iterator[Case]:
    """Rows in another order on disk, another dtype, branches beside the stream, rows of one phase."""

    def bf16(made: Capture) -> Capture:
        return replace(made, dtype=torch.bfloat16)

    for floor in (FLOOR, NONE):
        for order in ("reversed", "shuffled"):
            yield Case(f"rows {order}", model, changed=reordered(order), floor=floor)
        yield Case("fp32 against itself rounded", model, "hf-fp32", "hf-fp32", changed=bf16, floor=floor)
        yield Case("fp32 against bf16", model, "hf-fp32", "sglang", floor=floor)
        if model != TINY:
            continue
        for pair in (("hf-bf16", "vllm"), ("vllm", "hf-bf16")):
            yield Case("branches", model, *pair, shape="branches", floor=floor)
            yield Case("hidden and residual", model, *pair, every=parts, shape="branches", floor=floor)
        for which in ("decode", "prefill"):
            query = Query(tokens=which)
            yield Case(f"{which} rows", model, changed=without_rows(which), floor=floor, query=query)


def healthy() -> Iterator[Case]:
    for model in NAMES:
        yield from (*shapes(model), *selections(model), *layouts(model))


@pytest.mark.parametrize("case", list(healthy()), ids=lambda c: c.name)
def test_engines_that_agree_are_accused_of_nothing(case: Case, tmp_path: Path) -> None:
    """No cause, whatever the verdict."""
    assert causes(result_of(case, tmp_path)) == []


def faulty(models: Sequence[str] = NAMES) -> Iterator[Case]:
    """Every distortion with a floor and without; models, whole streams and the shapes in turn."""
    turns = ("all", "three-last", "last", "three")
    for i, name in enumerate(DISTORTIONS):
        for j, model in list(enumerate(models))[i % 2 :: 2]:
            changed = partial(distorted, name=name)
            for k, floor in enumerate((FLOOR, NONE)):
                shape = turns[(i + 2 * j + k) % 4] if model == TINY or i % 2 else "all"
                yield Case(name, model, every=None, changed=changed, shape=shape, floor=floor)


@pytest.mark.parametrize("case", list(faulty()), ids=lambda c: c.name)
def test_wrong_values_get_no_structural_name(case: Case, tmp_path: Path) -> None:
    """Noise, a wrong rope, dropped experts, 4 bits and biases: beyond the floor, or nothing that can be said."""
    found = result_of(case, tmp_path)
    assert set(causes(found)) - VALUES == set()
    assert [f.name for f in found.findings if f.structural and not f.ruled_out] == []
    if case.floor == NONE:
        assert found.verdict is Verdict.INCONCLUSIVE
