"""HS404: configs that compute another thing are named, two spellings of one thing are not."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hsparity.capture.read import open_source
from hsparity.causes.config_differs import difference, stated
from hsparity.compare import Query, compare
from hsparity.model import Comparison, Verdict
from tests.causes.judged import finding
from tests.causes.streams import Capture, capture

YARN = {
    "factor": 2.0,
    "beta_fast": 32,
    "beta_slow": 1,
    "mscale": 1.0,
    "mscale_all_dim": 1.0,
    "original_max_position_embeddings": 1024,
}
# What three engines put into their manifests for one checkpoint, cut to what concerns this finding.
TRANSFORMERS: dict[str, Any] = {
    "model_type": "deepseek_v3",
    "hidden_act": "silu",
    "rms_norm_eps": 1e-06,
    "head_dim": 64,
    "kv_lora_rank": 512,
    "q_lora_rank": 96,
    "v_head_dim": 128,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "num_experts_per_tok": 2,
    "norm_topk_prob": True,
    "routed_scaling_factor": 1.0,
    "first_k_dense_replace": 1,
    "rope_interleave": True,
    "rope_parameters": {**YARN, "rope_theta": 10000.0, "rope_type": "yarn", "type": "yarn"},
    "tie_word_embeddings": False,
}
VLLM = {
    **TRANSFORMERS,
    "qk_head_dim": 192,
    "attention_dropout": 0.0,
    "transformers_version": "5.19.0",
    "rope_parameters": {**YARN, "rope_theta": 10000.0, "rope_type": "deepseek_yarn", "type": "yarn"},
}
SGLANG = {
    **VLLM,
    "head_dim": 192,
    "context_len": 2048,
    "num_attention_heads": 6,  # padded to the ranks
    "original_num_attention_heads": 4,
    "original_total_num_kv_heads": 4,
    "swa_head_dim": 64,
}
OLD_FILE = {
    **{k: v for k, v in TRANSFORMERS.items() if k != "rope_parameters"},
    "rope_theta": 10000,
    "rope_scaling": {**YARN, "type": "yarn"},
}
SAME = {"transformers": TRANSFORMERS, "vllm": VLLM, "sglang": SGLANG, "old file": OLD_FILE}


@pytest.mark.parametrize("left", SAME)
@pytest.mark.parametrize("right", SAME)
def test_one_checkpoint_in_the_words_of_every_engine_is_one_config(left: str, right: str) -> None:
    assert len(set(stated(SAME[left])) & set(stated(SAME[right]))) >= 15
    assert difference(SAME[left], SAME[right]) is None


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"hidden_act": "gelu_new"}, {"hidden_act": "gelu_pytorch_tanh"}),
        ({"hidden_act": "gelu", "hidden_activation": "gelu_pytorch_tanh"}, {"hidden_activation": "gelu_new"}),
        ({"hidden_act": "swish"}, {"hidden_act": "silu"}),
        ({"layer_norm_eps": 1e-5}, {"norm_epsilon": 0.00001}),
        (
            {"rope_theta": 1e4, "rope_scaling": None},
            {"rope_parameters": {"rope_theta": 10000, "rope_type": "default"}},
        ),
        ({"rope_scaling": {"type": "linear", "factor": 1.0}}, {"rope_scaling": {"rope_type": "default"}}),
        ({"rope_scaling": {"type": "su"}}, {"rope_scaling": {"rope_type": "longrope"}}),
        (
            {"rope_theta": 1e6, "rope_local_base_freq": 1e4},
            {
                "rope_parameters": {
                    "full_attention": {"rope_theta": 1e6, "rope_type": "default"},
                    "sliding_attention": {"rope_theta": 1e4, "rope_type": "default"},
                }
            },
        ),
        # A window that is switched off, and one that only one side states.
        ({"sliding_window": 4096, "use_sliding_window": False}, {"sliding_window": 512}),
        ({"sliding_window": 4096}, {"sliding_window": None}),
        ({"num_experts_per_tok": 8}, {"num_experts_per_token": 8}),
        ({"text_config": {"rms_norm_eps": 1e-6}, "rms_norm_eps": 1e-5}, {"rms_norm_eps": 1e-6}),
        # Nothing of this changes a hidden state.
        (
            {"dtype": "float32", "vocab_size": 512, "_name_or_path": "a"},
            {"dtype": "bfloat16", "vocab_size": 640},
        ),
        ({}, {"rms_norm_eps": 1e-6}),
    ],
)
def test_two_spellings_of_one_value_are_no_difference(one: dict[str, Any], other: dict[str, Any]) -> None:
    assert difference(one, other) is None
    assert difference(other, one) is None


@pytest.mark.parametrize(
    ("one", "other", "name", "expect"),
    [
        ({"rope_theta": 1e4}, {"rope_parameters": {"rope_theta": 5e5}}, "rope theta", "grow with position"),
        (
            TRANSFORMERS,
            {**VLLM, "rope_parameters": {**VLLM["rope_parameters"], "factor": 40}},
            "rope factor",
            "position",
        ),
        (
            {"rope_scaling": {"type": "yarn"}},
            {"rope_scaling": {"rope_type": "linear", "factor": 2}},
            "rope type",
            "position",
        ),
        (
            {"rope_local_base_freq": 1e4},
            {"rope_local_base_freq": 1e6},
            "rope theta of sliding layers",
            "position",
        ),
        ({"rms_norm_eps": 1e-6}, {"rms_norm_eps": 1e-5}, "norm eps", "small norm"),
        ({"hidden_act": "silu"}, {"hidden_act": "gelu"}, "activation", "every token"),
        ({"sliding_window": 4096}, {"sliding_window": 4097}, "sliding window", "exact up to the window"),
        (
            {"attn_logit_softcapping": 50.0},
            {"attn_logit_softcapping": 30.0},
            "attention soft-cap",
            "few tokens",
        ),
        ({"query_pre_attn_scalar": 256}, {"query_pre_attn_scalar": 224}, "query scaling", "first token"),
        (
            {"routed_scaling_factor": 2.5},
            {"routed_scaling_factor": 1.0},
            "routed scaling factor",
            "routed branch",
        ),
        ({"norm_topk_prob": True}, {"norm_topk_prob": False}, "normed expert weights", "routed branch"),
        (
            {"num_experts_per_tok": 8},
            {"num_experts_per_tok": 6},
            "experts per token",
            "dense layers are exact",
        ),
        ({"embedding_multiplier": 12}, {"scale_emb": 1}, "embedding multiplier", "boundary 0"),
        ({"head_dim": 64}, {"head_dim": 128}, "head size", "attention"),
    ],
)
def test_what_changes_the_arithmetic_is_a_cause(
    one: dict[str, Any], other: dict[str, Any], name: str, expect: str
) -> None:
    """It names the value, both sides' figures, and the errors to expect."""
    result = difference(one, other)
    assert result is not None
    assert (result.code, result.severity, result.structural) == ("HS404", "cause", True)
    values = result.evidence[0].partition("; expect: ")[0]
    assert values.startswith(f"{name}: ref ")
    assert result.headline == f"the model configs differ in {values}"
    assert expect in result.evidence[0].split("expect: ")[1]


def test_the_headline_holds_two_values_and_counts_the_rest() -> None:
    one = {"rope_theta": 1e5, "rms_norm_eps": 1e-6, "hidden_act": "silu"}
    other = {"rope_theta": 1e4, "rms_norm_eps": 1e-5, "hidden_act": "gelu"}
    result = difference(one, other)
    assert result is not None
    assert result.headline == (
        "the model configs differ in norm eps: ref 1e-06, cand 1e-05; activation: ref silu, cand gelu; and 1 more"
    )


@pytest.mark.parametrize("key", ["tie_word_embeddings", "logit_scale", "final_logit_softcapping"])
def test_what_changes_logits_alone_is_a_note(key: str) -> None:
    result = difference({key: 1.0}, {key: 0.0})
    assert result is not None
    assert (result.severity, result.structural) == ("note", False)
    assert "only logits differ" in result.evidence[0]


def with_config(made: Capture, folder: Path, config: dict[str, Any]) -> Path:
    path = made.write(folder) / "manifest.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "model_config": config}))
    return folder


def test_a_comparison_names_it_and_healthy_pairs_stay_clean(clean, floor, tmp_path) -> None:
    """The same states under two engines' spellings are at parity; under another theta they are not."""
    ref = open_source(with_config(replace(capture(1)), tmp_path / "ref", TRANSFORMERS))

    def against(name: str, config: dict[str, Any]) -> Comparison:
        return compare(ref, open_source(with_config(clean, tmp_path / name, config)), floor, Query())

    same = against("same", SGLANG)
    assert same.verdict is Verdict.PARITY
    assert "HS404" not in [f.code for f in same.findings]
    other = against("other", {**OLD_FILE, "rope_theta": 50000.0})
    assert other.verdict is Verdict.DIVERGED
    assert finding(other, "HS404").evidence == (
        "rope theta: ref 10000, cand 50000; expect: the first token of a prompt is exact, errors grow with position, "
        "from the first attention layer on",
    )
    assert finding(other, "HS404").headline == "the model configs differ in rope theta: ref 10000, cand 50000"
    assert finding(other, "HS404").fix["any"] == (
        "both sides loaded toy: take off the override that made it rope_theta 10000 in the reference or rope_theta 50000 "
        "in the candidate, whichever the checkpoint was not trained with, and capture again"
    )


def test_the_fix_says_what_to_write_into_which_file(clean, floor, tmp_path) -> None:
    """Each side's file, with the key as that file spells it, and nobody is said to be right."""
    ref = open_source(with_config(capture(1), tmp_path / "ref", {"rope_theta": 1e5, "layer_norm_eps": 1e-5}))
    made = open_source(
        with_config(
            clean, tmp_path / "made", {"rope_theta": 1e4, "norm_epsilon": 1e-6, "tie_word_embeddings": True}
        )
    )
    made.manifest = replace(made.manifest, model="models/converted")
    assert finding(compare(ref, made, floor, Query()), "HS404").fix["any"] == (
        "write norm_epsilon 1e-05 and rope_theta 100000 in the candidate's config.json (of models/converted), or "
        "layer_norm_eps 1e-06 and rope_theta 10000 in the reference's (of toy), whichever the checkpoint was trained with, "
        "and capture again without overrides"
    )
