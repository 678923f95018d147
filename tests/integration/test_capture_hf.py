"""Transformers captured through the driver equals plain forwards of the same model."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from hsprobe.drive import capture
from hsprobe.protocol import ProbeError
from hsprobe.schema import CaptureManifest, CaptureSpec, PromptSpec
from hsprobe.verify import verify
from tests.integration.tiny_models import HIDDEN, LAYERS, make_spec, save_gemma, save_llama, save_moe

Rows = dict[str, torch.Tensor]


@pytest.fixture(scope="module", autouse=True)
def offline() -> Iterator[None]:
    """Nothing here may reach a hub."""
    before = os.environ.get("HF_HUB_OFFLINE")
    os.environ["HF_HUB_OFFLINE"] = "1"
    yield
    if before is None:
        del os.environ["HF_HUB_OFFLINE"]
    else:
        os.environ["HF_HUB_OFFLINE"] = before


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_llama(tmp_path_factory.mktemp("llama"))


def run(spec: CaptureSpec, out: Path) -> tuple[CaptureManifest, list[Rows]]:
    manifest = capture(spec, out, lambda _event: None)
    rows = [
        {k: t for s in manifest.shards if s.prompt == p.id for k, t in load_file(out / s.path).items()}
        for p in manifest.prompts
    ]
    return manifest, rows


def plain_forward(
    model_path: Path, ids: list[int], dtype: torch.dtype
) -> tuple[list[torch.Tensor], torch.Tensor]:
    """Every boundary 0..L and the final state, by walking the layers by hand, without hooks or driver."""
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(model_path, dtype=dtype, attn_implementation="sdpa").eval()
    with torch.inference_mode():
        answer = model(torch.tensor([ids]), output_hidden_states=True, use_cache=False)
        last: list[torch.Tensor] = []
        model.model.layers[-1].register_forward_hook(lambda _m, _a, output: last.append(output))
        model(torch.tensor([ids]), use_cache=False)
    return [*(h[0] for h in answer.hidden_states[:-1]), last[0][0]], answer.hidden_states[-1][0]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_every_boundary_equals_a_plain_forward(llama: Path, tmp_path: Path, dtype: str) -> None:
    """Bit for bit, 0 to L, the last one un-normed."""
    manifest, rows = run(make_spec(llama, dtype=dtype, batch=2), tmp_path)
    assert (manifest.num_layers, manifest.hidden_size, manifest.dtype) == (LAYERS, HIDDEN, dtype)
    for prompt, found in zip(make_spec(llama).prompts, rows, strict=True):
        boundaries, final = plain_forward(llama, list(prompt.token_ids), getattr(torch, dtype))
        assert found["token_ids"].tolist() == list(prompt.token_ids)
        for index, expected in enumerate(boundaries):
            assert torch.equal(found[f"boundary.{index:03d}"], expected), index
        assert torch.equal(found["final_norm"], final)
        assert not torch.equal(found["final_norm"], found[f"boundary.{LAYERS:03d}"])


def test_decode_rows_are_their_own_steps_and_equal_prefill(llama: Path, tmp_path: Path) -> None:
    """T = P + N - 1; decoded rows agree with a forward over the whole sequence to float32's accuracy."""
    manifest, (found, *_) = run(make_spec(llama, prompts=1, generate=5), tmp_path)
    (prompt,) = manifest.prompts
    assert (prompt.tokens, prompt.prefill, len(prompt.generated)) == (24, 20, 5)
    assert found["token_ids"].tolist()[20:] == list(prompt.generated[:-1])
    assert found["steps"].tolist() == [0] * 20 + [1, 2, 3, 4]
    boundaries, final = plain_forward(llama, found["token_ids"].tolist(), torch.float32)
    for index, expected in enumerate(boundaries):
        torch.testing.assert_close(found[f"boundary.{index:03d}"], expected, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(found["final_norm"], final, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(found["boundary.004"][:20], boundaries[4][:20], rtol=1e-5, atol=1e-5)


def test_greedy_tokens_are_transformers_own(llama: Path, tmp_path: Path) -> None:
    """The same continuation as generate() with an honest mask."""
    from transformers import AutoModelForCausalLM

    manifest, _ = run(make_spec(llama, prompts=1, generate=6), tmp_path)
    model = AutoModelForCausalLM.from_pretrained(llama, dtype=torch.float32).eval()
    ids = torch.tensor([make_spec(llama).prompts[0].token_ids])
    model.generation_config.eos_token_id = None
    output = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=6, do_sample=False)
    assert manifest.prompts[0].generated == tuple(output[0, 20:].tolist())


def test_forced_tokens_are_decoded_whatever_the_model_prefers(llama: Path, tmp_path: Path) -> None:
    """Teacher forcing feeds the given ids."""
    spec = make_spec(llama, prompts=1, generate=4)
    spec = replace(spec, prompts=(PromptSpec("p0", spec.prompts[0].token_ids, (3, 1, 4, 1)),))
    manifest, (found,) = run(spec, tmp_path)
    assert manifest.prompts[0].generated == (3, 1, 4, 1)
    assert found["token_ids"].tolist()[-3:] == [3, 1, 4]


def test_a_masked_token_id_is_masked_where_it_stands(llama: Path, tmp_path: Path) -> None:
    """mask_token_id=0 gives what Transformers gives with attention_mask = (ids != 0), decoded rows too."""
    from transformers import AutoModelForCausalLM

    prompt = PromptSpec("p0", (1, 5, 0, 9, 0, 7, 2), (0, 3, 4))
    spec = replace(make_spec(llama, generate=3, engine_args={"mask_token_id": 0}), prompts=(prompt,))
    manifest, (found,) = run(spec, tmp_path / "masked")
    _, (plain,) = run(replace(spec, engine_args={}), tmp_path / "plain")
    ids = found["token_ids"].long()[None]
    model = AutoModelForCausalLM.from_pretrained(llama, dtype=torch.float32).eval()
    with torch.inference_mode():
        states = model(
            ids,
            attention_mask=(ids != 0).long(),
            position_ids=torch.arange(ids.shape[1])[None],
            output_hidden_states=True,
        ).hidden_states
    assert manifest.settings["masked_token_id"] == 0
    torch.testing.assert_close(found["boundary.003"], states[3][0], rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(plain["boundary.003"][:2], found["boundary.003"][:2])
    assert not torch.allclose(plain["boundary.003"][3:], found["boundary.003"][3:], rtol=0.01, atol=0.01)


def test_the_native_tuple_is_labelled_and_recognised(llama: Path, tmp_path: Path) -> None:
    """hidden_states[i] is boundary i, but entry L is the final norm: the data say so."""
    manifest, (found, *_) = run(make_spec(llama, mechanism="both", native_ids=(1, 3, LAYERS)), tmp_path)
    assert manifest.native_labels == {
        "slot.000": "hidden_states[1]",
        "slot.001": "hidden_states[3]",
        "slot.002": "hidden_states[4]",
    }
    assert torch.equal(found["slot.000"], found["boundary.001"])
    assert torch.equal(found["slot.001"], found["boundary.003"])
    assert torch.equal(found["slot.002"], found["final_norm"])
    details = [check.detail for check in manifest.checks if check.name == "native-matches-hooks"]
    assert [d.split(",")[0] for d in details] == [
        "slot.000 (hidden_states[1]) is boundary.001",
        "slot.001 (hidden_states[3]) is boundary.003",
        "slot.002 (hidden_states[4]) is final_norm",
    ]


def test_native_alone_gives_slots_and_no_boundaries(llama: Path, tmp_path: Path) -> None:
    """What its labels mean is left to a comparison."""
    manifest, (found, *_) = run(make_spec(llama, mechanism="native"), tmp_path)
    assert list(manifest.shards[0].sites) == [f"slot.{i:03d}" for i in range(LAYERS + 1)]
    assert not [key for key in found if key.startswith("boundary")]


def test_parts_and_branches_of_a_dense_model(llama: Path, tmp_path: Path) -> None:
    """Boundary k = residual + hidden, residual = boundary k-1 + attention, in the model's arithmetic."""
    spec = make_spec(llama, sites=("boundary.*", "hidden.*", "residual.*", "attn_out.*", "mlp_out.*"))
    manifest, (found, *_) = run(spec, tmp_path)
    assert "parts" in [check.name for check in manifest.checks]
    for layer in range(LAYERS):
        below, above = found[f"boundary.{layer:03d}"], found[f"boundary.{layer + 1:03d}"]
        residual, hidden = found[f"residual.{layer + 1:03d}"], found[f"hidden.{layer + 1:03d}"]
        assert torch.equal(residual, below + found[f"attn_out.{layer:03d}"])
        assert torch.equal(hidden, found[f"mlp_out.{layer:03d}"])
        assert torch.equal(above, residual + hidden)


def test_router_and_experts_of_a_mixture(tmp_path: Path) -> None:
    """The chosen experts are the top of the router's logits; a dense layer has neither."""
    model = save_moe(tmp_path / "model")
    spec = make_spec(model, sites=("boundary.*", "router_logits.*", "experts.*"), generate=3)
    manifest, (found, *_) = run(spec, tmp_path / "capture")
    assert "router_logits.000" not in found
    for layer in range(1, LAYERS):
        logits, chosen = found[f"router_logits.{layer:03d}"], found[f"experts.{layer:03d}"]
        assert logits.shape == (22, 8)
        assert chosen.dtype == torch.int32
        assert torch.equal(logits.topk(2).indices.int().sort(-1).values, chosen.sort(-1).values)
    assert manifest.architecture == "Qwen3MoeForCausalLM"
    with pytest.raises(ProbeError, match="its experts sites: 1 to 3") as error:
        run(replace(spec, sites=("experts.000",)), tmp_path / "dense")
    assert error.value.code == "E306"


def test_a_scaled_embedding_and_plus_one_norms_pass_the_self_check(tmp_path: Path) -> None:
    """Gemma: the factor is in boundary 0, the norm's form is found, parts include the norms behind them."""
    model = save_gemma(tmp_path / "model")
    spec = make_spec(model, dtype="bfloat16", sites=("boundary.*", "final_norm", "hidden.*", "residual.*"))
    manifest, _ = run(spec, tmp_path / "capture")
    assert manifest.norm is not None
    assert manifest.norm.plus_one
    assert {"final-norm", "embedding", "parts"} <= {check.name for check in manifest.checks}


def test_kimi_k2_is_loaded_as_deepseek_v3(tmp_path: Path) -> None:
    """Its model_type is unknown to Transformers; its states equal DeepSeek-V3's with the same weights."""
    from hsparity import models

    kimi = Path(models.path("tiny:kimi-k2"))
    renamed = tmp_path / "deepseek"
    shutil.copytree(kimi, renamed)
    config = json.loads((renamed / "config.json").read_text())
    assert config["model_type"] == "kimi_k2"
    (renamed / "config.json").write_text(json.dumps({**config, "model_type": "deepseek_v3"}))
    (_, one), (_, other) = (
        run(make_spec(model, prompts=1), tmp_path / name) for model, name in ((kimi, "k2"), (renamed, "v3"))
    )
    assert torch.equal(one[0]["boundary.008"], other[0]["boundary.008"])


def test_missing_weights_are_refused_not_drawn_at_random(llama: Path, tmp_path: Path) -> None:
    """Transformers would initialise them and go on; such a reference accuses every engine."""
    broken = tmp_path / "model"
    shutil.copytree(llama, broken)
    weights = load_file(broken / "model.safetensors")
    del weights["model.layers.1.mlp.up_proj.weight"]
    save_file(weights, broken / "model.safetensors", {"format": "pt"})
    with pytest.raises(ProbeError, match=r"no weights for 1 parameters .*layers\.1\.mlp\.up_proj") as error:
        run(make_spec(broken), tmp_path / "capture")
    assert error.value.code == "E307"


def test_prompt_logprobs_are_the_models(llama: Path, tmp_path: Path) -> None:
    """Row t: the log-probability of token t+1, then the five likeliest, by log_softmax of the logits."""
    from transformers import AutoModelForCausalLM

    spec = make_spec(llama, prompts=1, sites=("final_norm", "prompt_logprobs"), generate=2)
    _, (found,) = run(spec, tmp_path)
    ids = torch.tensor([spec.prompts[0].token_ids])
    model = AutoModelForCausalLM.from_pretrained(llama, dtype=torch.float32).eval()
    with torch.inference_mode():
        expected = model(ids).logits[0, :-1].log_softmax(-1)
    assert found["prompt_logprobs"].shape == found["prompt_logprob_ids"].shape == (19, 6)
    assert found["prompt_logprob_ids"][:, 0].tolist() == ids[0, 1:].tolist()
    torch.testing.assert_close(
        found["prompt_logprobs"], expected.gather(1, found["prompt_logprob_ids"].long())
    )
    assert torch.equal(found["prompt_logprob_ids"][:, 1:].long(), expected.topk(5).indices)


def test_the_manifest_describes_the_run(llama: Path, tmp_path: Path) -> None:
    """Settings that could not be applied are said, hashes verify, nothing else is left behind."""
    manifest, _ = run(make_spec(llama, batch=4, generate=2), tmp_path)
    assert manifest.settings["mode"] == "eager"
    assert manifest.settings["attention_backend"] == "sdpa"
    assert manifest.settings["not_applied"] == {"batch": 4}
    assert manifest.architecture == "LlamaForCausalLM"
    assert len(manifest.weights_sha256) == 64
    assert manifest.model_config["num_hidden_layers"] == LAYERS
    assert manifest.warnings == ()
    assert all(check.passed for check in manifest.checks)
    lines = list(verify(tmp_path))
    assert lines[0].startswith("4 files")
    kept = {
        "journal.jsonl",
        "manifest.json",
        "norm.safetensors",
        "probe.started",
        "shards",
        "spec.json",
        "timing.json",
    }
    assert {path.name for path in tmp_path.iterdir()} == kept


def test_timing_without_hooks_writes_no_rows(llama: Path, tmp_path: Path) -> None:
    """Mechanism "none" is for measuring what the hooks cost."""
    capture(make_spec(llama, mechanism="none", generate=3), tmp_path, lambda _event: None)
    assert not (tmp_path / "manifest.json").exists()
    assert not list((tmp_path / "shards").iterdir())
    timing: dict[str, Any] = json.loads((tmp_path / "timing.json").read_text())
    assert [batch["prefill_tokens"] for batch in timing["batches"]] == [20, 21, 22]
    assert [batch["decode_tokens"] for batch in timing["batches"]] == [2, 2, 2]
    assert all(batch["wall_s"] > 0 for batch in timing["batches"])


def test_events_tell_the_progress(llama: Path, tmp_path: Path) -> None:
    """One event when loading, when loaded, per prompt and at the end; a complete capture is not run again."""
    events: list[dict[str, Any]] = []
    first = capture(make_spec(llama), tmp_path, events.append)
    assert [e["event"] for e in events] == ["loading", "loaded", "prompt", "prompt", "prompt", "complete"]
    assert [(e["done"], e["of"]) for e in events if e["event"] == "prompt"] == [(1, 3), (2, 3), (3, 3)]
    events.clear()
    assert capture(make_spec(llama), tmp_path, events.append) == first
    assert [e["event"] for e in events] == ["complete"]
