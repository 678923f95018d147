"""Models that keep several streams are known by name, by config and by what their layers hand on."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from hsprobe import streams
from hsprobe.engines.hf_hooks import attach
from hsprobe.engines.sglang_hooks import LayerHooks
from hsprobe.protocol import ProbeError
from hsprobe.schema import Site
from hsprobe.spool import Span, StepRecorder
from hsprobe.stack import Stack, hidden_and_residual, refuse_multi_stream
from hsprobe.streams import several_streams

ROWS, WIDTH = 5, 8


def state(*extra: int, rows: int = ROWS) -> torch.Tensor:
    return torch.arange(float(rows * WIDTH)).reshape(rows, WIDTH).expand(*extra, rows, WIDTH).clone()


@pytest.mark.parametrize(
    ("architecture", "config", "said"),
    [
        ("DeepseekV4ForCausalLM", {}, "DeepseekV4ForCausalLM"),
        ("Deepseek_V41ForCausalLM", {}, "hyper-connections"),
        ("KimiK3ForConditionalGeneration", {}, "attention residuals"),
        ("Glm5NextForCausalLM", {}, "hyper-connections"),
        ("HYV4ForCausalLM", {}, "hyper-connections"),
        ("Qwen4ExpForCausalLM", {}, "hyper-connections"),
        ("Gemma3nForConditionalGeneration", {}, "AltUp"),
        ("X", {"model_type": "kimi_k3"}, "kimi_k3"),
        ("X", {"architectures": ["DeepseekV4ForCausalLM"]}, "DeepseekV4ForCausalLM"),
        ("X", {"hc_mult": 4}, "config.hc_mult = 4"),
        ("X", {"hc_count": 2}, "config.hc_count = 2"),
        ("X", {"mhc": True}, "config.mhc = True"),
        ("X", {"attn_res_block_size": 1}, "config.attn_res_block_size = 1"),
        ("X", {"text_config": {"altup_num_inputs": 4}}, "config.altup_num_inputs = 4"),
    ],
)
def test_several_streams_are_told(architecture: str, config: dict[str, object], said: str) -> None:
    """A class name, a model type or a config key says it, and the answer names which."""
    assert said in several_streams(architecture, config)


@pytest.mark.parametrize(
    ("architecture", "config"),
    [
        ("DeepseekV3ForCausalLM", {"model_type": "deepseek_v3", "hc_mult": 1}),
        ("KimiK25ForConditionalGeneration", {"model_type": "kimi_k25", "attn_res_block_size": None}),
        ("Glm5ForCausalLM", {"mhc": False}),
        ("Gemma3ForCausalLM", {"text_config": {"altup_num_inputs": 1}}),
        ("ChameleonForCausalLM", {"attn_resolutions": [16]}),
        ("GlmMoeDsaForCausalLM", {"architectures": None, "text_config": None}),
        ("", {}),
    ],
)
def test_one_stream_is_left_alone(architecture: str, config: dict[str, object]) -> None:
    """One stream written as one of several possible is one stream; a key that only looks alike says nothing."""
    assert several_streams(architecture, config) == ""


def test_the_table_needs_nothing_but_python() -> None:
    """The module loads without torch and without the rest of hsprobe."""
    code = (
        "import sys; sys.modules['torch'] = None; sys.path.insert(0, sys.argv[1]); "
        "import streams; print(streams.several_streams('KimiK3', {}))"
    )
    folder = str(Path(streams.__file__).parent)
    done = subprocess.run(
        [sys.executable, "-S", "-c", code, folder], capture_output=True, text=True, check=False
    )
    assert done.stdout.startswith("attention residuals"), done.stderr


def test_the_refusal_says_what_to_do() -> None:
    """E307 names the architecture, why, and the way that is left."""
    config = SimpleNamespace(text_config=SimpleNamespace(hc_mult=4, model_type="x", architectures=None))
    with pytest.raises(ProbeError) as caught:
        refuse_multi_stream("SomethingForCausalLM", config)
    assert caught.value.code == "E307"
    assert "SomethingForCausalLM" in caught.value.message
    assert "config.hc_mult = 4" in caught.value.message
    assert "logits" in caught.value.help


def test_hidden_and_residual_are_told_apart() -> None:
    """A sum, a pair, and a pair beside a router's choice."""
    hidden, residual = state(), 2 * state()
    chosen = torch.zeros(ROWS, 2, dtype=torch.int32)
    layer = nn.Identity()
    assert hidden_and_residual(layer, hidden) == (hidden, None)
    for output in ((hidden, residual), (hidden, residual, chosen), (hidden, residual, None)):
        found = hidden_and_residual(layer, output)
        assert found[0] is hidden
        assert found[1] is residual


@pytest.mark.parametrize(
    ("output", "said"),
    [
        ((state(),) * 3, "3 states"),
        ((state(), state(), state(4), state()), "4 states"),
        ((state(), state(4)), "another form"),
        (state(4), "another form"),
        ((state(), state()[:, :4]), "different shapes"),
        ((None,), "no state"),
    ],
)
def test_what_is_no_hidden_and_residual_is_e307(output: object, said: str) -> None:
    """More than two states, another axis, or two that cannot be added: refused with the shapes, never summed."""
    with pytest.raises(ProbeError, match=said) as caught:
        hidden_and_residual(nn.Identity(), output)
    assert caught.value.code == "E307"


class Block(nn.Module):
    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        return hidden_states + 1


@pytest.mark.parametrize("shape", [(1,), ()])
def test_transformers_states_are_kept(shape: tuple[int, ...], tmp_path: Path) -> None:
    """[1, n, H] and [n, H] are n rows."""
    layer, recorder = Block(), StepRecorder(tmp_path)
    attach(Stack("", layer, (layer,), nn.Identity(), None), [Site("boundary", 0)], recorder)
    recorder.begin([Span("r", 0, ROWS)], torch.arange(ROWS), torch.arange(ROWS))
    layer(state(*shape))
    assert torch.equal(recorder._tensors["boundary.000"], state())


@pytest.mark.parametrize("shape", [(4,), (1, 4), (4, 1)])
def test_transformers_streams_are_e307(shape: tuple[int, ...], tmp_path: Path) -> None:
    """A second stream is not laid out as more rows."""
    layer, recorder = Block(), StepRecorder(tmp_path)
    attach(Stack("", layer, (layer,), nn.Identity(), None), [Site("boundary", 0)], recorder)
    recorder.begin([Span("r", 0, ROWS)], torch.arange(ROWS), torch.arange(ROWS))
    with pytest.raises(ProbeError) as caught:
        layer(state(*shape))
    assert caught.value.code == "E307"


class Returning(nn.Module):
    def __init__(self, output: object) -> None:
        super().__init__()
        self.output = output

    def forward(self, forward_batch: object) -> object:
        return self.output


@pytest.mark.parametrize(("count", "code"), [(2, ""), (4, "E307"), (1, "E306")])
def test_sglang_layers_that_return_more_are_e307(count: int, code: str) -> None:
    """A pair is summed; four states are not two of them."""
    layer = Returning(tuple(state() for _ in range(count)))
    kept: dict[str, torch.Tensor] = {}
    sink = SimpleNamespace(active=True, ranks=1, put=kept.__setitem__)
    LayerHooks(sink, Stack("", layer, (layer,), None, None), None, ("boundary.001",)).install()
    batch = SimpleNamespace(forward_mode="extend")
    if code:
        with pytest.raises(ProbeError) as caught:
            layer(batch)
        assert caught.value.code == code
    else:
        layer(batch)
        assert torch.equal(kept["boundary.001"], 2 * state())
