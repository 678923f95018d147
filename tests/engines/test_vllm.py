"""The probe in the real vLLM: rows, sites, native slots, modes, and what it refuses. 14 engine starts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open

from hsparity.errors import HsparityError

from . import conftest
from .conftest import Capture, manifest, nearest_boundary, random_prompts, rel_l2, site, tensors

pytestmark = pytest.mark.engine

LIMIT = 1.5  # of the bf16 cost: design decision 8
PROMPTS = random_prompts((64, 48, 40, 36), 512, forced=4)
NAMES = tuple(p.id for p in PROMPTS)
PART_SITES = ("hidden.*", "residual.*", "attn_out.*", "mlp_out.*", "router_logits.*", "experts.*")
BOUNDARIES = tuple(f"boundary.{r:03d}" for r in range(9))


@pytest.fixture(scope="session")
def deepseek(capture: Capture, tiny_deepseek: Path) -> Path:
    """Everything at once, batch of four; block size and chunking are asked for, which MLA cannot have."""
    return capture(
        "vllm",
        model=tiny_deepseek,
        prompts=PROMPTS,
        sites=("boundary.*", "final_norm", *PART_SITES, "prompt_logprobs"),
        mechanism="both",
        native_ids=(2, 4, 6),
        generate=4,
        batch=4,
        engine_args={"max_num_batched_tokens": 16, "block_size": 32, "enable_chunked_prefill": True},
    )


@pytest.fixture(scope="session")
def deepseek_odd(capture: Capture, tiny_deepseek: Path) -> Path:
    return capture(
        "vllm", model=tiny_deepseek, prompts=PROMPTS, mechanism="both", native_ids=(1, 3, 5), generate=4
    )


@pytest.fixture(scope="session")
def llama(capture: Capture, tiny_llama: Path) -> Path:
    return capture(
        "vllm", model=tiny_llama, prompts=PROMPTS, mechanism="both", native_ids=(2, 4, 6), generate=4
    )


@pytest.fixture(scope="session")
def llama_batch(capture: Capture, tiny_llama: Path) -> Path:
    """Batch of four, the engine core in a process of its own."""
    return capture(
        "vllm",
        model=tiny_llama,
        prompts=PROMPTS,
        mechanism="both",
        native_ids=(1, 3, 5),
        generate=4,
        batch=4,
        env={"VLLM_ENABLE_V1_MULTIPROCESSING": "1"},
    )


@pytest.fixture(scope="session")
def llama_chunked(capture: Capture, tiny_llama: Path) -> Path:
    """Sixteen tokens a pass; an id list that is unsorted and repeats itself."""
    return capture(
        "vllm",
        model=tiny_llama,
        prompts=PROMPTS,
        mechanism="both",
        native_ids=(6, 2, 2),
        generate=4,
        engine_args={"max_num_batched_tokens": 16},
    )


@pytest.fixture(scope="session")
def compile_cache(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return {"VLLM_CACHE_ROOT": str(tmp_path_factory.mktemp("vllm-cache"))}


def prefill(folder: Path, key: str) -> torch.Tensor:
    """A site's rows of prompt tokens, all prompts."""
    lengths = {p.id: p.prefill for p in manifest(folder).prompts}
    return torch.cat([tensors(folder, name)[key][: lengths[name]] for name in NAMES])


def assert_parity(figures: dict[str, tuple[float, float]]) -> None:
    for key, (error, cost) in figures.items():
        assert error <= LIMIT * cost, f"{key}: {error:.2e}, bf16 costs {cost:.2e}"


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
    folder = capture("vllm", model=smollm2, prompts=conftest.english_prompts(smollm2), generate=6, batch=4)
    figures = yardstick(folder)
    assert len(figures) == 32
    assert_parity(figures)


@pytest.mark.parametrize("name", ["deepseek", "llama"])
def test_even_ids_are_boundaries(name: str, request: pytest.FixtureRequest) -> None:
    """Native ids 2, 4, 6 hand over boundaries 2, 4, 6, bit for bit what the hooks saw."""
    folder: Path = request.getfixturevalue(name)
    for index, boundary in enumerate((2, 4, 6)):
        assert torch.equal(site(folder, f"slot.{index:03d}"), site(folder, f"boundary.{boundary:03d}"))
    labels = manifest(folder).native_labels
    assert labels["slot.001"] == "aux_hidden_state_layers[1] of 2,4,6"


@pytest.mark.parametrize(("name", "truth"), [("deepseek_odd", "deepseek"), ("llama_batch", "llama")])
def test_odd_ids_are_boundaries(name: str, truth: str, request: pytest.FixtureRequest) -> None:
    """Native ids 1, 3, 5 land on boundaries 1, 3, 5 of another capture: vLLM shifts nothing."""
    folder, reference = request.getfixturevalue(name), request.getfixturevalue(truth)
    for index, boundary in enumerate((1, 3, 5)):
        best, error, runner_up = nearest_boundary(site(folder, f"slot.{index:03d}"), reference)
        assert best == boundary
        assert error * 10 < runner_up


def test_repeated_id_is_one_slot(llama_chunked: Path) -> None:
    """vLLM sorts the ids and drops repeats: three ids, two slots, and the manifest says so."""
    about = manifest(llama_chunked)
    assert about.settings["native_slots"] == 2
    assert about.settings["aux_hidden_state_layers"] == [2, 6]
    assert any("2 slots for the 3 ids 6,2,2" in w for w in about.warnings)
    assert torch.equal(site(llama_chunked, "slot.001"), site(llama_chunked, "boundary.006"))


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
    """The chosen experts score best by sigmoid of the logit plus the layer's bias; layer 0 is dense."""
    rows = tensors(deepseek, "p1")
    assert "experts.000" not in rows
    with safe_open(tiny_deepseek / "model.safetensors", "pt") as weights:
        for layer in range(1, 8):
            bias = weights.get_tensor(f"model.layers.{layer}.mlp.gate.e_score_correction_bias")
            scores = rows[f"router_logits.{layer:03d}"].float().sigmoid() + bias.float()
            chosen = rows[f"experts.{layer:03d}"]
            assert chosen.dtype == torch.int32
            # By value: two experts with the same bf16 logit may stand for each other.
            assert torch.equal(
                scores.gather(1, chosen.long()).sort().values, scores.topk(2).values.sort().values
            )


def test_prompt_logprobs(deepseek: Path) -> None:
    """Row t holds the log-probability of prompt token t + 1, then the top five in order."""
    for prompt in PROMPTS:
        rows = tensors(deepseek, prompt.id)
        ids, values = rows["prompt_logprob_ids"], rows["prompt_logprobs"]
        assert ids.shape == values.shape == (len(prompt.token_ids) - 1, 6)
        assert ids[:, 0].tolist() == list(prompt.token_ids[1:])
        assert bool((values[:, 1:].diff(dim=1) <= 0).all())
        assert bool((values[:, 0] <= values[:, 1]).all())


def test_what_mla_turned_off_is_recorded(deepseek: Path) -> None:
    """Block size and chunking that vLLM's CPU MLA overrides are in the settings, asked beside applied."""
    about = manifest(deepseek)
    refused = about.settings["not_applied"]
    assert refused["block_size"] == {"asked": 32, "applied": 16}
    assert refused["enable_chunked_prefill"] == {"asked": True, "applied": False}
    assert refused["max_num_batched_tokens"]["asked"] == 16
    assert about.settings["attention_backend"] == "CPU_MLA"
    assert about.settings["mode"] == "eager"
    # One prefill of all rows, then one row a request and pass.
    assert tensors(deepseek, "p0")["steps"].unique().numel() == 4


def test_batch_keeps_rows(llama: Path, llama_batch: Path) -> None:
    """Prefill rows of a batch of four equal those of single prompts, bit for bit, in another process too."""
    for key in (*BOUNDARIES, "final_norm"):
        assert torch.equal(prefill(llama, key), prefill(llama_batch, key))
    assert manifest(llama_batch).settings["engine_process"] == "own"
    passes = [set(tensors(llama_batch, name)["steps"].tolist()) for name in NAMES]
    assert len(set.union(*passes)) < sum(map(len, passes))


def test_chunks_keep_rows(llama: Path, llama_chunked: Path) -> None:
    """Prompts run sixteen tokens a pass give the same rows, bit for bit; passes under four rows would not."""
    assert tensors(llama_chunked, "p0")["steps"].unique(return_counts=True)[1].tolist()[:4] == [16] * 4
    for key in (*BOUNDARIES, "final_norm"):
        assert torch.equal(prefill(llama, key), prefill(llama_chunked, key))


def test_batch_keeps_rows_of_experts(deepseek: Path, deepseek_odd: Path) -> None:
    """Expert kernels round by the batch they see: a batch's rows are the same within bf16's cost."""
    assert torch.equal(prefill(deepseek, "boundary.000"), prefill(deepseek_odd, "boundary.000"))
    for key in BOUNDARIES[1:]:
        assert rel_l2(prefill(deepseek, key).double(), prefill(deepseek_odd, key).double()) < 4e-3


def test_repeat_is_bit_equal(capture: Capture, llama: Path, tiny_llama: Path) -> None:
    """Another start with the same settings gives every tensor again, decoded rows included, bit for bit."""
    again = capture(
        "vllm",
        model=tiny_llama,
        prompts=PROMPTS,
        mechanism="both",
        native_ids=(2, 4, 6),
        generate=4,
        repeat=1,
    )
    assert again != llama
    for name in NAMES:
        first, second = tensors(llama, name), tensors(again, name)
        assert first.keys() == second.keys()
        assert all(torch.equal(first[key], second[key]) for key in first)


def test_forced_tokens_are_decoded(llama: Path, deepseek: Path) -> None:
    """Every engine decodes exactly the forced ids; the last is generated and never fed back."""
    for folder in (llama, deepseek):
        for prompt, found in zip(PROMPTS, manifest(folder).prompts, strict=True):
            assert found.generated == prompt.forced
            rows = tensors(folder, prompt.id)
            assert rows["token_ids"].tolist() == [*prompt.token_ids, *prompt.forced[:-1]]
            assert rows["positions"].tolist() == list(range(len(prompt.token_ids) + 3))
            assert found.missing == ()


def test_cached_prefix_is_missing(capture: Capture, tiny_llama: Path, llama: Path) -> None:
    """Rows that the prefix cache served are missing, and the rest agree with a run without a cache."""
    twins = tuple(
        conftest.PromptSpec(f"t{i}", (*PROMPTS[0].token_ids, *PROMPTS[1].token_ids[i : i + 6]))
        for i in (1, 9)
    )
    folder = capture(
        "vllm",
        model=tiny_llama,
        prompts=twins,
        engine_args={"enable_prefix_caching": True, "block_size": 32},
    )
    first, second = manifest(folder).prompts
    assert first.missing == ()
    assert second.missing == ((0, 64),)
    assert tensors(folder, "t9")["positions"].tolist() == list(range(64, 70))
    for key in BOUNDARIES:
        assert torch.equal(tensors(folder, "t1")[key][:64], tensors(llama, "p0")[key][:64])


def test_two_ranks(capture: Capture, tiny_llama: Path, llama: Path, yardstick: Any) -> None:
    """Two tensor-parallel workers: rank 0 writes whole rows, at parity, with the same forced tokens."""
    folder = capture(
        "vllm",
        model=tiny_llama,
        prompts=PROMPTS,
        generate=4,
        batch=4,
        engine_args={"tensor_parallel_size": 2},
        env={"VLLM_CPU_OMP_THREADS_BIND": "nobind"},
    )
    assert manifest(folder).settings["tp"] == 2
    assert torch.equal(prefill(folder, "boundary.000"), prefill(llama, "boundary.000"))
    assert not torch.equal(prefill(folder, "boundary.008"), prefill(llama, "boundary.008"))
    assert_parity(yardstick(folder))


@pytest.mark.parametrize("ids", [(2, 4, 6), (1, 3, 5)])
def test_compiled_native(
    ids: tuple[int, ...], capture: Capture, tiny_llama: Path, llama: Path, compile_cache: dict[str, str]
) -> None:
    """Under torch.compile the native slots still arrive; vLLM's compile cache mixes no id lists up."""
    folder = capture(
        "vllm",
        model=tiny_llama,
        prompts=PROMPTS,
        mechanism="native",
        native_ids=ids,
        generate=4,
        batch=4,
        engine_args={"enforce_eager": False},
        env=compile_cache,
    )
    assert manifest(folder).settings["mode"] == "compiled"
    for index, boundary in enumerate(ids):
        best, error, runner_up = nearest_boundary(site(folder, f"slot.{index:03d}"), llama)
        assert best == boundary
        assert error * 10 < runner_up


def test_hooks_refuse_compilation(capture: Capture, tiny_llama: Path) -> None:
    """Layer hooks under torch.compile are refused before anything is compiled, naming the native path."""
    with pytest.raises(HsparityError) as caught:
        capture("vllm", model=tiny_llama, prompts=PROMPTS, engine_args={"enforce_eager": False})
    assert caught.value.code == "E306"
    assert "compiled" in str(caught.value)
    assert "native" in caught.value.help


def test_ids_beyond_the_model(capture: Capture, tiny_llama: Path) -> None:
    """Ids that reach no layer are an error, not an empty capture."""
    with pytest.raises(HsparityError) as caught:
        capture("vllm", model=tiny_llama, prompts=PROMPTS, mechanism="native", native_ids=(50, 60))
    assert caught.value.code == "E309"


def test_silent_hook_fails(capture: Capture, tiny_llama: Path, tmp_path: Path) -> None:
    """A layer whose hook does not fire in a real pass ends the capture; nothing partial is kept."""
    (tmp_path / "hsmute.py").write_text(
        "def mute():\n"
        "    from hsprobe.engines.vllm_runner import RunnerProbe\n"
        "    register = RunnerProbe.register\n"
        "    def muted(self, stack, wanted):\n"
        "        register(self, stack, wanted)\n"
        "        stack.layers[3]._forward_hooks.clear()\n"
        "    RunnerProbe.register = muted\n"
    )
    info = tmp_path / "hsmute-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: hsmute\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[vllm.general_plugins]\nhsmute = hsmute:mute\n")
    with pytest.raises(HsparityError) as caught:
        capture("vllm", model=tiny_llama, prompts=PROMPTS, env={"PYTHONPATH": str(tmp_path)})
    assert caught.value.code == "E304"
    assert "boundary.004" in str(caught.value)
