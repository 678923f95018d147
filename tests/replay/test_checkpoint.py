"""Checkpoints read one weight at a time, against what other people's code reads from them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from hsparity.errors import HsparityError
from hsparity.weights.checkpoint import Checkpoint
from hsparity.weights.schemes import detect
from hsparity.weights.twin import twin
from tests.integration.tiny_models import save_llama

RECORDED = Path(__file__).parent / "recorded" / "compressed_tensors.safetensors"
MODULE = "model.layers.0.self_attn.q_proj"
PLAIN = "model.layers.0.input_layernorm.weight"


def recorded() -> dict[str, Any]:
    with safe_open(RECORDED, "pt") as file:
        cases: dict[str, Any] = json.loads(file.metadata()["cases"])
    return cases


def written(
    folder: Path, stored: dict[str, torch.Tensor], quantisation: dict[str, Any] | None, **config: Any
) -> Path:
    """A checkpoint of one module's tensors and one plain weight."""
    folder.mkdir(exist_ok=True)
    tensors = {f"{MODULE}.{part}": value for part, value in stored.items()}
    save_file(tensors | {PLAIN: torch.ones(4, dtype=torch.bfloat16)}, folder / "model.safetensors")
    stated = {"num_hidden_layers": 1, "quantization_config": quantisation} | config
    (folder / "config.json").write_text(json.dumps(stated))
    return folder


def compressed(form: str, weights: dict[str, Any], **more: Any) -> dict[str, Any]:
    group = {"targets": ["Linear"], "weights": weights}
    return {"quant_method": "compressed-tensors", "format": form, "config_groups": {"group_0": group}, **more}


@pytest.mark.parametrize("case", sorted(recorded()))
def test_what_compressed_tensors_wrote_is_read_as_it_reads_it(case: str, tmp_path: Path) -> None:
    """Bit for bit, for every strategy, symmetric or not, ordered or not."""
    said, tensors = recorded()[case], load_file(RECORDED)
    prefix = f"{case}.stored."
    stored = {k.removeprefix(prefix): v for k, v in tensors.items() if k.startswith(prefix)}
    checkpoint = Checkpoint(written(tmp_path, stored, compressed(said["format"], said["weights"])))
    assert set(checkpoint.names()) == {f"{MODULE}.weight", PLAIN}
    assert torch.equal(checkpoint.read(f"{MODULE}.weight"), tensors[f"{case}.expected"])
    assert checkpoint.read(PLAIN).dtype == torch.bfloat16


def test_fp8_blocks_are_read_as_transformers_dequantises_them(tmp_path: Path) -> None:
    """DeepSeek's layout, in whole blocks, against the class that Transformers loads it with."""
    from transformers.integrations.finegrained_fp8 import Fp8Dequantize

    torch.manual_seed(1)
    stored = {"weight": torch.randn(64, 96).to(torch.float8_e4m3fn), "weight_scale_inv": torch.rand(2, 3)}
    stated = {"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [32, 32]}
    checkpoint = Checkpoint(written(tmp_path, stored, stated))
    theirs = Fp8Dequantize(None)._dequantize_one(stored["weight"], stored["weight_scale_inv"], torch.float32)
    assert torch.equal(checkpoint.read(f"{MODULE}.weight"), theirs)


def test_a_group_is_found_by_its_targets(tmp_path: Path) -> None:
    """Two groups of other bits: the one whose pattern names the module, not the one for all linears."""
    said, tensors = recorded()["int4-group"], load_file(RECORDED)
    prefix = "int4-group.stored."
    stored = {k.removeprefix(prefix): v for k, v in tensors.items() if k.startswith(prefix)}
    groups = {
        "group_0": {"targets": ["Linear"], "weights": said["weights"] | {"num_bits": 8}},
        "group_1": {"targets": ["re:.*self_attn.*"], "weights": said["weights"]},
    }
    stated = {"quant_method": "compressed-tensors", "format": "pack-quantized", "config_groups": groups}
    checkpoint = Checkpoint(written(tmp_path, stored, stated))
    assert torch.equal(checkpoint.read(f"{MODULE}.weight"), tensors["int4-group.expected"])


@pytest.mark.parametrize(
    ("stated", "says"),
    [
        ({"quant_method": "bitsandbytes", "load_in_4bit": True}, "bitsandbytes"),
        ({"quant_method": "mxfp4"}, "mxfp4"),
        ({"quant_method": "gptq", "bits": 3}, "3 bits"),
        ({"quant_method": "awq", "bits": 4, "version": "gemv"}, "gemv"),
        (
            compressed("nvfp4-pack-quantized", {"num_bits": 4, "strategy": "tensor_group"}),
            "nvfp4-pack-quantized",
        ),
        (compressed("pack-quantized", {"num_bits": 4, "strategy": "tensor_group"}), "tensor_group"),
        (
            compressed("pack-quantized", {"num_bits": 4, "strategy": "channel"}, transform_config={"R1": {}}),
            "transform_config",
        ),
    ],
)
def test_an_unknown_scheme_is_refused_by_its_name(stated: dict[str, Any], says: str) -> None:
    """E231 says which; nothing is guessed."""
    with pytest.raises(HsparityError) as refused:
        detect({"quantization_config": stated}, "folder")
    assert refused.value.code == "E231"
    assert says in refused.value.notes[0]


def test_numbers_without_their_scales_are_refused(tmp_path: Path) -> None:
    """float8 that no scheme explains, a scale that does not fit, and packed words of another dtype are E231."""
    lone = {"weight": torch.ones(4, 4).to(torch.float8_e4m3fn)}
    block = {"quant_method": "fp8", "weight_block_size": [2, 2]}
    ill = lone | {"weight_scale_inv": torch.ones(3, 2)}
    other = {"weight": torch.ones(4, 4, dtype=torch.int8), "weight_scale_inv": torch.ones(2, 2)}
    for stored, stated in ((lone, None), (lone, block), (ill, block), (other, block)):
        checkpoint = Checkpoint(written(tmp_path, stored, stated))
        with pytest.raises(HsparityError) as refused:
            checkpoint.read(f"{MODULE}.weight")
        assert refused.value.code == "E231"


def test_an_absent_layer_is_named(tmp_path: Path) -> None:
    """E232 for a layer, and for a tensor that the index promises and no file holds."""
    checkpoint = Checkpoint(written(tmp_path, {"weight": torch.ones(4, 4)}, None))
    assert checkpoint.layer(0) == {
        "self_attn.q_proj.weight": f"{MODULE}.weight",
        "input_layernorm.weight": PLAIN,
    }
    with pytest.raises(HsparityError, match="lacks a tensor") as refused:
        checkpoint.layer(7)
    assert refused.value.code == "E232"


def test_the_twin_of_a_quantised_checkpoint_is_whole_and_plain(tmp_path: Path) -> None:
    """Same names, the dequantised weights in bfloat16, the others as they were; made once, in shards of any size."""
    source = _quantised_llama(tmp_path / "source")
    (source / "tokenizer.json").write_text("{}")
    out = twin(source, tmp_path / "twin", shard_bytes=20_000)
    checkpoint, plain = Checkpoint(source), Checkpoint(out)
    assert set(plain.names()) == set(checkpoint.names())
    assert not plain.scheme.quantised
    assert checkpoint.scheme.quantised
    assert (out / "tokenizer.json").read_text() == "{}"
    for name in checkpoint.names():
        expected = checkpoint.read(name)
        kept = expected.to(torch.bfloat16) if checkpoint.is_quantised(name) else expected
        assert torch.equal(plain.read(name), kept), name
    shards = sorted(out.glob("*.safetensors"))
    assert len(shards) > 3
    times = [file.stat().st_mtime_ns for file in shards]
    # One shard and the config gone, as after an interruption: only that shard is made again.
    shards[1].unlink()
    (out / "config.json").unlink()
    assert twin(source, tmp_path / "twin", shard_bytes=20_000) == out
    again = [file.stat().st_mtime_ns for file in shards]
    assert [a == b for a, b in zip(times, again, strict=True)] == [n != 1 for n in range(len(shards))]


def test_a_twin_runs_in_transformers(tmp_path: Path) -> None:
    """Transformers loads it as an ordinary checkpoint, with every weight found."""
    from transformers import AutoModelForCausalLM

    out = twin(_quantised_llama(tmp_path / "source"), tmp_path / "twin")
    model, loaded = AutoModelForCausalLM.from_pretrained(out, output_loading_info=True)
    assert not loaded["missing_keys"]
    assert not loaded["unexpected_keys"]
    name = "model.layers.1.mlp.up_proj.weight"
    assert torch.equal(model.state_dict()[name], Checkpoint(out).read(name))


def test_a_twin_is_not_written_over_anything_else(tmp_path: Path) -> None:
    """E235 for a folder that holds a twin of other files, or no twin at all."""
    source, other = (_quantised_llama(tmp_path / name) for name in ("source", "other"))
    out = twin(source, tmp_path / "twin")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("keep me")
    for model, folder in ((other, out), (source, tmp_path / "mine")):
        with pytest.raises(HsparityError) as refused:
            twin(model, folder)
        assert refused.value.code == "E235"


def _quantised_llama(folder: Path) -> Path:
    """The tiny Llama with int8 weights per channel, as compressed-tensors stores them."""
    save_llama(folder)
    tensors: dict[str, torch.Tensor] = {}
    for name, value in load_file(folder / "model.safetensors").items():
        if "proj" not in name:
            tensors[name] = value
            continue
        scale = value.abs().amax(1, keepdim=True) / 127
        tensors[name] = (value / scale).round().to(torch.int8)
        tensors[name + "_scale"] = scale
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    config = json.loads((folder / "config.json").read_text())
    weights = {"num_bits": 8, "type": "int", "strategy": "channel", "symmetric": True}
    stated = compressed("int-quantized", weights)
    (folder / "config.json").write_text(json.dumps(config | {"quantization_config": stated}))
    return folder
