"""Replayed layers against captures of the same model, healthy and with one thing wrong."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from hsparity.capture.read import open_source
from hsparity.errors import HsparityError
from hsparity.model import Verdict
from hsparity.replay import experts
from hsparity.replay.layer import build
from hsparity.replay.replaying import replay
from hsparity.replay.result import Added, Replay, from_json
from hsparity.weights.checkpoint import Checkpoint
from tests.integration.tiny_models import save_gemma, save_llama, save_moe
from tests.replay.makes import LAYERS, ROUTED, SITES, Tensors, changed, prompts, save_deepseek, taken

LAYER = "model.layers.2."


def replayed(capture: Path, model: Path | None = None, **more: Any) -> Replay:
    source = open_source(capture)
    try:
        return replay(source, model=str(model or ""), **more)
    finally:
        source.close()


def beyond(result: Replay) -> set[tuple[int, str]]:
    """Layers and parts that add error."""
    return {(a.layer, a.part) for a in result.added if a.verdict is Verdict.DIVERGED}


def the(result: Replay, layer: int, part: str) -> Added:
    return next(a for a in result.added if (a.layer, a.part) == (layer, part))


@pytest.mark.parametrize("make", [save_deepseek, save_llama, save_moe, save_gemma])
def test_a_float32_capture_is_replayed_to_its_last_bits(make: Callable[[Path], Path], tmp_path: Path) -> None:
    """Every layer and part of MLA, GQA, mixtures of experts, dense layers and sliding windows, to 1e-5 of its own work;
    decoded rows as well as prefilled ones."""
    model = make(tmp_path / "model")
    routed = make in (save_deepseek, save_moe)
    short = prompts(2, 40)
    capture = taken(
        model, tmp_path / "out", "float32", ROUTED if routed else SITES, prompts=short, generate=6
    )
    result = replayed(capture)
    assert result.verdict is Verdict.PARITY
    assert {a.layer for a in result.added} == set(range(LAYERS))
    assert all(a.tokens == 40 + 47 + 2 * 5 for a in result.of("ref"))
    errors = [a.error.worst for a in result.added]
    assert len(errors) == LAYERS * 3 + routed * 3
    assert max(errors) < 1e-5


def test_a_healthy_capture_is_within_its_floor(deepseek: Path, healthy: Path) -> None:
    """Transformers in bfloat16 is the floor itself: ratio 1, gain 1, and the few other experts are near ties."""
    result = replayed(healthy)
    assert result.verdict is Verdict.PARITY
    assert beyond(result) == set()
    assert all(abs(a.ratio - 1) < 0.01 and abs(a.gain - 1) < 0.003 for a in result.added)
    routers = result.of("ref", "router")
    assert [a.layer for a in routers] == [1, 2, 3]
    assert sum(a.experts_differ for a in routers) > 0
    assert all(a.experts_wide == 0 for a in routers)
    assert all(a.margin is None or a.margin.worst < 2 for a in routers)


def noise(name: str, share: float) -> Callable[[Tensors], None]:
    def change(tensors: Tensors) -> None:
        weight = tensors[name].float()
        draw = torch.randn(weight.shape, generator=torch.Generator().manual_seed(5))
        tensors[name] = (weight + share * weight.std() * draw).to(tensors[name].dtype)

    return change


def scale(name: str, factor: float) -> Callable[[Tensors], None]:
    def change(tensors: Tensors) -> None:
        tensors[name] = (tensors[name].float() * factor).to(tensors[name].dtype)

    return change


@pytest.mark.parametrize(
    ("weights", "part"),
    [
        (noise(LAYER + "self_attn.q_b_proj.weight", 0.05), "attention"),
        (noise(LAYER + "self_attn.kv_b_proj.weight", 0.02), "attention"),
        (noise(LAYER + "mlp.shared_experts.down_proj.weight", 0.02), "mlp"),
        (scale(LAYER + "mlp.experts.3.down_proj.weight", 1.05), "mlp"),
        (scale(LAYER + "mlp.gate.e_score_correction_bias", 0.0), "router"),
    ],
    ids=["q_b 5 %", "kv_b 2 %", "shared expert 2 %", "one expert 5 %", "router bias"],
)
def test_a_fault_in_one_layer_is_found_in_its_layer_and_part(
    weights: Callable[[Tensors], None], part: str, deepseek: Path, tmp_path: Path
) -> None:
    """The capture ran other weights in layer 2 than the checkpoint has: that layer and that part, no other."""
    capture = taken(changed(deepseek, tmp_path / "model", weights), tmp_path / "out", sites=ROUTED)
    result = replayed(capture, deepseek, layers=(1, 2))
    assert result.verdict is Verdict.DIVERGED
    assert beyond(result) - {(2, "layer")} == {(2, part)}
    assert f"in layer 2, by its {part}" in result.headline


def test_one_odd_expert_is_named(deepseek: Path, tmp_path: Path) -> None:
    """A quarter of the tokens is off and the median is not: the expert that all of them went to."""
    weights = scale(LAYER + "mlp.experts.3.down_proj.weight", 1.3)
    capture = taken(changed(deepseek, tmp_path / "model", weights), tmp_path / "out", sites=ROUTED)
    found = the(replayed(capture, deepseek, layers=(2,)), 2, "mlp")
    assert found.expert == 3
    assert found.ratio < 1.5
    assert "expert 3" in found.reason


def test_a_dropped_router_bias_is_no_tie(deepseek: Path, tmp_path: Path) -> None:
    """Its logits are right and its choices are not, by margins that rounding does not explain."""
    weights = scale(LAYER + "mlp.gate.e_score_correction_bias", 0.0)
    capture = taken(changed(deepseek, tmp_path / "model", weights), tmp_path / "out", sites=ROUTED)
    router = the(replayed(capture, deepseek, layers=(2,)), 2, "router")
    assert router.ratio < 1.1
    assert router.experts_wide > 20
    assert router.margin is not None
    assert router.margin.worst > 10


def test_a_wrong_scale_is_told_by_its_gain(deepseek: Path, tmp_path: Path) -> None:
    """routed_scaling_factor 1.9 for 2: the MLP of every expert layer, 3 % short, and most of it is that factor."""
    capture = taken(
        changed(deepseek, tmp_path / "model", routed_scaling_factor=1.9), tmp_path / "out", sites=ROUTED
    )
    result = replayed(capture, deepseek, layers=(0, 1))
    assert beyond(result) == {(1, "layer"), (1, "mlp")}
    for found in result.of("ref", "mlp")[1:]:
        assert 0.95 < found.gain < 0.98
        assert found.ratio_without_gain < 0.7 * found.ratio


def test_another_rope_is_right_at_position_0(deepseek: Path, tmp_path: Path) -> None:
    """theta 12000 for 10000: the attention everywhere, and nothing at the first position of a prompt."""
    rope = json.loads((deepseek / "config.json").read_text())["rope_parameters"] | {"rope_theta": 12000.0}
    capture = taken(
        changed(deepseek, tmp_path / "model", rope_parameters=rope), tmp_path / "out", sites=ROUTED
    )
    result = replayed(capture, deepseek, layers=(0, 1))
    assert {(0, "attention"), (1, "attention")} <= beyond(result)
    assert {part for _, part in beyond(result)} == {"attention", "layer"}
    for found in result.of("ref", "attention"):
        assert found.first < 1.5 * found.floor.p50 < found.error.p50


def test_boundaries_alone_find_the_layer(deepseek: Path, tmp_path: Path) -> None:
    """Without the branches there is no part, and tokens whose experts rounding may turn are left out."""
    weights = noise(LAYER + "mlp.shared_experts.down_proj.weight", 0.05)
    capture = taken(changed(deepseek, tmp_path / "model", weights), tmp_path / "out", sites=("boundary.*",))
    result = replayed(capture, deepseek, layers=(1, 2))
    assert {a.part for a in result.added} == {"layer"}
    assert beyond(result) == {(2, "layer")}
    assert 0 < the(result, 2, "layer").left_out < 100


def test_the_headline_says_which_side_adds_it(deepseek: Path, healthy: Path, tmp_path: Path) -> None:
    """One side is at fault, the other is not, and the report reads the same after JSON."""
    weights = noise(LAYER + "self_attn.q_b_proj.weight", 0.1)
    capture = taken(changed(deepseek, tmp_path / "model", weights), tmp_path / "faulty", sites=ROUTED)
    sides = [open_source(path) for path in (healthy, capture)]
    result = replay(*sides, model=str(deepseek), layers=(1, 2))
    assert f"{capture} adds error in layer 2, by its attention" in result.headline
    assert result.headline.endswith(f"{healthy} does not")
    assert {a.side for a in result.added if a.verdict is not Verdict.PARITY} == {"cand"}
    assert from_json(result.to_json()).headline == result.headline
    assert from_json(result.to_json()).to_json() == result.to_json()


def test_another_checkpoint_is_told_from_another_engine(
    deepseek: Path, healthy: Path, tmp_path: Path
) -> None:
    """Each side is at the floor with its own weights and beyond it with the other's."""
    weights = noise(LAYER + "self_attn.q_b_proj.weight", 0.1)
    other = changed(deepseek, tmp_path / "model", weights)
    sides = [open_source(path) for path in (healthy, taken(other, tmp_path / "out", sites=ROUTED))]
    result = replay(*sides, layers=(1, 2))
    assert result.verdict is Verdict.PARITY
    assert result.cand_model == str(other)
    wrong = {
        (a.side, a.layer) for a in result.added if a.weights == "other" and a.verdict is Verdict.DIVERGED
    }
    assert wrong == {("ref", 2), ("cand", 2)}


def test_only_the_layer_asked_for_is_read(deepseek: Path, healthy: Path, tmp_path: Path) -> None:
    """A checkpoint that has lost every other tensor still gives layer 2; layer 1 is then E232."""

    def lose(tensors: Tensors) -> None:
        for name in [n for n in tensors if not n.startswith(LAYER)]:
            del tensors[name]

    stump = changed(deepseek, tmp_path / "model", lose)
    assert replayed(healthy, stump, layers=(2,)).verdict is Verdict.PARITY
    with pytest.raises(HsparityError) as refused:
        replayed(healthy, stump, layers=(1, 2))
    assert refused.value.code == "E232"


def test_stored_experts_give_what_the_fused_ones_give(
    deepseek: Path, healthy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Experts kept as stored and dequantised one at a time: the same bits in float32."""
    checkpoint = Checkpoint(deepseek)
    input_nh = torch.randn(40, 64, generator=torch.Generator().manual_seed(1))
    whole = build(checkpoint, 2, torch.float32).run(input_nh)
    assert experts.stock_of(checkpoint, 2, "cpu") is None
    monkeypatch.setattr(experts, "LARGE", 0)
    assert experts.stock_of(checkpoint, 0, "cpu") is None  # dense
    layer = build(checkpoint, 2, torch.float32, stock=experts.stock_of(checkpoint, 2, "cpu"))
    assert isinstance(layer.parts.mlp.experts, experts.StoredExperts)  # type: ignore[union-attr]
    assert torch.equal(layer.run(input_nh).output_nh, whole.output_nh)
    assert replayed(healthy, layers=(2,)).verdict is Verdict.PARITY


def test_kimi_k2_is_deepseek_v3_by_another_name(deepseek: Path, healthy: Path, tmp_path: Path) -> None:
    """Its model_type alone differs; a family that Transformers does not have is E233."""
    kimi = changed(
        deepseek, tmp_path / "kimi", model_type="kimi_k2", auto_map={"AutoConfig": "remote.Config"}
    )
    assert replayed(healthy, kimi, layers=(1,)).verdict is Verdict.PARITY
    unknown = changed(deepseek, tmp_path / "unknown", model_type="no_such_model")
    stranger = tmp_path / "stranger"
    shutil.copytree(healthy, stranger)
    manifest = json.loads((stranger / "manifest.json").read_text())
    manifest["model_config"]["model_type"] = "no_such_model"
    (stranger / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(HsparityError) as refused:
        replayed(stranger, unknown)
    assert refused.value.code == "E233"


def test_a_checkpoint_of_another_shape_is_refused(healthy: Path, tmp_path: Path) -> None:
    """E208 before anything is computed."""
    other = changed(save_llama(tmp_path / "llama"), tmp_path / "copy", num_hidden_layers=7)
    with pytest.raises(HsparityError) as refused:
        replayed(healthy, other)
    assert refused.value.code == "E208"


def test_boundaries_without_neighbours_cannot_be_replayed(deepseek: Path, tmp_path: Path) -> None:
    """E230 for a capture of a draft's layers, and for a layer that was not captured."""
    capture = taken(deepseek, tmp_path / "gaps", sites=("boundary.000", "boundary.002"))
    with pytest.raises(HsparityError) as refused:
        replayed(capture)
    assert refused.value.code == "E230"
    capture = taken(deepseek, tmp_path / "two", sites=("boundary.001", "boundary.002"))
    assert [a.layer for a in replayed(capture).added] == [1]
    with pytest.raises(HsparityError) as refused:
        replayed(capture, layers=(2,))
    assert refused.value.code == "E230"


def test_a_prompt_with_missing_rows_is_left_out(healthy: Path, tmp_path: Path) -> None:
    """It is said which; a capture of nothing else is E234."""
    holed = tmp_path / "holed"
    shutil.copytree(healthy, holed)
    shards = sorted((holed / "shards").glob("*.safetensors"))
    for number, shard in enumerate(shards):
        tensors = load_file(shard)
        tensors["positions"] = tensors["positions"] + (tensors["positions"] > 5).int()
        tensors["positions"][-1] = tensors["positions"][-2] = 3
        save_file(tensors, shard, metadata={"format": "pt"})
        _stamp(holed, shard)
        if number == 0:
            result = replayed(holed, layers=(0,))
            assert any("1 prompt with missing rows left out (p0)" in note for note in result.notes)
            assert result.added[0].tokens == sum(len(p.token_ids) for p in prompts()[1:])
    with pytest.raises(HsparityError) as refused:
        replayed(holed)
    assert refused.value.code == "E234"


def _stamp(folder: Path, shard: Path) -> None:
    """Make the manifest's size and digest true again."""
    import hashlib

    manifest = json.loads((folder / "manifest.json").read_text())
    for entry in manifest["shards"]:
        if entry["path"].endswith(shard.name):
            entry["bytes"] = shard.stat().st_size
            entry["sha256"] = hashlib.sha256(shard.read_bytes()).hexdigest()
    (folder / "manifest.json").write_text(json.dumps(manifest))


def test_a_state_that_is_not_finite_is_an_error(healthy: Path, tmp_path: Path) -> None:
    """One NaN row is not dropped from the figures, and no part is blamed for it."""
    torn = tmp_path / "torn"
    shutil.copytree(healthy, torn)
    shard = sorted((torn / "shards").glob("*.safetensors"))[0]
    tensors = load_file(shard)
    tensors["boundary.003"][7] = torch.nan
    save_file(tensors, shard, metadata={"format": "pt"})
    _stamp(torn, shard)
    result = replayed(torn, layers=(2,))
    assert beyond(result) == {(2, "layer")}
    assert the(result, 2, "layer").lost == 1
    assert "1 token not finite" in result.headline


def test_a_quantised_checkpoint_is_replayed_with_its_own_weights(tmp_path: Path) -> None:
    """Transformers runs the bfloat16 twin of an int8 checkpoint: at the floor by the checkpoint, beyond it by the
    original."""
    from hsparity.weights.twin import twin
    from tests.replay.test_checkpoint import _quantised_llama

    source = _quantised_llama(tmp_path / "int8")
    capture = taken(twin(source, tmp_path / "twin"), tmp_path / "out")
    assert replayed(capture, source, layers=(0, 2)).verdict is Verdict.PARITY
    original = save_llama(tmp_path / "original")
    assert {(2, "layer"), (2, "mlp")} <= beyond(replayed(capture, original, layers=(2,)))


@pytest.mark.parametrize(("value", "said"), [(float("nan"), "not finite"), (0.0, "all rows are zero")])
def test_what_is_no_state_is_not_replayed(value: float, said: str, healthy: Path, tmp_path: Path) -> None:
    """NaN rows, or zeros throughout, are E236 with the prompt: no layer is blamed for them."""
    damaged = tmp_path / "damaged"
    shutil.copytree(healthy, damaged)
    shard = next(damaged.glob("shards/*.safetensors"))
    tensors = load_file(shard)
    tensors["boundary.002"] = torch.full_like(tensors["boundary.002"], value)
    save_file(tensors, shard, metadata={"format": "pt"})
    _stamp(damaged, shard)
    with pytest.raises(HsparityError) as caught:
        replayed(damaged, layers=(2,))
    assert caught.value.code == "E236"
    assert said in caught.value.notes[0]


def test_another_family_is_refused(healthy: Path, tmp_path: Path) -> None:
    """A checkpoint of another family with the same shape is E208, not a capture that adds error."""
    llama = tmp_path / "llama"
    save_llama(llama)
    config = json.loads((llama / "config.json").read_text())
    shape = {"num_hidden_layers": LAYERS, "hidden_size": open_source(healthy).manifest.hidden_size}
    (llama / "config.json").write_text(json.dumps(config | shape))
    with pytest.raises(HsparityError) as caught:
        replayed(healthy, llama)
    assert caught.value.code == "E208"
    assert any("model_type" in note for note in caught.value.notes)


def test_a_device_that_is_not_here_is_refused(healthy: Path) -> None:
    """A device that torch does not know is E103."""
    with pytest.raises(HsparityError) as caught:
        replayed(healthy, device="nowhere")
    assert caught.value.code == "E103"
