"""What README.md says of the fixtures: keys, types, shapes, which slots are which tensors. No engine runs."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import math
import tempfile
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open

from tests.engines.conftest import random_prompts
from tests.engines.speculators.server import ROOT
from tests.engines.speculators.v1 import make_v1_dataset

HERE = Path(__file__).parent
PROMPTS = [list(p.token_ids) for p in random_prompts((8, 13, 17, 24), 512)]
LENGTHS = sorted(map(len, PROMPTS))
FOLDERS = (
    "speculators-v1",
    "speculators-v1-unsorted",
    "speculators-v2",
    "vllm-connector",
    "hs-connectors-fp8",
    "specforge",
)
# Boundary -> where it lies: vLLM's own numbers, and layer numbers that are one less.
V2, V1 = (2, 4, 5, 8), (3, 5, 6, 8)


def safetensors(path: Path) -> dict[str, torch.Tensor]:
    with safe_open(path, "pt") as file:
        assert file.metadata() is None
        return {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118


def by_tokens(folder: Path) -> dict[tuple[int, ...], dict[str, torch.Tensor]]:
    """token ids -> the tensors of the file that holds them."""
    found = [safetensors(path) for path in sorted(folder.glob("*.safetensors"))]
    return {tuple(tensors["token_ids"].tolist()): tensors for tensors in found}


def kinds(tensors: dict[str, torch.Tensor]) -> dict[str, tuple[torch.dtype, tuple[int, ...]]]:
    return {key: (tensor.dtype, tuple(tensor.shape)) for key, tensor in tensors.items()}


def mask(length: int) -> list[int]:
    return [int(k >= math.ceil(length / 2)) for k in range(length)]


def test_all_prompts() -> None:
    """Every folder holds the four prompts, each once."""
    for folder in ("speculators-v2/hidden_states", "vllm-connector", "hs-connectors-fp8/hidden_states"):
        assert sorted(by_tokens(HERE / folder)) == sorted(map(tuple, PROMPTS))


@pytest.mark.parametrize("folder", ["speculators-v2/hidden_states", "vllm-connector"])
def test_vllm_files(folder: str) -> None:
    """hidden_states bfloat16 [T, 4, 256] and token_ids int64 [T]."""
    for tokens, tensors in by_tokens(HERE / folder).items():
        assert kinds(tensors) == {
            "hidden_states": (torch.bfloat16, (len(tokens), 4, 256)),
            "token_ids": (torch.int64, (len(tokens),)),
        }


def test_moved_unchanged() -> None:
    """speculators moves vLLM's file as it is: a plain request leaves the same bits; every file kept its lock."""
    moved, plain = by_tokens(HERE / "speculators-v2/hidden_states"), by_tokens(HERE / "vllm-connector")
    for tokens, tensors in plain.items():
        assert torch.equal(tensors["hidden_states"], moved[tokens]["hidden_states"])
    names = {path.name for path in (HERE / "vllm-connector").glob("*.safetensors")}
    assert {path.name for path in (HERE / "vllm-connector").glob("*.lock")} == {f"{n}.lock" for n in names}


def test_fp8() -> None:
    """One float32 scale per token; hs_connectors' reader multiplies in bfloat16, with the scale rounded first."""
    said = json.loads((HERE / "hs-connectors-fp8.read.json").read_text())
    whole = by_tokens(HERE / "speculators-v2/hidden_states")
    for name, about in said.items():
        tensors = safetensors(HERE / "hs-connectors-fp8" / "hidden_states" / f"{name}.safetensors")
        count = tensors["token_ids"].numel()
        assert kinds(tensors) == {
            "hidden_states": (torch.float8_e4m3fn, (count, 4, 256)),
            "hidden_states_scales": (torch.float32, (count, 1, 1)),
            "token_ids": (torch.int64, (count,)),
        }
        read = tensors["hidden_states"].bfloat16() * tensors["hidden_states_scales"].bfloat16()
        bits = read.view(torch.uint8).numpy().tobytes()
        assert (str(read.dtype), hashlib.sha256(bits).hexdigest()) == (about["dtype"], about["sha256"])
        ref = whole[tuple(tensors["token_ids"].tolist())]["hidden_states"].double()
        error = (read.double() - ref).norm(dim=-1) / ref.norm(dim=-1)
        assert 0.02 < float(error.median()) < 0.03
    assert sorted(said) == [f"hs_{i}" for i in range(4)]


def test_v1_files() -> None:
    """A list of four bfloat16 [T, 256]; file i is prompt i; the config names the ids."""
    folder = HERE / "speculators-v1"
    for index, tokens in enumerate(PROMPTS):
        data = torch.load(folder / f"data_{index}.pt", weights_only=True)
        assert list(data) == ["input_ids", "hidden_states", "loss_mask"]
        assert data["input_ids"].tolist() == tokens
        assert data["loss_mask"].tolist() == mask(len(tokens))
        assert isinstance(data["hidden_states"], list)
        assert [(s.dtype, tuple(s.shape)) for s in data["hidden_states"]] == [
            (torch.bfloat16, (len(tokens), 256))
        ] * 4
    config = json.loads((folder / "data_config.json").read_text())
    assert config["hidden_states"]["layer_ids"] == [b - 1 for b in V1]


def test_v1_ids_are_layer_outputs() -> None:
    """Id 4 of 0.4 is vLLM's id 5, and its last id is vLLM's id L: the same tensors, bit for bit."""
    whole = by_tokens(HERE / "speculators-v2/hidden_states")
    for index, tokens in enumerate(PROMPTS):
        slots = torch.load(HERE / "speculators-v1" / f"data_{index}.pt", weights_only=True)["hidden_states"]
        native = whole[tuple(tokens)]["hidden_states"]
        for boundary in set(V1) & set(V2):
            assert torch.equal(slots[V1.index(boundary)], native[:, V2.index(boundary)])


def test_v1_sorts_what_its_config_does_not(tmp_path: Path) -> None:
    """Ids typed as 5, 2, 7, 4 are filed ascending; the config keeps them as typed. Ours does the same."""
    folder = HERE / "speculators-v1-unsorted"
    config = json.loads((folder / "data_config.json").read_text())
    assert config["hidden_states"]["layer_ids"] == [5, 2, 7, 4]
    for index in range(2):
        typed, ascending = (
            torch.load(f / f"data_{index}.pt", weights_only=True)["hidden_states"]
            for f in (folder, HERE / "speculators-v1")
        )
        assert all(map(torch.equal, typed, ascending))
    states = [
        dict(zip(V1, torch.load(folder / f"data_{i}.pt", weights_only=True)["hidden_states"], strict=True))
        for i in range(2)
    ]
    made = make_v1_dataset(tmp_path / "v1", states, PROMPTS[:2], [5, 2, 7, 4])
    again = torch.load(made / "data_1.pt", weights_only=True)["hidden_states"]
    assert all(torch.equal(slot, states[1][b]) for slot, b in zip(again, V1, strict=True))
    said, ours = (json.loads((f / "data_config.json").read_text()) for f in (folder, made))
    assert {**said, "generated_at": ""} == {**ours, "generated_at": ""}


def test_v1_reproduction(tmp_path: Path) -> None:
    """make_v1_dataset writes from states what speculators' own code wrote from vLLM: the same files and content."""
    real = HERE / "speculators-v1"
    samples = [torch.load(real / f"data_{i}.pt", weights_only=True) for i in range(4)]
    states = [dict(zip(V1, sample["hidden_states"], strict=True)) for sample in samples]
    made = make_v1_dataset(tmp_path / "v1", states, PROMPTS, [b - 1 for b in V1])
    assert sorted(p.name for p in made.iterdir()) == sorted(p.name for p in real.iterdir())
    for index, sample in enumerate(samples):
        again = torch.load(made / f"data_{index}.pt", weights_only=True)
        assert list(again) == list(sample)
        assert kinds({k: again[k] for k in ("input_ids", "loss_mask")}) == kinds(
            {k: sample[k] for k in ("input_ids", "loss_mask")}
        )
        for key in ("input_ids", "loss_mask"):
            assert torch.equal(again[key], sample[key])
        assert all(map(torch.equal, again["hidden_states"], sample["hidden_states"]))
    for name in ("data_config.json", "sample_lengths.json"):
        assert (made / name).read_text() == (real / name).read_text()
    counted = [torch.load(f / "token_freq.pt", weights_only=True) for f in (made, real)]
    assert counted[0] == counted[1]


def test_specforge() -> None:
    """aux_hidden_state [1, T, 768] and a normed hidden_state [1, T, 256]; gzip holds the same."""
    rows = "rows_0-2000"
    for index, tokens in enumerate(PROMPTS):
        plain: dict[str, Any] = torch.load(
            HERE / "specforge" / "plain" / rows / f"data_{index}.ckpt", weights_only=True
        )
        packed = (HERE / "specforge" / "compressed" / rows / f"data_{index}.ckpt.gz").read_bytes()
        unpacked = torch.load(io.BytesIO(gzip.decompress(packed)), weights_only=True)
        count = len(tokens)
        assert kinds(plain) == {
            "input_ids": (torch.int64, (count,)),
            "loss_mask": (torch.int64, (count,)),
            "aux_hidden_state": (torch.bfloat16, (1, count, 768)),
            "hidden_state": (torch.bfloat16, (1, count, 256)),
        }
        assert plain["input_ids"].tolist() == tokens
        assert plain["loss_mask"].tolist() == mask(count)
        assert list(plain) == list(unpacked)
        assert all(torch.equal(plain[key], unpacked[key]) for key in plain)


def test_specforge_adds_one() -> None:
    """SpecForge's ids 1, 3, 4 on SGLang's Llama are vLLM's 2, 4, 5, up to bfloat16; its last state is normed."""
    whole = by_tokens(HERE / "speculators-v2/hidden_states")
    for index, tokens in enumerate(PROMPTS):
        data = torch.load(
            HERE / "specforge" / "plain" / "rows_0-2000" / f"data_{index}.ckpt", weights_only=True
        )
        aux = data["aux_hidden_state"][0].double().unflatten(1, (3, 256))
        native = whole[tuple(tokens)]["hidden_states"].double()
        error = (aux - native[:, :3]).norm(dim=-1) / native[:, :3].norm(dim=-1)
        assert float(error.median(dim=0).values.max()) < 0.02
        last = data["hidden_state"][0].double()
        assert float(((last - native[:, 3]).norm(dim=1) / native[:, 3].norm(dim=1)).median()) > 0.5


def test_small_and_clean() -> None:
    """All together under 1.5 MB, and no path of the machine that made them inside, gzip opened."""
    files = [path for name in FOLDERS for path in (HERE / name).rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) < 1.5e6
    for path in files:
        content = path.read_bytes()
        content = gzip.decompress(content) if path.suffix == ".gz" else content
        for place in (ROOT, Path.home(), Path(tempfile.gettempdir())):
            assert f"{place}/".encode() not in content, path
