"""The probe in the real SGLang: rows, sites, native slots, ranks, and what it refuses. 11 engine starts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open

from hsparity.errors import HsparityError
from hsprobe.engines import sglang_arguments
from hsprobe.protocol import ProbeError
from hsprobe.schema import CaptureSpec, PromptSpec

from . import conftest
from .conftest import Capture, manifest, nearest_boundary, random_prompts, rel_l2, site, tensors

pytestmark = pytest.mark.engine

LIMIT = 1.5  # of the bf16 cost: design decision 8
PROMPTS = random_prompts((64, 48, 40, 33), 512, forced=4)
NAMES = tuple(p.id for p in PROMPTS)
PART_SITES = ("hidden.*", "residual.*", "attn_out.*", "mlp_out.*", "router_logits.*", "experts.*")
BOUNDARIES = tuple(f"boundary.{r:03d}" for r in range(9))


@pytest.fixture(scope="session")
def deepseek(capture: Capture, tiny_deepseek: Path) -> Path:
    """Every site at once, in a batch of four."""
    return capture(
        "sglang",
        model=tiny_deepseek,
        prompts=PROMPTS,
        sites=("boundary.*", "final_norm", *PART_SITES, "prompt_logprobs"),
        mechanism="both",
        native_ids=(2, 4, 6),
        generate=4,
        batch=4,
    )


@pytest.fixture(scope="session")
def deepseek_odd(capture: Capture, tiny_deepseek: Path) -> Path:
    return capture(
        "sglang",
        model=tiny_deepseek,
        prompts=PROMPTS,
        mechanism="both",
        native_ids=(1, 3, 5),
        generate=4,
        batch=4,
    )


@pytest.fixture(scope="session")
def llama(capture: Capture, tiny_llama: Path) -> Path:
    return capture(
        "sglang", model=tiny_llama, prompts=PROMPTS, mechanism="both", native_ids=(2, 4, 6), generate=4
    )


@pytest.fixture(scope="session")
def llama_batch(capture: Capture, tiny_llama: Path) -> Path:
    return capture(
        "sglang",
        model=tiny_llama,
        prompts=PROMPTS,
        mechanism="both",
        native_ids=(1, 3, 5),
        generate=4,
        batch=4,
    )


@pytest.fixture(scope="session")
def llama_chunked(capture: Capture, tiny_llama: Path) -> Path:
    """Sixteen tokens a pass; an id list that is not ascending."""
    return capture(
        "sglang",
        model=tiny_llama,
        prompts=PROMPTS,
        mechanism="both",
        native_ids=(6, 2),
        generate=4,
        engine_args={"chunked_prefill_size": 16},
    )


def prefill(folder: Path, key: str) -> torch.Tensor:
    """A site's rows of prompt tokens, all prompts."""
    lengths = {p.id: p.prefill for p in manifest(folder).prompts}
    return torch.cat([tensors(folder, name)[key][: lengths[name]] for name in NAMES])


def assert_parity(figures: dict[str, tuple[float, float]]) -> None:
    for key, (error, cost) in figures.items():
        assert error <= LIMIT * cost, f"{key}: {error:.2e}, bf16 costs {cost:.2e}"


def assert_same_rows(cand_nh: torch.Tensor, ref_nh: torch.Tensor, cost: float) -> None:
    """Rows are those of the same positions; a matrix of another shape may round a few of them differently."""
    cand_nh, ref_nh = cand_nh.double(), ref_nh.double()
    error_n = (cand_nh - ref_nh).norm(dim=1) / ref_nh.norm(dim=1)
    assert float(error_n.median()) == 0.0
    assert float(error_n.max()) <= LIMIT * 2**0.5 * cost


def refused(**fields: Any) -> ProbeError:
    """What a spec with these fields is refused with, before any engine starts."""
    prompts = (PromptSpec("p", (1, 2, 3)),)
    spec = CaptureSpec("sglang", "no-model", prompts, ("boundary.*",), **{"native_ids": (2,), **fields})
    with pytest.raises(ProbeError) as caught:
        sglang_arguments.engine_arguments(spec)
    return caught.value


def plugin(folder: Path, source: str) -> dict[str, str]:
    """An environment in which SGLang also loads `source`, which defines hsfault()."""
    (folder / "hsfault.py").write_text(source)
    info = folder / "hsfault-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: hsfault\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[sglang.srt.plugins]\nhsfault = hsfault:hsfault\n")
    return {"PYTHONPATH": str(folder)}


def test_deepseek_is_at_parity(deepseek: Path, yardstick: Any) -> None:
    """Every boundary of DeepSeek-V3 is as near to fp32 as Transformers bf16 is; boundary 0 is exact."""
    figures = yardstick(deepseek)
    assert set(figures) == {*BOUNDARIES, "final_norm"}
    assert figures["boundary.000"] == (0.0, 0.0)
    assert 2.5e-3 < figures["boundary.001"][0] < 5.5e-3
    assert_parity(figures)


def test_llama_is_at_parity(llama: Path, yardstick: Any) -> None:
    """Every boundary of the tiny Llama is as near to fp32 as Transformers bf16 is."""
    figures = yardstick(llama)
    assert 0.7e-2 < figures["boundary.008"][0] < 1.5e-2
    assert_parity(figures)


def test_smollm2_is_at_parity(capture: Capture, smollm2: Path, yardstick: Any) -> None:
    """Real weights and English text: parity at all 31 boundaries, greedy tokens in a batch."""
    folder = capture("sglang", model=smollm2, prompts=conftest.english_prompts(smollm2), generate=6, batch=4)
    figures = yardstick(folder)
    assert len(figures) == 32
    assert_parity(figures)


@pytest.mark.parametrize(
    ("name", "ids", "boundaries"),
    [
        ("deepseek", "2,4,6", (2, 4, 6)),
        ("deepseek_odd", "1,3,5", (2, 4, 6)),
        ("llama", "2,4,6", (3, 5, 7)),
        ("llama_batch", "1,3,5", (2, 4, 6)),
    ],
)
def test_where_native_ids_land(
    name: str, ids: str, boundaries: tuple[int, ...], request: pytest.FixtureRequest
) -> None:
    """DeepSeek takes ids as boundaries unless the first is 1; Llama always adds one."""
    folder: Path = request.getfixturevalue(name)
    for index, boundary in enumerate(boundaries):
        slot = f"slot.{index:03d}"
        assert nearest_boundary(site(folder, slot), folder)[0] == boundary
        assert manifest(folder).native_labels[slot] == f"return_aux_hidden_state_layer_ids[{index}] of {ids}"
        assert rel_l2(site(folder, slot), site(folder, f"boundary.{boundary:03d}")) < 2.0**-8
    assert manifest(folder).settings["native_layers_to_capture"] == list(boundaries)


def test_slots_come_in_layer_order(llama_chunked: Path) -> None:
    """Ids 6, 2 are handed over as 3, then 7: SGLang fills its list as the layers run."""
    nearest = [nearest_boundary(site(llama_chunked, f"slot.00{i}"), llama_chunked)[0] for i in range(2)]
    assert nearest == [3, 7]


def test_parts_add_up(deepseek: Path) -> None:
    """hidden + residual is the boundary, the MLP gives the hidden part, attention fills the residual."""
    rows = tensors(deepseek, "p0")
    for layer in range(8):
        hidden, residual = rows[f"hidden.{layer + 1:03d}"], rows[f"residual.{layer + 1:03d}"]
        assert torch.equal(hidden + residual, rows[f"boundary.{layer + 1:03d}"])
        assert torch.equal(rows[f"mlp_out.{layer:03d}"], hidden)
        before = rows[f"boundary.{layer:03d}"].float() + rows[f"attn_out.{layer:03d}"].float()
        assert rel_l2(residual.float(), before) < 2.0**-8


def test_experts_follow_the_router(deepseek: Path, tiny_deepseek: Path) -> None:
    """The chosen experts score best: sigmoid of the logit plus the layer's bias. Layer 0 is dense."""
    rows = tensors(deepseek, "p1")
    assert "experts.000" not in rows
    with safe_open(tiny_deepseek / "model.safetensors", "pt") as weights:
        for layer in range(1, 8):
            bias = weights.get_tensor(f"model.layers.{layer}.mlp.gate.e_score_correction_bias")
            scores = rows[f"router_logits.{layer:03d}"].float().sigmoid() + bias.float()
            chosen = rows[f"experts.{layer:03d}"]
            assert chosen.dtype == torch.int32
            # By value: two experts with the same logit may stand for each other.
            taken = scores.gather(1, chosen.long()).sort().values
            torch.testing.assert_close(taken, scores.topk(2).values.sort().values, rtol=0, atol=2.0**-9)


def test_prompt_logprobs(deepseek: Path) -> None:
    """Row t holds the log-probability of prompt token t + 1, then the top five in order."""
    for prompt in PROMPTS:
        rows = tensors(deepseek, prompt.id)
        ids, values = rows["prompt_logprob_ids"], rows["prompt_logprobs"]
        assert ids.shape == values.shape == (len(prompt.token_ids) - 1, 6)
        assert ids[:, 0].tolist() == list(prompt.token_ids[1:])
        assert bool((values[:, 1:].diff(dim=1) <= 0).all())
        assert bool((values[:, 0] <= values[:, 1]).all())


def test_settings_name_what_ran(deepseek: Path) -> None:
    """The manifest says how SGLang ran: mode, backends, caches, and the shims a CPU needs."""
    about = manifest(deepseek)
    settings = about.settings
    assert settings["mode"] == "eager"
    assert settings["attention_backend"] == settings["decode_attention_backend"] == "torch_native"
    assert (settings["tp"], settings["chunked_prefill"], settings["prefix_cache"]) == (1, False, False)
    assert settings["kv_cache_dtype"] == about.dtype == "bfloat16"
    assert settings["shims"] == ["libcuda-stub", "mla-absorb"]
    assert about.environment["sglang"] == about.engine_version


def test_batch_keeps_rows(llama: Path, llama_batch: Path, yardstick: Any) -> None:
    """A batch of four shares one pass, and each of its rows is the row that the prompt has alone."""
    shared = tensors(llama_batch, "p0")["steps"][0]
    assert all(tensors(llama_batch, name)["steps"][0] == shared for name in NAMES)
    for key in BOUNDARIES:
        assert_same_rows(prefill(llama_batch, key), prefill(llama, key), yardstick(llama)[key][1])


def test_chunks_keep_rows(llama: Path, llama_chunked: Path, yardstick: Any) -> None:
    """Prompts run sixteen tokens a pass keep every row, and native slots of every chunk are there."""
    assert tensors(llama_chunked, "p0")["steps"].unique(return_counts=True)[1].tolist()[:4] == [16] * 4
    for key in BOUNDARIES:
        assert_same_rows(prefill(llama_chunked, key), prefill(llama, key), yardstick(llama)[key][1])
    slot_nh = prefill(llama_chunked, "slot.000")
    assert_same_rows(slot_nh, prefill(llama, "boundary.003"), yardstick(llama)["boundary.003"][1])
    assert manifest(llama_chunked).settings["chunked_prefill_size"] == 16


def test_repeat_is_bit_equal(deepseek: Path, deepseek_odd: Path) -> None:
    """Another start of the same model gives the same rows, decoded ones too, bit for bit."""
    for key in (*BOUNDARIES, "final_norm"):
        assert torch.equal(site(deepseek, key), site(deepseek_odd, key))


def test_forced_tokens_are_decoded(llama: Path, deepseek: Path) -> None:
    """Every engine decodes exactly the forced ids; the last is generated and never fed back."""
    for folder in (llama, deepseek):
        for prompt, found in zip(PROMPTS, manifest(folder).prompts, strict=True):
            assert found.generated == prompt.forced
            rows = tensors(folder, prompt.id)
            assert rows["token_ids"].tolist() == [*prompt.token_ids, *prompt.forced[:-1]]
            assert rows["positions"].tolist() == list(range(len(prompt.token_ids) + 3))
            assert found.missing == ()


def test_cached_prefix_is_missing(capture: Capture, tiny_llama: Path, llama: Path, yardstick: Any) -> None:
    """Rows that the radix cache served are missing, and the rest agree with a run without a cache."""
    twins = tuple(
        PromptSpec(f"t{i}", (*PROMPTS[0].token_ids, *PROMPTS[1].token_ids[i : i + 6])) for i in (1, 9)
    )
    folder = capture(
        "sglang",
        model=tiny_llama,
        prompts=twins,
        mechanism="both",
        native_ids=(2,),
        engine_args={"disable_radix_cache": False},
    )
    first, second = manifest(folder).prompts
    assert first.missing == ()
    assert second.missing == ((0, 64),)
    assert tensors(folder, "t9")["positions"].tolist() == list(range(64, 70))
    assert torch.equal(tensors(folder, "t9")["slot.000"], tensors(folder, "t9")["boundary.003"])
    for key in BOUNDARIES:
        alone_nh = tensors(llama, "p0")[key][:64]
        assert_same_rows(tensors(folder, "t1")[key][:64], alone_nh, yardstick(llama)[key][1])


def test_two_ranks(capture: Capture, tiny_llama: Path, llama: Path, yardstick: Any) -> None:
    """Two tensor-parallel ranks: rank 0 writes whole sums, at parity, and the branch outputs add up."""
    folder = capture(
        "sglang",
        model=tiny_llama,
        prompts=PROMPTS,
        sites=("boundary.*", "final_norm", "hidden.*", "residual.*", "attn_out.*"),
        generate=4,
        batch=4,
        engine_args={"tp_size": 2},
    )
    assert manifest(folder).settings["tp"] == 2
    assert "cpu-tensor-parallel" in manifest(folder).settings["shims"]
    assert torch.equal(prefill(folder, "boundary.000"), prefill(llama, "boundary.000"))
    assert not torch.equal(prefill(folder, "boundary.008"), prefill(llama, "boundary.008"))
    for layer in range(8):
        before = site(folder, f"boundary.{layer:03d}") + site(folder, f"attn_out.{layer:03d}")
        assert rel_l2(site(folder, f"residual.{layer + 1:03d}"), before) < 2.0**-7
    assert_parity(yardstick(folder))


def test_last_layer_is_refused_by_the_engine(capture: Capture, tiny_llama: Path) -> None:
    """An id whose layer output SGLang cannot hand over ends with SGLang's own message."""
    with pytest.raises(HsparityError) as caught:
        capture("sglang", model=tiny_llama, prompts=PROMPTS, mechanism="native", native_ids=(2, 7))
    assert caught.value.code == "E306"
    assert "captured 1 aux hidden states" in str(caught.value)


def test_silent_hook_fails(capture: Capture, tiny_llama: Path, tmp_path: Path) -> None:
    """A layer whose hook does not fire in a real pass ends the capture; nothing partial is kept."""
    source = (
        "def hsfault():\n"
        "    from hsprobe.engines.sglang_hooks import LayerHooks\n"
        "    install = LayerHooks.install\n"
        "    def muted(self):\n"
        "        install(self)\n"
        "        self.stack.layers[3]._forward_hooks.clear()\n"
        "    LayerHooks.install = muted\n"
    )
    with pytest.raises(HsparityError) as caught:
        capture("sglang", model=tiny_llama, prompts=PROMPTS, env=plugin(tmp_path, source))
    assert caught.value.code == "E304"
    assert "boundary.004" in str(caught.value)


def test_killed_scheduler_is_reported(capture: Capture, tiny_llama: Path, tmp_path: Path) -> None:
    """A scheduler killed in its second pass ends in E303, not in SGLang killing the driver."""
    source = (
        "import os, signal\n"
        "def hsfault():\n"
        "    from hsprobe.spool import StepRecorder\n"
        "    end = StepRecorder.end\n"
        "    def killed(self):\n"
        "        end(self)\n"
        "        if self.steps == 2:\n"
        "            os.kill(os.getpid(), signal.SIGKILL)\n"
        "    StepRecorder.end = killed\n"
    )
    with pytest.raises(HsparityError) as caught:
        capture("sglang", model=tiny_llama, prompts=PROMPTS, env=plugin(tmp_path, source))
    assert caught.value.code == "E303"


@pytest.mark.parametrize(
    ("argument", "value"),
    [("disable_cuda_graph", False), ("enable_torch_compile", True), ("cuda_graph_backend_decode", "full")],
)
def test_hooks_refuse_graphs(argument: str, value: object) -> None:
    """Layer hooks with graphs or compilation asked for are refused, naming the native path."""
    error = refused(engine_args={argument: value})
    assert error.code == "E306"
    assert argument in error.message
    assert "native" in error.help


def test_interpreted_triton_refuses_bfloat16(monkeypatch: pytest.MonkeyPatch) -> None:
    """bfloat16 under the Triton interpreter is garbage without an error, so it is refused."""
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    assert refused(engine_args={"attention_backend": "triton"}).code == "E306"
    spec = CaptureSpec("sglang", "no-model", (PromptSpec("p", (1,)),), (), dtype="float32")
    assert sglang_arguments.engine_arguments(spec)["dtype"] == "float32"


@pytest.mark.parametrize("fields", [{"pp_size": 2}, {"dp_size": 2}, {"speculative_algorithm": "EAGLE3"}])
def test_spread_or_drafted_rows_are_refused(fields: dict[str, object]) -> None:
    """Pipeline and data parallelism would lose rows, a live draft would add rejected ones."""
    assert refused(engine_args=fields).code == "E306"
