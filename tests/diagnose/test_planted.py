"""Faults planted in running models are named by the fingerprint; what they are not is ruled out; the healthy get none."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from hsparity.model import Comparison, Finding, Verdict
from tests.causes.streams import Capture
from tests.diagnose import plants
from tests.diagnose.conftest import Judge
from tests.diagnose.runs import PAD, Plant, Setup, run, with_config

LLAMA, DEEPSEEK = "tiny:llama", "tiny:deepseek-v3"
ENGINE = {"mode": "eager", "kv_cache_dtype": "auto", "quantization": None, "tp": 1}
OTHER_WEIGHTS = "b" * 64


def scheme(bits: int, activations: bool) -> dict[str, Any]:
    """What compressed-tensors writes into config.json."""
    group = {"weights": {"num_bits": bits}, "input_activations": {"num_bits": 8} if activations else None}
    return {
        "quantization_config": {"quant_method": "compressed-tensors", "config_groups": {"group_0": group}}
    }


W4, W8A8 = scheme(4, False), scheme(8, True)


@dataclass(frozen=True)
class Case:
    """A fault, how the run is described, and the causes that may be named first."""

    named: tuple[str, ...]
    plant: Plant | None
    model: str = LLAMA
    words: tuple[str, ...] = ("likely",)
    setup: dict[str, Any] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)
    config: dict[str, Any] = field(default_factory=dict)
    weights: str = "a" * 64
    out: tuple[str, ...] = ()  # ruled out beside

    def made(self) -> Capture:
        setup = Setup(self.model, **self.setup)
        about = {**ENGINE, **self.settings}
        found = run(setup, self.plant, engine="vllm", settings=about, weights_sha256=self.weights)
        return with_config(found, self.config) if self.config else found


POSITION = ("rope", "attention-semantics", "attention-backend")
LINEAR = ("quantised-weights", "layer-weights", "norm-rounding")
CASES = {
    "theta": Case(("rope",), plants.rope_theta(1.5), out=LINEAR),
    "theta, MLA": Case(("rope",), plants.rope_theta(2.0), DEEPSEEK, out=("moe-scale", "moe-routing-flip")),
    # A base that is far off: nearly every angle is, and behind the first few positions the error has no more to grow.
    "theta, far off": Case(("rope", "attention-semantics"), plants.rope_theta(0.01), words=("inconclusive",), out=LINEAR),
    "softmax scale": Case(("attention-semantics",), plants.softmax_scale(1.1), out=LINEAR),
    "softmax scale, MLA": Case(("attention-semantics",), plants.softmax_scale(0.8), DEEPSEEK),
    "mscale": Case(("attention-semantics", "rope"), plants.mscale(1.1), out=LINEAR),
    "norm eps": Case(("norm-rounding",), plants.norm_eps(0.05), words=("likely", "possible"), out=POSITION),
    "layer 3": Case(("layer-weights",), plants.one_layer(3, 0.05), out=POSITION),
    "layer 3 of experts": Case(("layer-weights",), plants.one_layer(3, 0.05), DEEPSEEK),
    "routed scale": Case(("moe-scale",), plants.routed_scale(1.1), DEEPSEEK, out=POSITION),
    "one expert": Case(("moe-scale",), plants.expert_scale(0.5), DEEPSEEK, setup={"branches": True}),
    # A bias is no part of the scores that were captured: how near the ties were is not known without a replay.
    "router bias": Case(
        ("moe-routing-flip",), plants.router_bias(0.05), DEEPSEEK, words=("possible",), setup={"branches": True}
    ),
    "int4": Case(
        ("quantised-weights",), plants.int_weights(), config=W4, weights=OTHER_WEIGHTS,
        settings={"quantization": "compressed-tensors"}, out=(*POSITION, "quantised-activations", "quantised-kv"),
    ),
    "int4 undeclared": Case(("quantised-weights",), plants.int_weights(), weights=OTHER_WEIGHTS, out=POSITION),
    "w8a8": Case(
        ("quantised-weights", "quantised-activations"), plants.both(plants.int_weights(8, 64), plants.int8_activations()),
        words=("inconclusive",), config=W8A8, weights=OTHER_WEIGHTS,
        settings={"quantization": "compressed-tensors"}, out=POSITION,
    ),
    "fp8 cache": Case(("quantised-kv",), plants.fp8_kv(), settings={"kv_cache_dtype": "fp8"}),
    "fp8 cache, MLA": Case(("quantised-kv",), plants.fp8_kv(), DEEPSEEK, settings={"kv_cache_dtype": "fp8"}),
    "later chunks": Case(
        ("chunk-boundary",), plants.cached_fp8(2), setup={"chunk": 16}, settings={"chunked_prefill": True},
    ),
    "decoded": Case(("prefill-decode",), plants.cached_fp8(1), setup={"decode": 12}, out=("chunk-boundary",)),
    "window": Case(("window-edge",), plants.window(24), words=("likely", "possible"), config={"sliding_window": 25}),
    "mask": Case(("mask-differs",), plants.masked(PAD), config={"pad_token_id": PAD}, words=("likely", "possible")),
}  # fmt: skip


def hypotheses(result: Comparison) -> list[Finding]:
    return [f for f in result.findings if f.severity == "hypothesis" and not f.ruled_out]


@pytest.mark.parametrize("name", CASES)
def test_a_planted_fault_is_named(name: str, judged: Judge) -> None:
    """The first hypothesis is the fault; causes that the position or the layer excludes are ruled out."""
    case = CASES[name]
    result = judged(case.made())
    found = hypotheses(result)
    said = [(f.name, f.confidence) for f in found]
    assert result.verdict is Verdict.DIVERGED
    assert found, result.fingerprint
    assert found[0].name in case.named, said
    assert found[0].confidence in case.words, said
    assert found[0].evidence
    assert found[0].confirm
    assert set(case.out) <= {f.name for f in result.findings if f.ruled_out}


def test_two_parts_of_one_scheme_are_told_apart_by_no_capture(judged: Judge) -> None:
    """W8A8 names weights and activations, says that they are level, and gives the knob that parts them."""
    found = hypotheses(judged(CASES["w8a8"].made()))
    assert {f.name for f in found[:2]} == {"quantised-weights", "quantised-activations"}
    assert any("not to be told from" in line for line in found[0].against)
    assert "--knobs weights" in found[0].confirm[0]


def test_flips_are_shown_as_experts(judged: Judge) -> None:
    """A token whose experts differ is listed with prompt, position, layer and the experts of both sides."""
    first = hypotheses(judged(CASES["router bias"].made()))[0]
    assert any(" -> " in line and "experts" in line for line in first.evidence)
    assert first.explained is not None


@pytest.mark.parametrize(
    ("model", "setup"),
    [
        (LLAMA, {"attention": "sdpa"}),
        (DEEPSEEK, {"attention": "sdpa"}),
        (LLAMA, {"decode": 12}),
        (LLAMA, {"chunk": 16}),
    ],
)
def test_healthy_runs_get_no_hypothesis(model: str, setup: dict[str, Any], judged: Judge) -> None:
    """Another attention kernel, decoding and chunks cost what bf16 costs: parity, and no cause is weighed."""
    result = judged(run(Setup(model, **setup), engine="vllm", settings={**ENGINE, "chunked_prefill": True}))
    assert result.verdict is Verdict.PARITY
    assert not [f for f in result.findings if f.severity == "hypothesis"]
    assert result.fingerprint is None


def test_a_claim_of_equal_weights_is_held_against_quantisation(judged: Judge) -> None:
    """4-bit weights behind the digest of the original fit no cause: that is said, with the commands that go on."""
    found = hypotheses(judged(Case((), plants.int_weights()).made()))
    assert [f.name for f in found] == ["unknown"]
    assert any(command.endswith(" --replay") for command in found[0].confirm)


def test_the_fingerprint_says_where_and_on_whom(judged: Judge) -> None:
    """Layer, side, position 0 and growth are figures of the result."""
    found = judged(CASES["theta"].made()).fingerprint
    assert found is not None
    assert (found.side, found.boundary, found.layer, found.start) == ("cand", 1, 0, "first")
    assert found.figures["first"] < 1.3
    assert found.figures["later"] > 3.0
    assert found.figures["growth_low"] > 0.5
    assert len(found.added) == 8
