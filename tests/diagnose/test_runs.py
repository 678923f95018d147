"""Causes of how an engine was run: modes, batches, phases and dtypes, with a floor and by bit-equality alone."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from hsparity.model import Comparison, Finding
from tests.causes.streams import Capture, States, edited
from tests.diagnose import plants
from tests.diagnose.conftest import Judge
from tests.diagnose.runs import Setup, run
from tests.diagnose.test_planted import ENGINE, LLAMA, hypotheses

DECODED = 12


def engine(setup: Setup | None = None, **settings: object) -> Capture:
    return run(setup or Setup(LLAMA), engine="vllm", settings={**ENGINE, **settings})


def nudged(made: Capture, rows: slice, size: float, seed: int = 5) -> Capture:
    """Simulated: every layer's output of these rows off by `size` of the state, as other sums would leave it."""

    def change(prompt: str, states: States) -> States:
        rng = np.random.default_rng((seed, len(prompt)))
        found = dict(states)
        for key, x in states.items():
            if key != "boundary.000":
                noise = rng.standard_normal(x[rows].shape)
                noise *= np.linalg.norm(x[rows], axis=1, keepdims=True) / np.linalg.norm(
                    noise, axis=1, keepdims=True
                )
                found[key][rows] = x[rows] + size * noise
        return found

    return edited(made, change)


def named(result: Comparison) -> list[str]:
    return [f.name for f in hypotheses(result)]


def of(result: Comparison, name: str) -> Finding:
    return next(f for f in result.findings if f.name == name)


def test_simulated_stale_buffer_of_a_decode_graph(judged: Judge) -> None:
    """Simulated at file level: decoded rows of a graph run hold noise of a stale buffer. The graph or its decoding is
    named, and chunks and linear layers are not."""
    decode = Setup(LLAMA, decode=DECODED)
    made = nudged(engine(decode, mode="graphs"), slice(-DECODED, None), 0.05)
    found = hypotheses(judged(made, ref=engine(decode)))
    assert {f.name for f in found[:2]} == {"graph-or-compile", "prefill-decode"}
    assert "padded" in next(f for f in found if f.name == "graph-or-compile").rival


def test_equal_modes_rule_the_graph_out(judged: Judge) -> None:
    """Two eager runs have no graph to blame."""
    result = judged(run(Setup(LLAMA), plants.softmax_scale(1.2), engine="vllm", settings=ENGINE))
    assert of(result, "graph-or-compile").ruled_out
    assert of(result, "dtype-rounding").ruled_out
    assert of(result, "batch-variance").ruled_out


def test_a_compiled_side_that_alone_differs_is_named(judged: Judge) -> None:
    """Without a floor for two runs of one engine, the one setting that differs is possible, and no more."""
    made = nudged(engine(mode="compiled"), slice(None), 0.004)
    found = hypotheses(judged(made, ref=engine(), floor=False))
    assert [(f.name, f.confidence) for f in found] == [("graph-or-compile", "possible")]
    assert any("no floor" in line for line in found[0].against)


def test_rows_of_other_batches_differ_in_their_bits(judged: Judge) -> None:
    """Rows that shared a pass with other prompts differ, rows computed alone are equal in every bit: batch variance."""
    ref, cand = engine(), engine(batch=4)
    alone = {name: [10 * i] * len(ids) for i, (name, ids) in enumerate(ref.ids.items())}
    shared = dict(alone)
    for name in ("p0", "p1", "p2"):
        shared[name] = alone["p0"]  # one pass for three prompts

    def change(prompt: str, states: States) -> States:
        rows = slice(None) if prompt in ("p0", "p1", "p2") else slice(0, 0)
        return nudged(replace(cand, states={prompt: states}), rows, 0.003).states[prompt]

    made = replace(edited(cand, change), steps=shared)
    found = hypotheses(judged(made, ref=replace(ref, steps=alone), floor=False))
    assert found[0].name == "batch-variance"
    assert found[0].confidence == "likely"


def test_decoded_against_prompt_rows_by_bits(judged: Judge) -> None:
    """The same tokens decoded on one side and part of the prompt on the other: rows of one phase are equal, the rest not."""
    whole, decoded = engine(), engine(Setup(LLAMA, decode=DECODED))
    made = nudged(replace(whole, prefill=decoded.prefill), slice(-DECODED, None), 0.003)
    found = hypotheses(judged(made, ref=whole, floor=False))
    assert found[0].name == "prefill-decode"


def test_dtypes_that_differ_are_named_without_a_floor(judged: Judge) -> None:
    """float16 against bfloat16 of one engine, apart by what roundings explain."""
    import torch

    made = run(Setup(LLAMA, dtype=torch.float16), engine="vllm", settings=ENGINE)
    found = hypotheses(judged(made, ref=engine(), floor=False))
    assert [(f.name, f.confidence) for f in found] == [("dtype-rounding", "possible")]


def test_an_attention_backend_that_alone_differs_is_possible(judged: Judge) -> None:
    """One engine with two kernels, no floor: the backend is possible; with a floor the pair is within noise."""
    made = engine(Setup(LLAMA, attention="sdpa"))
    found = hypotheses(judged(made, ref=engine(), floor=False))
    assert [(f.name, f.confidence) for f in found] == [("attention-backend", "possible")]


def test_a_result_of_an_older_version_is_readable(judged: Judge) -> None:
    """A result without fingerprint or confidence words is read as one that has none."""
    import json

    from hsparity.model import from_json, to_json

    raw = json.loads(to_json(judged(engine())))
    del raw["fingerprint"]
    for finding in raw["findings"]:
        for key in ("against", "confidence", "explained_low", "explained_high"):
            del finding[key]
    assert from_json(json.dumps(raw)).fingerprint is None
