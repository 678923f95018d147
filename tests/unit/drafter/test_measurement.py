"""The record of what an engine accepted: counting, intervals, and that a miscount is seen."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from hsparity.drafter.measurement import (
    Counts,
    MeasuredPrompt,
    Measurement,
    Step,
    counts,
    disagreements,
    engine_counts,
)
from hsparity.errors import HsparityError

# Prompt of 3 tokens; token 3 comes from the pass over it. The second step runs behind the end of the text.
PROMPT = MeasuredPrompt(
    id="a",
    prompt=(7, 8, 9),
    generated=(20, 21, 22, 23, 24),
    steps=(Step(4, (21, 22, 99), 2, 23), Step(7, (24, 25, 26), 3, 27)),
    counters={"spec_verify_ct": 2, "spec_correct_drafts_histogram": [0, 0, 1, 1], "completion_tokens": 5},
)
OTHER = MeasuredPrompt(
    id="b",
    prompt=(7,),
    generated=(30, 31, 32),
    steps=(Step(2, (99, 99, 99), 0, 31), Step(3, (98, 98, 98), 0, 32)),
    counters={
        "vllm:spec_decode_num_drafts": 2,
        "vllm:spec_decode_num_accepted_tokens_per_pos": [0, 0, 0],
    },
)


def record(*prompts: MeasuredPrompt, **changed: Any) -> Measurement:
    """A record of these prompts, in SGLang over one stand-in."""
    made = Measurement(
        engine="sglang",
        version="0.5.23",
        model="models/m",
        revision="",
        draft="heads/h",
        draft_sha256="ab" * 32,
        k=3,
        generate=5,
        stop_ids=(2,),
        dtype="bfloat16",
        ids=(2, 15, 27),
        ids_asked="config",
        aux_layers=(3, 16, 28),
        draft_class="LlamaForCausalLMEagle3",
        runner="EAGLEWorkerV2",
        attention_backend="torch_native",
        stand_ins=("sgl_kernel.verify_tree_greedy_cpu",),
        prompts=prompts,
    )
    return replace(made, **changed)


def test_steps_are_counted_as_engines_count_them() -> None:
    """A position is accepted in every step that took it, behind the end of the text too; the length has the bonus."""
    counted = counts(record(PROMPT, OTHER))
    assert counted.drafts == 4
    assert counted.accepted_per_position.tolist() == [2, 2, 1]
    assert counted.accept_length == 1 + 5 / 4
    assert counted.steps_p.tolist() == [2, 2]
    assert counted.accepted_pk.tolist() == [[2, 2, 1], [0, 0, 0]]
    assert counted.figures().tolist() == [2.25, 0.5, 0.5, 0.25, 0.5, 1.0, 0.5]


def test_the_text_goes_on_behind_what_was_returned() -> None:
    """Prompt, first token, accepted drafts and the target's own tokens, in order."""
    assert PROMPT.text == (7, 8, 9, 20, 21, 22, 23, 24, 25, 26, 27)
    assert not disagreements(record(PROMPT, OTHER))


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"steps": PROMPT.steps[:1]}, "1 steps that accepted 1, 1, 0 by position, and sglang counted 2"),
        ({"counters": {**PROMPT.counters, "spec_correct_drafts_histogram": [0, 1, 0, 1]}}, "with 2, 1, 1"),
        ({"counters": {}}, "sglang counted nothing"),
        (
            {"steps": (PROMPT.steps[0], replace(PROMPT.steps[1], first=8))},
            "a step begins at token 8, and the one before it ends before 7",
        ),
        ({"generated": (20, 21, 22, 23, 5)}, "the steps' tokens are not the text"),
    ],
)
def test_a_miscount_is_a_sentence(changed: dict[str, Any], said: str) -> None:
    """Steps lost, counted otherwise, out of place, or of another text are each told."""
    assert said in " ".join(disagreements(record(replace(PROMPT, **changed))))


def test_a_text_of_one_token_has_no_step() -> None:
    """SGLang gives no counter of a request without a step, and that agrees with none recorded."""
    lone = MeasuredPrompt("c", (7,), (2,), (), {"completion_tokens": 1})
    assert engine_counts(lone.counters, 3) == (0, [0, 0, 0])
    assert not disagreements(record(lone))
    counted = counts(record(lone, PROMPT))
    assert counted.drafts == 2
    assert np.isnan(counts(record(lone)).accept_length)


def test_a_record_survives_json() -> None:
    """What is written is what is read, tuples as tuples."""
    made = record(PROMPT, OTHER, command=("drafter", "measure"), warnings=("w",))
    assert Measurement.from_json(made.to_json()) == made
    assert Measurement.from_json(replace(made, ids=None).to_json()).ids is None


@pytest.mark.parametrize("text", ["", "{", "[1]", "{}", '{"schema": "hsparity.capture/1"}'])
def test_another_file_is_refused(text: str) -> None:
    """What is no record is E293."""
    with pytest.raises(HsparityError) as raised:
        Measurement.from_json(text)
    assert raised.value.code == "E293"


def test_intervals_are_drawn_over_prompts() -> None:
    """They hold the true rate about as often as they say; equal prompts leave no width, one prompt no interval."""
    draw = np.random.default_rng(5)
    rates = (0.7, 0.5, 0.3)
    held = np.zeros(3)
    for _ in range(120):
        steps_p = draw.integers(10, 30, 40)
        hits = [np.sort(draw.random(n)) for n in steps_p]
        accepted_pk = np.array([[np.searchsorted(h, rate) for rate in rates] for h in hits])
        low_k, high_k = Counts(steps_p, accepted_pk).intervals(draws=300)[1:4].T
        held += (low_k <= rates) & (rates <= high_k)
    assert (held / 120 > 0.86).all()
    same = Counts(np.array([4, 4]), np.array([[2, 1, 0], [2, 1, 0]])).intervals()
    assert same[:6].tolist() == [[1.75] * 2, [0.5] * 2, [0.25] * 2, [0.0] * 2, [0.5] * 2, [0.5] * 2]
    assert same[6].tolist() == [0.0, 0.0]
    assert np.isnan(Counts(np.array([4]), np.array([[2, 1, 0]])).intervals()).all()
