"""The decoder stack is found by structure, multi-stream families are refused, sites are written out."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from hsprobe.protocol import ProbeError
from hsprobe.schema import CaptureSpec, PromptSpec
from hsprobe.stack import (
    expand,
    find_stack,
    layer_parts,
    load_embedding,
    load_facts,
    load_norm,
    moe_layers,
    save_embedding,
    save_facts,
    save_norm,
)


class Norm(nn.Module):
    """RMSNorm in bf16 as engines have it; `plus` is Gemma's form."""

    def __init__(self, plus: float = 0.0) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.linspace(0.5, 1.5, 32).bfloat16())
        self.variance_epsilon, self.plus = 1e-5, plus

    def forward(self, hidden_nh: torch.Tensor) -> torch.Tensor:
        hidden_nh = hidden_nh.float()
        scale_n1 = torch.rsqrt(hidden_nh.pow(2).mean(-1, keepdim=True) + self.variance_epsilon)
        return (hidden_nh * scale_n1 * (self.weight.float() + self.plus)).bfloat16()


class Layer(nn.Module):
    def __init__(self, moe: bool) -> None:
        super().__init__()
        self.self_attn, self.mlp = nn.Linear(32, 32), nn.Module()
        if moe:
            self.mlp.gate = nn.Linear(32, 4)


class Inner(nn.Module):
    def __init__(self, norm: nn.Module | None = None) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(50, 32, dtype=torch.bfloat16)
        self.layers = nn.ModuleList([Layer(moe=i > 0) for i in range(3)])
        self.norm = norm or Norm()


class Tower(nn.Module):
    """A vision tower: layers too, but neither an embedding nor a final norm of a decoder."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(4, 4) for _ in range(30)])


def nest(path: str, inner: nn.Module) -> nn.Module:
    outer = nn.Module()
    outer.vision_tower = Tower()
    module = outer
    *above, last = path.split(".")
    for name in above:
        child = nn.Module()
        setattr(module, name, child)
        module = child
    setattr(module, last, inner)
    return outer


@pytest.mark.parametrize("path", ["model", "language_model.model", "model.language_model", "language_model"])
def test_the_stack_is_found_under_multimodal_wrappers(path: str) -> None:
    """Llama's place, Kimi-K2.5's and Transformers' multimodal one."""
    inner = Inner()
    stack = find_stack(nest(path, inner))
    assert (stack.path, stack.inner, len(stack.layers)) == (path, inner, 3)
    assert stack.norm is inner.norm
    assert stack.embed is inner.embed_tokens


def test_a_bare_inner_model_is_its_own_stack() -> None:
    """An engine may hand over the inner model."""
    assert find_stack(Inner()).path == ""


def test_a_model_without_a_decoder_is_e307() -> None:
    """A tower with layers alone is not taken for one."""
    with pytest.raises(ProbeError) as error:
        find_stack(nest("vision.model", Tower()))
    assert error.value.code == "E307"


@pytest.mark.parametrize(
    "config",
    [
        SimpleNamespace(model_type="deepseek_v4"),
        SimpleNamespace(model_type="x", hc_mult=4),
        SimpleNamespace(model_type="x", altup_num_inputs=4),
        SimpleNamespace(model_type="x", attn_res_block_size=8),
        SimpleNamespace(model_type="x", text_config=SimpleNamespace(model_type="gemma3n_text")),
        SimpleNamespace(model_type="x", architectures=["KimiK3ForCausalLM"]),
    ],
)
def test_families_without_one_stream_are_e307(config: SimpleNamespace) -> None:
    """Hyper-connections, AltUp and AttnRes have no boundary."""
    with pytest.raises(ProbeError) as error:
        find_stack(nest("model", Inner()), config)
    assert error.value.code == "E307"


@pytest.mark.parametrize("config", [None, SimpleNamespace(model_type="deepseek_v3", hc_mult=1)])
def test_ordinary_families_are_not_refused(config: SimpleNamespace | None) -> None:
    """One stream written as hc_mult = 1 is one stream."""
    assert find_stack(nest("model", Inner()), config).path == "model"


def test_a_pipeline_stage_has_no_norm() -> None:
    """Both engines put a PPMissingLayer where another stage holds the module."""
    missing = type("PPMissingLayer", (nn.Identity,), {})()
    assert find_stack(nest("model", Inner(missing))).norm is None


def test_routers_mark_the_mixture_layers() -> None:
    """A dense first layer has no router."""
    stack = find_stack(nest("model", Inner()))
    assert moe_layers(stack) == (1, 2)
    assert layer_parts(stack.layers[0]).router is None
    assert layer_parts(stack.layers[0]).attention is not None


def test_stars_are_written_out_once_and_in_order() -> None:
    """Boundaries run to L, layers to L - 1, parts start at 1, routers where there are some."""
    keys = expand(["final_norm", "boundary.*", "boundary.002", "hidden.*", "experts.*"], 3, (1, 2))
    assert keys == (
        "final_norm", "boundary.000", "boundary.001", "boundary.002", "boundary.003",
        "hidden.001", "hidden.002", "hidden.003", "experts.001", "experts.002",
    )  # fmt: skip
    assert expand(["attn_out.*", "prompt_logprobs"], 2) == ("attn_out.000", "attn_out.001", "prompt_logprobs")


@pytest.mark.parametrize(
    ("key", "said"),
    [
        ("boundary.004", "0 to 3"),
        ("attn_out.003", "0 to 2"),
        ("residual.000", "1 to 3"),
        ("experts.000", "1 to 2"),
        ("boundary", "not a site key"),
        ("slot.000", "native"),
        ("slot.*", "cannot be expanded"),
        ("layers.*", "cannot be expanded"),
    ],
)
def test_sites_the_model_lacks_are_e306_with_what_it_has(key: str, said: str) -> None:
    """The message ends the guessing."""
    with pytest.raises(ProbeError) as error:
        expand([key], 3, (1, 2))
    assert error.value.code == "E306"
    assert said in error.value.message


@pytest.mark.parametrize("plus", [0.0, 1.0])
def test_the_norms_form_is_found_by_running_it(tmp_path: Path, plus: float) -> None:
    """w and 1 + w are told apart whatever the class is called."""
    stack = find_stack(nest("model", Inner(Norm(plus))))
    assert save_norm(tmp_path, stack)
    assert load_facts(tmp_path) == {"norm_eps": 1e-5, "norm_plus_one": bool(plus)}
    weight_h = load_norm(tmp_path)
    assert weight_h is not None
    assert weight_h.dtype == torch.float32
    assert torch.equal(weight_h, stack.norm.weight.float())  # type: ignore[union-attr,operator]
    assert load_file(tmp_path / "norm.safetensors")["norm"].shape == (32,)


def test_a_layer_norm_is_not_taken_for_an_rms_norm(tmp_path: Path) -> None:
    """No norm file is better than one that a reader would apply wrongly."""
    assert not save_norm(tmp_path, find_stack(nest("model", Inner(nn.LayerNorm(32)))))
    assert load_norm(tmp_path) is None


def test_embedding_rows_of_prompts_and_forced_tokens_are_saved(tmp_path: Path) -> None:
    """Each id once, ascending, the module's own rows."""
    stack = find_stack(nest("model", Inner()))
    spec = CaptureSpec("hf", "m", (PromptSpec("a", (7, 3, 7), (9,)), PromptSpec("b", (1,))), ())
    save_embedding(tmp_path, stack, spec)
    saved = load_embedding(tmp_path)
    assert saved is not None
    assert saved["token_ids"].tolist() == [1, 3, 7, 9]
    assert torch.equal(saved["rows"], stack.inner.embed_tokens.weight[[1, 3, 7, 9]])  # type: ignore[union-attr,index]


def test_a_token_outside_the_vocabulary_is_e105(tmp_path: Path) -> None:
    """Said before a GPU asserts on it."""
    spec = CaptureSpec("hf", "m", (PromptSpec("a", (7, 50)),), ())
    with pytest.raises(ProbeError) as error:
        save_embedding(tmp_path, find_stack(nest("model", Inner())), spec)
    assert error.value.code == "E105"
    assert "50" in error.value.message


def test_facts_merge(tmp_path: Path) -> None:
    """Several writers of one process add to what is there."""
    save_facts(tmp_path, layers=3, mode="eager")
    save_facts(tmp_path, mode="graphs")
    assert load_facts(tmp_path) == {"layers": 3, "mode": "graphs"}
