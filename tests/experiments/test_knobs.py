"""The table of knobs: well formed, and honest about what can be turned where."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hsparity.capture.read import open_source
from hsparity.cli.main import invoke
from hsparity.experiments.differences import differences, level, toggles
from hsparity.experiments.knob import Knob, Value
from hsparity.experiments.knobs import (
    KNOBS,
    NEEDS,
    Situation,
    knobs,
    obstacle,
    quantises_activations,
    turnable,
)
from hsparity.experiments.proofs import PROOFS, Made, prove
from hsparity.experiments.result import CODES
from hsparity.experiments.takes import Side
from hsparity.experiments.variants import FILLER, bucket, padded, whole


def knob(engine: str, name: str) -> Knob:
    return next(k for k in knobs(engine) if k.name == name)


@pytest.mark.parametrize("each", KNOBS, ids=lambda k: f"{k.engine}-{k.name}")
def test_every_knob_is_whole(each: Knob) -> None:
    """A knob owns something, is proved in a known way, blames a known cause, and puts only what it owns."""
    assert each.args or each.env or each.fields
    assert each.proof in PROOFS
    assert each.cause in CODES
    assert {n for v in (each, *each.values) for n in v.needs} <= set(NEEDS)
    for value in each.values:
        assert set(value.args) <= set(each.args)
        assert set(value.env) <= set(each.env)
        assert set(value.fields) <= set(each.fields)
    if each.proof == "setting":
        assert each.setting


def test_each_name_stands_once_per_engine_and_owns_its_keys_alone() -> None:
    """No argument is owned by two knobs of one engine."""
    for engine in ("vllm", "sglang", "hf"):
        own = knobs(engine)
        assert len({k.name for k in own}) == len(own)
        keys = [key for k in own for key in (*k.args, *k.env)]
        assert len(set(keys)) == len(keys)


def test_turning_replaces_what_the_knob_owns_and_nothing_else(bf16: Path) -> None:
    """fp8 with calculated scales turned to auto loses both arguments and keeps the rest."""
    spec = replace(
        Side("ref", str(bf16)).spec,
        engine_args={"kv_cache_dtype": "fp8", "calculate_kv_scales": True, "seed": 1},
    )
    found = knob("vllm", "kv-dtype")
    assert found.put(spec, Value("auto")).engine_args == {"seed": 1}


def test_what_needs_a_gpu_says_so() -> None:
    """On a CPU the padded eager run, FlashAttention and batch-invariant kernels are obstacles, not experiments."""
    here = Situation("cpu", "0.32.0")
    for name, place in (("padding", 0), ("attention-backend", 0), ("batch-invariant", 1)):
        found = knob("vllm", name)
        assert obstacle(found, found.values[place], here) == "needs a GPU"
    able, unable = turnable("vllm", "0.32.0", "cpu")
    assert {"kv-dtype", "dtype", "mla", "chunked-prefill"} <= set(able)
    assert {"padding", "batch-invariant"} <= set(unable["needs a GPU"])


def test_a_release_without_the_knob_says_which_has_it() -> None:
    """vLLM 0.10 has no batch-invariant mode."""
    found = knob("vllm", "batch-invariant")
    assert "0.11.1 and later do" in obstacle(found, found.values[1], Situation("cuda", "0.10.0"))


def test_triton_under_the_interpreter_is_not_tried_in_bfloat16(bf16: Path) -> None:
    """The interpreter's bfloat16 is garbage without an error, so it is no experiment."""
    spec = Side("ref", str(bf16)).spec
    found = knob("sglang", "attention-backend")
    triton = next(v for v in found.values if v.name == "triton")
    assert "garbage" in obstacle(found, triton, Situation("cpu", "0.5.23", spec))
    assert not obstacle(found, triton, Situation("cpu", "0.5.23", replace(spec, dtype="float16")))


def test_compiling_needs_the_native_path(bf16: Path) -> None:
    """Layer hooks are silent under compile, so hook captures cannot be turned to it."""
    side = Side("ref", str(bf16))
    found = knob("vllm", "graph")
    compiled = found.at("compiled")
    assert compiled is not None
    assert "--mechanism native" in obstacle(found, compiled, Situation("cpu", "0.32.0", side.spec))


def made(folder: Path, **settings: Any) -> Made:
    """A capture whose manifest says `settings` in place of its own."""
    source = open_source(folder)
    source.manifest = replace(source.manifest, settings={**source.manifest.settings, **settings})
    return Made(Side("ref", str(folder)).spec, source)


def test_an_ignored_setting_is_not_applied(bf16: Path) -> None:
    """vLLM under MLA: block_size=32 was asked for and 16 ran. The manifest says so, and the proof with it."""
    refused = {"block_size": {"asked": 32, "applied": 16}}
    turned, before = made(bf16, block_size=16, not_applied=refused), made(bf16, block_size=16)
    proof = prove(knob("vllm", "block-size"), turned, before)
    assert proof.applied is False
    assert proof.text == "block_size=32 was asked for, hf ran with 16"


def test_a_setting_that_stayed_was_not_applied(bf16: Path) -> None:
    """Without a word from the engine, a live setting that did not change is the proof."""
    turned, before = made(bf16, kv_cache_dtype="auto"), made(bf16, kv_cache_dtype="auto")
    proof = prove(knob("vllm", "kv-dtype"), turned, before)
    assert (proof.applied, proof.text) == (False, "kv cache dtype stayed auto")


def test_another_spelling_of_what_was_asked_is_applied(bf16: Path) -> None:
    """fp8 that runs as fp8_e4m3 is applied although it is not what was asked for, letter by letter."""
    refused = {"kv_cache_dtype": {"asked": "fp8", "applied": "fp8_e4m3"}}
    turned = made(bf16, kv_cache_dtype="fp8_e4m3", not_applied=refused)
    assert prove(knob("vllm", "kv-dtype"), turned, made(bf16, kv_cache_dtype="auto")).applied


def test_chunks_are_counted_in_passes(bf16: Path) -> None:
    """Prompts read whole show one pass each, so chunking that left it so was not applied."""
    one = made(bf16, chunked_prefill=True)
    assert one.passes == 1
    assert prove(knob("vllm", "chunked-prefill"), one, made(bf16)).applied is False


def test_a_cache_that_nothing_was_read_from_is_not_applied(bf16: Path) -> None:
    """The prefix cache is proved by tokens that came from it, not by its switch."""
    proof = prove(knob("vllm", "prefix-cache"), made(bf16, prefix_caching=True), made(bf16))
    assert proof.applied is False
    assert "no prompt token came from the cache" in proof.text


def test_where_transformers_stands(bf16: Path) -> None:
    """Levels are read off the capture."""
    side = Side("ref", str(bf16))
    stands = {name: level(knob("hf", name), side) for name in ("dtype", "attention-backend", "mask")}
    assert stands == {"dtype": "bfloat16", "attention-backend": "sdpa", "mask": "full mask"}


def test_toggles_leave_the_present_place_and_coarser_ones(bf16: Path) -> None:
    """bfloat16 on sdpa is turned to float32 and eager, never to float16; decoded tokens are read as prompt."""
    able, unable = toggles(Side("ref", str(bf16)))
    assert [(t.knob.name, t.label) for t in able] == [
        ("dtype", "float32"),
        ("attention-backend", "eager"),
        ("decode", "in the prompt"),
    ]
    assert ("weights", "twin", "the checkpoint is not quantised") in unable


def test_likely_and_cheap_differences_come_first(bf16: Path, eager_fp16: Path) -> None:
    """The dtype before the attention kernels."""
    found = differences(Side("ref", str(bf16)), Side("cand", str(eager_fp16)))
    assert [d.knob.name for d in found] == ["dtype", "attention-backend"]
    assert [(d.ref, d.cand) for d in found] == [("bfloat16", "float16"), ("sdpa", "eager")]


def test_other_sites_or_fewer_prompts_are_no_difference(bf16: Path, bare: Path) -> None:
    """What was captured beside it cannot move a state."""
    assert differences(Side("ref", str(bf16)), Side("cand", str(bare))) == ()


def test_decoded_tokens_as_prompt_hold_the_same_rows(bf16: Path) -> None:
    """The prefill of a decoded capture: the same tokens, none decoded."""
    side = Side("ref", str(bf16))
    found = whole(side.spec, side)
    assert found.generate == 0
    lengths = [p.tokens for p in side.source.prompts]
    assert [len(p.token_ids) for p in found.prompts] == lengths


def test_padding_fills_a_batch_to_its_bucket(bf16: Path) -> None:
    """Three requests are padded to four, and their prompt tokens to a multiple of 8, by prompts of their own."""
    spec = replace(Side("ref", str(bf16)).spec, batch=3)
    found = padded(spec)
    assert (bucket(3), bucket(5), bucket(17)) == (4, 8, 24)
    assert found.batch == 4
    group = found.prompts[:4]
    assert [p.id.startswith(FILLER) for p in group] == [False, False, False, True]
    assert sum(len(p.token_ids) for p in group) % 8 == 0
    assert {len(p.forced) for p in group} == {4}


@pytest.mark.parametrize(
    ("config", "answer"),
    [
        ({"config_groups": {"g": {"weights": {}, "input_activations": {"num_bits": 8}}}}, True),
        ({"config_groups": {"g": {"weights": {}, "input_activations": None}}}, False),
        ({"quant_method": "fp8", "activation_scheme": "dynamic"}, True),
        ({"quant_method": "gptq", "bits": 4}, False),
    ],
)
def test_which_schemes_round_activations(config: dict[str, Any], answer: bool) -> None:
    """W8A8 and FP8 do, W4A16 and GPTQ do not."""
    assert quantises_activations(config) is answer


def test_doctor_says_what_can_be_turned(capsys: pytest.CaptureFixture[str]) -> None:
    """The knobs of Transformers, and what needs a GPU."""
    invoke(["doctor"])
    page = capsys.readouterr().out
    assert "knobs     mask, weights, dtype, attention-backend, experts, decode" in page
    assert "attention-backend flash_attention_2: needs a GPU" in page
