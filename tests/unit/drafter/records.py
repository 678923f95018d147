"""Records of a draft's cost for the tests of its pages: a real one, one with every part, one whose every text is hostile."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from hsparity.drafter.result import Acceptance, Beside, Bin, DraftCost, Estimate, FedSide
from hsparity.model import Verdict

NAN = float("nan")
HOSTILE = '<script>alert(1)</script><img src=x onerror=alert(2)>" &amp; \x1b[31m\u202e'


def real() -> DraftCost:
    """The specimen's."""
    path = Path(__file__).parents[3] / "reports" / "drafter" / "report.json"
    return DraftCost.from_json(path.read_text(encoding="utf-8"))


def full() -> DraftCost:
    """Two findings, the floor's noise, a slot that stands in, and measurements: over stand-ins, and one that cannot be laid
    beside."""
    feeds = (
        _feed("ref", "ref", 1.5),
        _feed("cand", "cand, as it is", 0.5, -1.0),
        _feed("undone:HS101", "HS101 layer-offset undone", 0.9, -0.6, note="the candidate's own states"),
        _feed(
            "undone:HS201", "HS201 final-norm-applied undone", 0.8, -0.7, stands_in=("slot.002", "slot.003")
        ),
        _feed("undone:all", "all undone: numerics alone", 1.49, -0.01),
        _feed("noise", "ref, with the floor's noise", 1.48, -0.02),
        _feed("only:0", "slot 0: slot.000", 1.2, -0.3),
        _feed("only:1", "slot 1: slot.001", 1.3, -0.2),
        _feed("shift:+1", "boundaries 3, 16", 1.1, -0.4),
    )
    measured = Beside(
        path="measured/sglang.json",
        engine="sglang",
        version="0.5.23",
        boundaries=(3, 16),
        stand_ins=("sgl_kernel.tree", "verify_greedy"),
        feed="cand",
        prompts=6,
        predicted_steps=180,
        measured_steps=175,
        predicted=(_spread(0.35), _spread(0.12), _spread(0.03)),
        measured=(_spread(0.37), _spread(0.1), _spread(0.03)),
        difference=(_spread(-0.02), _spread(0.02), _spread(0.0)),
        predicted_accepted=_spread(0.5),
        measured_accepted=_spread(0.5),
        accepted_difference=_spread(0.0),
    )
    other = Beside("measured/vllm.json", "vllm", "0.32.0", (2, 15), ("verify_greedy",)).because(
        "it ran on boundaries 2, 15, and predicted was cand: 3, 16"
    )
    return DraftCost(
        schema="hsparity.draft-cost/1",
        hsparity="0.1.0",
        verdict=Verdict.DIVERGED,
        headline="the difference costs 1.00 of 1.50 accepted draft tokens a step: HS101 layer-offset",
        draft="heads/mine",
        layout="midlayer",
        runner="hsparity 0.1.0, float32",
        model="models/m",
        steps=3,
        tokens="steps along the generated text, as an engine takes them",
        ref=FedSide(
            "captures/hf", "hf", "5.24.0", ("boundary.002",) * 2, ("boundary 2",) * 2, "the config", "a"
        ),
        cand=FedSide(
            "captures/sglang", "sglang", "0.5.23", ("slot.000", "slot.001"), ("not told",) * 2, "its", "b"
        ),
        prompts=2,
        dropped=("prompt 7: fewer than 2 rows",),
        states="Candidate layer N holds what the reference calls layer N-1.",
        state_verdict=Verdict.DIVERGED,
        feeds=feeds,
        positions=(Bin("0-31", 40, 1.4, 0.6), Bin("32-127", 140, 1.6, 0.4)),
        by_prompt=(Bin("a", 90, 1.5, 0.5), Bin("b", 0, NAN, NAN)),
        notes=("the head does better on other states of the reference",),
        next=("hsparity compare captures/hf captures/sglang",),
        command=("hsparity", "drafter", "heads/mine", "captures/hf", "captures/sglang"),
        beside=(measured, other),
    )


def single() -> DraftCost:
    """One prompt, which leaves no interval; one draft position, nothing accepted, nothing beside it."""
    nothing = Acceptance("ref", "ref", 0, Estimate(0.0), (NAN,), (NAN,), (NAN,))
    return replace(
        full(),
        verdict=Verdict.INCONCLUSIVE,
        headline="no row of the shared text can be drafted from: it is shorter than the chain",
        steps=1,
        feeds=(nothing, replace(nothing, key="cand", words="cand, as it is", change=Estimate(0.0))),
        positions=(),
        by_prompt=(),
        beside=(),
        dropped=(),
        notes=(),
        command=(),
    )


def hostile() -> DraftCost:
    """The full one with markup, a terminal escape and a bidirectional control in every text that is foreign."""
    raw = json.loads(full().to_json())
    return DraftCost.from_json(json.dumps(_infested(raw, "")))


def _infested(node: Any, key: str) -> Any:
    if isinstance(node, dict):
        return {k: _infested(v, k) for k, v in node.items()}
    if isinstance(node, list):
        return [_infested(v, key) for v in node]
    if isinstance(node, str) and node and key not in ("schema", "verdict", "state_verdict", "key"):
        return f"{node} {HOSTILE}"
    return node


def _spread(value: float) -> Estimate:
    return Estimate(value, value - 0.05, value + 0.05)


def _feed(key: str, words: str, accepted: float, change: float | None = None, **more: Any) -> Acceptance:
    by_position = tuple(round(accepted * share, 3) for share in (0.6, 0.3, 0.1))
    return Acceptance(
        key,
        words,
        180,
        _spread(accepted),
        by_position,
        (by_position[0], 0.5, NAN),
        by_position,
        (0.5, 0.4, 0.3),
        accepted + 0.1,
        None if change is None else _spread(change),
        **more,
    )


COSTS: dict[str, Callable[[], DraftCost]] = {
    "cost-real": real,
    "cost-full": full,
    "cost-single": single,
    "cost-hostile": hostile,
}
