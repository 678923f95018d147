"""Bisections on vLLM and SGLang: what a setting does, proved by the engine's own capture."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from hsparity import engines
from hsparity.capture.read import open_source
from hsparity.engines.child import clean_environment
from hsparity.experiments.bisecting import Wanted, bisect
from hsparity.experiments.knobs import knobs
from hsparity.experiments.result import Bisect, Outcome, State

from .conftest import Capture, shared
from .test_vllm import PART_SITES, PROMPTS

# One worker: what these tests share is made once, and nobody waits for it.
pytestmark = [pytest.mark.engine, pytest.mark.xdist_group("bisect")]

# Gone from the tried releases.
FORMER = {"VLLM_ATTENTION_BACKEND", "calculate_kv_scales", "cuda_graph_bs", "cuda_graph_max_bs"}
BOTH = {"prompts": PROMPTS, "mechanism": "both", "generate": 4}


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return shared(tmp_path_factory, "bisect")


def run(ref: Path, cand: Path, cache: Path, *floors: Path, **options: Any) -> Bisect:
    sources = tuple(open_source(f) for f in floors)
    return bisect(Wanted(str(ref), str(cand), sources, cache=cache, **options))


def floors_of(capture: Capture, model: Path) -> tuple[Path, ...]:
    """Transformers in float32 and bfloat16 on the same tokens; shared with the yardstick of the other tests."""
    return tuple(
        capture("hf", model=model, prompts=PROMPTS, generate=4, dtype=dtype)
        for dtype in ("float32", "bfloat16")
    )


@pytest.fixture(scope="session")
def llama(capture: Capture, tiny_llama: Path) -> Path:
    return capture("vllm", model=tiny_llama, native_ids=(2, 4, 6), **BOTH)


def test_an_fp8_cache_is_named(capture: Capture, llama: Path, tiny_llama: Path, cache: Path) -> None:
    """fp8 KV against bf16: quantised-kv explains all of it, beyond the floor, and auto reproduces the reference."""
    fp8 = capture(
        "vllm", model=tiny_llama, native_ids=(2, 4, 6), engine_args={"kv_cache_dtype": "fp8"}, **BOTH
    )
    found = run(llama, fp8, cache, *floors_of(capture, tiny_llama))
    assert (found.outcome, found.exit_code) == (Outcome.SETTLED, 1)
    assert [(c.name, c.confidence) for c in found.causes] == [("quantised-kv", "settled")]
    assert found.causes[0].share is not None
    assert found.causes[0].share.low >= 0.99
    assert found.experiments[0].proof == "applied: kv cache dtype fp8 -> auto"


def test_what_mla_ignores_is_not_applied(capture: Capture, tiny_deepseek: Path, cache: Path) -> None:
    """Chunks and a block size under MLA: both are NOT APPLIED, with what ran instead, and nothing is captured for them."""
    plain = capture("vllm", model=tiny_deepseek, native_ids=(1, 3, 5), **BOTH)
    asked = capture(
        "vllm",
        model=tiny_deepseek,
        sites=("boundary.*", "final_norm", *PART_SITES, "prompt_logprobs"),
        native_ids=(2, 4, 6),
        batch=4,
        engine_args={"max_num_batched_tokens": 16, "block_size": 32, "enable_chunked_prefill": True},
        **BOTH,
    )
    found = run(plain, asked, cache, knobs=("block-size", "chunked-prefill"))
    ignored = {e.knobs[0]: e for e in found.experiments}
    assert {name: e.state for name, e in ignored.items()} == {
        "block-size": State.NOT_APPLIED,
        "chunked-prefill": State.NOT_APPLIED,
    }
    assert ignored["block-size"].proof == "block_size=32 was asked for, vllm ran with 16"
    assert not any(e.capture for e in found.experiments)


def test_chunks_are_applied_and_without_effect(
    capture: Capture, llama: Path, tiny_llama: Path, cache: Path
) -> None:
    """On Llama sixteen tokens a pass are applied, shown by the passes, and change no bit: nothing to explain."""
    chunked = capture(
        "vllm", model=tiny_llama, native_ids=(6, 2, 2), engine_args={"max_num_batched_tokens": 16}, **BOTH
    )
    found = run(llama, chunked, cache)
    assert (found.outcome, found.exit_code) == (Outcome.NOTHING, 0)
    effect = next(e for e in found.experiments if e.knobs == ("chunked-prefill",))
    assert effect.state is State.NO_EFFECT
    assert effect.proof == "passes per prompt: at most 4, 1 before"


def test_healthy_engines_are_within_noise(
    capture: Capture, llama: Path, tiny_llama: Path, cache: Path
) -> None:
    """vLLM against SGLang in bfloat16 is within noise without a capture; float32 on one side moves it by about e0 and does
    not bring them together."""
    from .test_sglang import PROMPTS as THEIRS

    other = capture(
        "sglang", model=tiny_llama, prompts=THEIRS, mechanism="both", native_ids=(2, 4, 6), generate=4
    )
    floors = floors_of(capture, tiny_llama)
    found = run(llama, other, cache, *floors)
    assert (found.outcome, found.exit_code, found.experiments) == (Outcome.NOISE, 0, ())
    turned = run(llama, other, cache, *floors, knobs=("dtype",))
    toggle = next(e for e in turned.experiments if e.role == "ref")
    assert toggle.moved is not None
    assert 0.4 < toggle.moved < 1.1
    assert turned.outcome is Outcome.NOISE


@pytest.mark.parametrize(
    ("engine", "code"),
    [
        (
            "vllm",
            "from vllm.engine.arg_utils import EngineArgs as A\nfrom vllm import envs\n"
            "names = list(A.__dataclass_fields__)\nvariables = list(envs.environment_variables)",
        ),
        (
            "sglang",
            "from sglang.srt.arg_groups.field_order import POSITIONAL_FIELD_ORDER\n"
            "names = list(POSITIONAL_FIELD_ORDER)\nvariables = None",
        ),
    ],
)
def test_the_engines_have_the_arguments_that_the_knobs_name(engine: str, code: str) -> None:
    """Every argument and variable in the table is one that the installed engine knows, or one that captures by earlier
    releases hold."""
    interpreter = engines.resolve(engine)
    tell = f"{code}\nimport json\nprint('HERE', json.dumps([names, variables]))"
    done = subprocess.run(
        [str(interpreter.python), "-c", tell],
        env=clean_environment(interpreter.env),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    line = next((t for t in done.stdout.splitlines() if t.startswith("HERE ")), None)
    assert line, done.stderr[-2000:]
    names, variables = json.loads(line.removeprefix("HERE "))
    wanted = {a for k in knobs(engine) for a in k.args}
    assert wanted - set(names) <= FORMER
    if variables is not None:
        assert {v for k in knobs(engine) for v in k.env} - set(variables) <= FORMER
