"""The verdict on a cost: an accusation needs an interval that lies above what noise takes."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from hsparity.capture.read import open_source
from hsparity.drafter.judging import judged
from hsparity.drafter.result import Acceptance, Estimate
from hsparity.model import Verdict
from tests.causes.streams import States, edited

from .costed import IDS, VOCABULARY, World, captured, slots, write_head
from .heads import make_head

FOUND = SimpleNamespace(code="HS101", name="layer-offset", severity="cause", ruled_out=False)
DIVERGED = SimpleNamespace(findings=(FOUND,), verdict=Verdict.DIVERGED)
EQUAL = SimpleNamespace(findings=(), verdict=Verdict.PARITY)


def strictly(text: str) -> None:
    """Refuses the constants that Python writes and no other reader takes."""

    def refuse(name: str) -> None:
        raise AssertionError(f"{name} in JSON")

    json.loads(text, parse_constant=refuse)


def acceptance(key: str, accepted: float = 2.0, change: Estimate | None = None, **given: Any) -> Acceptance:
    return Acceptance(
        **{
            "key": key,
            "words": key,
            "steps": 100,
            "accepted": Estimate(accepted),
            "by_position": (),
            "conditional": (),
            "agreement": (),
            "change": change,
            **given,
        }
    )


def judge(
    low: float | None,
    high: float | None,
    value: float | None = None,
    ref: float = 2.0,
    noise: Estimate | None = None,
    comparison: Any = DIVERGED,
    generated: bool = True,
    more: tuple[Acceptance, ...] = (),
) -> tuple[Verdict, str, list[str], list[str]]:
    """The verdict on a change of `accepted` whose interval is low to high; negative is a loss."""
    middle = value if value is not None else ((low or 0.0) + (high or 0.0)) / 2
    made = [
        acceptance("ref", ref),
        acceptance("cand", ref + middle, Estimate(middle, low, high)),
        *([acceptance("noise", ref, noise)] if noise else []),
        *more,
    ]
    found: Any = judged(made, comparison, None, None, generated)  # type: ignore[arg-type]
    return found


@pytest.mark.parametrize(
    ("low", "high", "verdict"),
    [
        (-1.2, -0.8, Verdict.DIVERGED),
        (-0.3, -0.03, Verdict.DIVERGED),  # more than a hundredth of 2.0
        (-0.3, -0.01, Verdict.INCONCLUSIVE),  # may be less than that
        (-0.3, 0.1, Verdict.INCONCLUSIVE),
        (-0.09, 0.1, Verdict.PARITY),  # at most a twentieth
        (-0.11, 0.1, Verdict.INCONCLUSIVE),
        (0.0, 0.0, Verdict.PARITY),
        (0.2, 1.3, Verdict.PARITY),  # the candidate's states are the better ones
        (-0.05, 1.3, Verdict.PARITY),
        (-0.5, 1.3, Verdict.INCONCLUSIVE),
    ],
)
def test_the_interval_decides(low: float, high: float, verdict: Verdict) -> None:
    """DIVERGED where the whole interval is a loss beyond the slight; PARITY where none of it is more than a small one."""
    found, headline, _, _ = judge(low, high)
    assert found is verdict
    assert ("HS101" in headline) == (verdict is Verdict.DIVERGED)
    assert "-" not in headline.replace("layer-offset", "") or verdict is not Verdict.PARITY or high > 0


def test_a_cause_is_named_for_what_it_brings_back() -> None:
    """A finding that is undone and brings back less than half of the loss is not what costs it."""
    for regained, named in ((1.0, True), (0.6, True), (0.4, False), (-0.1, False)):
        undone = acceptance("undone:HS101", 1.0 + regained, Estimate(regained - 1.0, -1.2, 0.0))
        found, headline, _, _ = judge(-1.2, -0.8, more=(undone,))
        assert found is Verdict.DIVERGED
        assert ("HS101 layer-offset" in headline) == named


def test_noise_of_the_floor_raises_what_is_allowed() -> None:
    """A loss that noise of the floor's size may cost as well is no divergence."""
    assert judge(-0.3, -0.1)[0] is Verdict.DIVERGED
    noise = Estimate(-0.1, -0.2, 0.0)
    assert judge(-0.3, -0.1, noise=noise)[0] is Verdict.INCONCLUSIVE
    assert judge(-0.2, -0.1, noise=noise)[0] is Verdict.PARITY
    assert judge(-0.9, -0.4, noise=noise)[0] is Verdict.DIVERGED
    # Noise by which the head gains allows nothing more.
    assert judge(-0.3, -0.1, noise=Estimate(0.2, 0.1, 0.3))[0] is Verdict.DIVERGED


def test_one_prompt_is_no_evidence() -> None:
    """Without an interval there is neither parity nor divergence, however large the loss."""
    for value in (-1.9, 0.0, 0.5):
        assert judge(None, None, value)[0] is Verdict.INCONCLUSIVE


def test_an_idle_head_accuses_nobody() -> None:
    """A head that gets nothing accepted anywhere is inconclusive, whatever the states are."""
    for low, high in ((-0.09, -0.08), (0.0, 0.0), (0.5, 2.0)):
        found, headline, _, following = judge(low, high, ref=0.09)
        assert found is Verdict.INCONCLUSIVE
        assert "HS101" not in headline
        assert following[0].startswith("hsparity drafter check")


def test_no_step_is_no_verdict() -> None:
    """A text shorter than the chain says nothing."""
    made = [acceptance("ref", 0.0, steps=0), acceptance("cand", 0.0, Estimate(0.0, 0.0, 0.0), steps=0)]
    found = judged(made, DIVERGED, None, None, True)  # type: ignore[arg-type]
    assert found[0] is Verdict.INCONCLUSIVE
    assert "shorter than the chain" in found[1]


def test_a_figure_that_is_not_finite_is_no_parity() -> None:
    """Not a number compares as neither, and rows that are not finite take parity away but not a divergence."""
    assert judge(float("nan"), float("nan"))[0] is Verdict.INCONCLUSIVE
    assert judge(float("nan"), float("nan"), ref=float("nan"))[0] is Verdict.INCONCLUSIVE
    for low, high, verdict in ((0.0, 0.0, Verdict.INCONCLUSIVE), (-1.2, -0.8, Verdict.DIVERGED)):
        cand = acceptance("cand", 2.0, Estimate((low + high) / 2, low, high), nonfinite=3)
        found, _, notes, _ = judged([acceptance("ref"), cand], DIVERGED, None, None, True)  # type: ignore[arg-type]
        assert found is verdict
        assert "3 rows are not finite" in notes[0]


def test_where_the_head_was_trained_is_told_by_its_interval() -> None:
    """Another layer's states have to be better beyond the interval; by less than a fifth the word is "perhaps"."""

    def notes(accepted: float, low: float | None) -> list[str]:
        shift = acceptance(
            "shift:+1", accepted, Estimate(accepted - 2.0, low, 9.0), words="boundaries 3, 5, 6"
        )
        return judge(0.0, 0.0, more=(shift,))[2]

    assert any("boundaries 3, 5, 6" in n and "probably" in n for n in notes(2.5, 0.3))
    assert any("boundaries 3, 5, 6" in n and "perhaps" in n for n in notes(2.3, 0.2))
    assert notes(2.5, -0.1) == []
    assert notes(2.5, None) == []


def test_prompts_instead_of_generated_text_are_said() -> None:
    """Rows that no engine drafts from are never used without a word."""
    assert any("--generate" in n for n in judge(0.0, 0.0, generated=False)[2])
    assert judge(0.0, 0.0)[2] == []


def test_states_at_parity_are_not_compared_again() -> None:
    """compare is advised only where its own verdict is no parity."""
    assert any(line.startswith("hsparity compare") for line in judge(0.0, 0.0)[3])
    assert not any(line.startswith("hsparity compare") for line in judge(0.0, 0.0, comparison=EQUAL)[3])


def test_equal_captures(world: World) -> None:
    """A capture against itself costs nothing at all, in every figure and every feeding of the candidate."""
    found = world.price(world.ref).cost
    assert found.verdict is Verdict.PARITY
    assert found.state_verdict is Verdict.PARITY
    change = found.feed("cand").change
    assert change == Estimate(0.0, 0.0, 0.0)
    assert found.feed("cand").by_position == found.feed("ref").by_position
    assert found.feed("ref").accepted.value > 2


def test_a_head_of_noise(world: World, tmp_path: Path) -> None:
    """A head that was never fitted drafts nothing: inconclusive, even on states a layer off, and the states are not named."""
    head = make_head(
        tmp_path / "idle", hidden=64, vocab=VOCABULARY, draft_vocab=VOCABULARY, target_hidden=128, ids=IDS
    )
    cand = open_source(
        slots(captured(2, "sglang"), ["boundary.003", "boundary.005", "boundary.006"]).write(
            tmp_path / "cand"
        )
    )
    found = world.price(cand, head=head).cost
    assert found.verdict is Verdict.INCONCLUSIVE
    assert found.state_verdict is Verdict.DIVERGED
    assert "HS" not in found.headline


def test_one_prompt(world: World, tmp_path: Path) -> None:
    """One prompt of states a layer off costs nearly everything, and has no interval: inconclusive."""
    made = slots(captured(2, "sglang"), ["boundary.004", "boundary.002", "boundary.005"])
    one = replace(made, states={"p0": made.states["p0"]}, ids={"p0": made.ids["p0"]})
    found = world.price(open_source(one.write(tmp_path / "cand")))
    assert found.change("cand") < -1.5
    assert found.cost.verdict is Verdict.INCONCLUSIVE
    assert found.cost.feed("cand").accepted.low is None


@pytest.mark.parametrize("name", ["fc.weight", "lm_head.weight", "midlayer.mlp.up_proj.weight"])
def test_weights_that_are_not_finite(name: str, world: World, tmp_path: Path) -> None:
    """One NaN in the head's weights is no head that drafts token 0, and never parity."""
    head = write_head(tmp_path / "head", world.target)
    tensors = load_file(head / "model.safetensors")
    tensors[name][0, 0] = torch.nan
    save_file(tensors, head / "model.safetensors", metadata={"format": "pt"})
    found = world.price(world.healthy, head=head, ids=()).cost
    assert found.verdict is Verdict.INCONCLUSIVE
    assert "not finite" in found.headline
    assert found.feed("ref").accepted.value == 0.0
    strictly(found.to_json())


@pytest.mark.parametrize(
    ("side", "prompts", "row", "verdict"),
    [
        ("cand", 1, 8, Verdict.INCONCLUSIVE),
        ("cand", 9, 8, Verdict.DIVERGED),
        ("cand", 9, -1, Verdict.INCONCLUSIVE),  # the last row: no chain that counts reads it
        ("ref", 9, 8, Verdict.INCONCLUSIVE),
        ("both", 1, 8, Verdict.INCONCLUSIVE),
        ("both", 9, 8, Verdict.INCONCLUSIVE),
    ],
)
def test_states_that_are_not_finite(
    side: str, prompts: int, row: int, verdict: Verdict, world: World, tmp_path: Path
) -> None:
    """Rows of NaN are counted as accepted nowhere, are said, and never end in parity, though both sides have them."""

    def spoil(name: str, states: States) -> States:
        if int(name[1:]) < prompts:
            for rows in states.values():
                rows[row] = np.nan
        return states

    ref, cand = captured(1), captured(2, "vllm")
    ref = edited(ref, spoil) if side != "cand" else ref
    cand = edited(cand, spoil) if side != "ref" else cand
    sides = [open_source(m.write(tmp_path / n)) for m, n in ((ref, "ref"), (cand, "cand"))]
    found = world.price(sides[1], sides[0]).cost
    assert found.verdict is verdict
    assert any("not finite" in n for n in found.notes)
    assert found.from_json(found.to_json()).feed("cand").nonfinite == found.feed("cand").nonfinite
    strictly(found.to_json())
