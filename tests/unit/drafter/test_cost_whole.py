"""The whole cost against an engine that drafts for itself, and on texts that were captured in other ways."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from hsparity.capture.read import open_source
from hsparity.capture.source import Source
from hsparity.drafter.draft import open_draft, weights_sha256
from hsparity.drafter.measurement import MeasuredPrompt, Step
from hsparity.drafter.result import DraftCost
from hsparity.model import Verdict
from tests.causes.streams import edited

from .costed import COUNT, LENGTH, PREFILL, STEPS, World, captured, counters, slots, texts
from .oracle import Oracle
from .test_measurement import record

LATE = ["boundary.003", "boundary.005", "boundary.006"]


@pytest.fixture(scope="module")
def late(world: World) -> Source:
    """The candidate whose engine feeds the head states of one layer later: some drafts come true, some do not."""
    return open_source(slots(captured(2, "sglang"), LATE, and_boundaries=True).write(world.folder / "late"))


@pytest.fixture(scope="module")
def cost(world: World, late: Source) -> DraftCost:
    """What it costs."""
    return world.price(late).cost


def decode(world: World, source: Source, keys: list[str], name: str) -> MeasuredPrompt:
    """Greedy speculative decoding of one text: the head reads its own drafts, one start at a time over the whole sequence."""
    oracle = Oracle(world.head, world.target)
    lm_head = load_file(world.head / "model.safetensors")["lm_head.weight"]
    text = texts()[name]
    fed = torch.cat([source.rows(name, k, np.arange(LENGTH)).float() for k in keys], dim=1)
    known, steps = PREFILL + 1, []
    while known + STEPS <= LENGTH:
        ids, drafts = torch.tensor(text[:known] + [0] * STEPS), []
        for j in range(1, STEPS + 1):
            with torch.no_grad():
                states = oracle.run(fed, ids, known - 2, j)
            drafts.append(int((states[-1] @ lm_head.T).argmax()))
            ids[known + j - 1] = drafts[-1]
        written = text[known : known + STEPS]
        accepted = next((j for j in range(STEPS) if drafts[j] != written[j]), STEPS)
        bonus = text[known + accepted] if known + accepted < LENGTH else 0
        steps.append(Step(known, tuple(drafts), accepted, bonus))
        known += accepted + 1
    return MeasuredPrompt(
        name, tuple(text[:PREFILL]), tuple(text[PREFILL:known]), tuple(steps), counters(steps, STEPS)
    )


def test_an_engine_measures_what_is_predicted(world: World, late: Source, tmp_path: Path) -> None:
    """An engine that reads its own drafts accepts, step for step, what the teacher-forced chains predict."""
    prompts = tuple(decode(world, late, LATE, n) for n in texts())
    draft = open_draft(str(world.head))
    made = record(*prompts, aux_layers=(3, 5, 6), draft_sha256=weights_sha256(draft))
    other = replace(made, aux_layers=(2, 4, 5))
    for name, each in (("late", made), ("other", other)):
        (tmp_path / f"{name}.json").write_text(each.to_json())
    names = tuple(str(tmp_path / f"{n}.json") for n in ("late", "other"))
    found = world.price(late, measured=names).cost
    accepted = [s.accepted for p in prompts for s in p.steps if s.first + STEPS <= min(LENGTH, len(p.text))]
    first, second = found.beside
    assert first.feed == "cand"
    assert first.predicted_steps == first.measured_steps == len(accepted) > 30
    assert first.predicted == first.measured
    assert first.accepted_difference is not None
    assert first.accepted_difference.value == 0.0
    assert 0.5 < float(np.mean(accepted)) < 2.5
    assert second.feed == "undone:HS101"  # the same engine with the fault undone
    assert second.accepted_difference is not None
    assert second.accepted_difference.value > 0.5


def test_by_prompt_and_by_position(cost: DraftCost) -> None:
    """The prompts' steps are the whole's; rows of each range of positions are those of the generated text."""
    found, cand = cost, cost.feed("cand")
    assert [b.label for b in found.by_prompt] == list(texts())
    assert sum(b.steps for b in found.by_prompt) == found.feed("ref").steps
    total = sum(b.cand * b.steps for b in found.by_prompt) / sum(b.steps for b in found.by_prompt)
    assert total == pytest.approx(cand.accepted.value, rel=0.15)  # a side's prompts take steps of their own
    assert [b.label for b in found.positions] == ["0-31"]
    assert found.positions[0].steps == COUNT * (LENGTH - PREFILL - STEPS + 1)
    assert found.positions[0].ref > found.positions[0].cand


def test_sampling_is_cheaper_than_greed(cost: DraftCost) -> None:
    """With both sides sampling a head of other distributions is accepted less; off by a layer less still."""
    ref, cand = cost.feed("ref"), cost.feed("cand")
    assert ref.sampled_accepted is not None
    assert cand.sampled_accepted is not None
    assert 0 < cand.sampled_accepted < ref.sampled_accepted < ref.accepted.value
    assert len(ref.sampled) == STEPS
    assert all(0 <= s <= 1 for s in ref.sampled)
    assert cost.feed("only:0").sampled_accepted is None


def whole(made: Any) -> Any:
    """The same captured in one pass: nothing says where the answer begins."""
    return edited(made, lambda _, s: s, prefill=dict.fromkeys(made.ids, LENGTH), generated={})


def test_a_text_captured_whole(world: World, cost: DraftCost, tmp_path: Path) -> None:
    """Without a generated part rows of prompts stand for it, and it is said; with the prompts given the walk is the same as of
    a capture that knows."""
    ref = open_source(whole(captured(1)).write(tmp_path / "ref"))
    cand = open_source(whole(slots(captured(2, "sglang"), LATE, True)).write(tmp_path / "cand"))
    blind = world.price(cand, ref).cost
    assert "each as a start" in blind.tokens
    assert any("--generate" in n for n in blind.notes)
    assert blind.feed("ref").steps == COUNT * (LENGTH - STEPS)
    prompts = tuple(tuple(t[:PREFILL]) for t in texts().values())
    told = world.price(cand, ref, prompts=prompts).cost
    assert told.feeds == cost.feeds
    assert told.notes == cost.notes == ()
    # A prompt that is the whole text tells nothing, and of two that fit the longer one is the prompt.
    long = tuple(tuple(t) for t in texts().values())
    assert world.price(cand, ref, prompts=(*long, *prompts)).cost.feeds == cost.feeds


def test_a_chain_longer_than_the_text(world: World, late: Source) -> None:
    """No start has all of its positions inside the text: no verdict, whatever the states."""
    found = world.price(late, steps=16, tokens="0:12").cost
    assert found.verdict is Verdict.INCONCLUSIVE
    assert found.feed("ref").steps == 0
    assert found.positions == ()


def test_the_first_tokens_alone(world: World, late: Source, cost: DraftCost) -> None:
    """--tokens cuts the text: fewer rows, the same agreement on those that are left."""
    cut = world.price(late, tokens="0:20").cost
    assert 0 < cut.feed("cand").steps < cost.feed("cand").steps
    assert cut.feed("ref").accepted.value > 2


def test_two_runs_are_one(world: World, late: Source, cost: DraftCost) -> None:
    """Nothing is drawn anew: the records of two runs are the same, byte for byte."""
    assert world.price(late).cost.to_json() == cost.to_json()
