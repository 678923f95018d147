"""Bundled checkpoints: the same bytes everywhere, and what Transformers makes of them."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from hsparity import models
from hsparity.errors import HsparityError
from hsparity.models.checkpoint import BOS, FIRST_BYTE, build, noise
from hsparity.models.families import FAMILIES, LAYERS

# SHA-256 of model.safetensors, first 16 digits. A change here makes recorded figures about the model stale.
KNOWN = {
    "deepseek-v2": "5f32ffae5b96947e",
    "deepseek-v3": "1a535b7f596cb8c4",
    "gpt-oss": "d5412d2539127dde",
    "kimi-k2": "74c826f7a496a1a4",
    "llama": "33acbb526f31569f",
    "qwen2": "6f645be6bcd7ec83",
    "qwen3": "cbc15212f5698397",
    "qwen3-moe": "4f956dfa3faa405a",
}


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache folder."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "hsparity" / "models"


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_checkpoints_have_known_bytes(family: str, tmp_path: Path) -> None:
    """A recipe gives the same file on every machine and at every run."""
    build(FAMILIES[family](), tmp_path)
    digest = hashlib.sha256((tmp_path / "model.safetensors").read_bytes()).hexdigest()
    assert digest[:16] == KNOWN[family]


def test_noise_is_bell_shaped() -> None:
    """The integer noise has zero mean, unit variance, and no pattern from one row to the next."""
    rows = noise("anything", (512, 256)).double()
    assert abs(rows.mean()) < 0.01
    assert abs(rows.std() - 1) < 0.01
    assert 3 < rows.abs().max() < 3.5  # four summed integers cannot pass sqrt(12)
    neighbours = (rows[1:] * rows[:-1]).mean(dim=1)
    assert neighbours.abs().max() < 0.3


@pytest.mark.parametrize("family", sorted(set(FAMILIES) - {"kimi-k2"}))
def test_transformers_reads_every_tensor(family: str, tmp_path: Path) -> None:
    """Transformers loads the checkpoint without a missing or unexpected tensor, and its states are finite."""
    transformers = pytest.importorskip("transformers")
    build(FAMILIES[family](), tmp_path)
    model, told = transformers.AutoModelForCausalLM.from_pretrained(tmp_path, output_loading_info=True)
    assert not any(told[key] for key in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    ids = torch.tensor([[BOS, *(FIRST_BYTE + b for b in b"A short line of text.")]])
    with torch.no_grad():
        states = model(ids, output_hidden_states=True).hidden_states
    assert len(states) == LAYERS + 1
    assert all(torch.isfinite(s).all() for s in states)
    # The stream grows layer by layer: no branch is dead, none explodes.
    norms = [float(s.float().norm(dim=-1).median()) for s in states[:-1]]
    assert norms == sorted(norms)
    assert norms[-1] < 5 * norms[0]


def test_the_tokenizer_is_the_bytes(tmp_path: Path) -> None:
    """Token ids are FIRST_BYTE + byte, and any text survives the round trip."""
    transformers = pytest.importorskip("transformers")
    build(FAMILIES["llama"](), tmp_path)
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path)
    text = "naïve 12,5 %\n\t— ☃"
    ids = tokenizer(text)["input_ids"]
    assert ids == [FIRST_BYTE + byte for byte in text.encode()]
    assert tokenizer.decode(ids) == text


def test_path_builds_once(cache: Path) -> None:
    """A second call returns the folder that is there, untouched; no half-built folder is left behind."""
    first = models.path("tiny:llama")
    before = (first / "model.safetensors").stat().st_mtime_ns
    assert models.path("tiny-llama") == first
    assert (first / "model.safetensors").stat().st_mtime_ns == before
    assert [p.name for p in cache.iterdir()] == [first.name]


def test_a_failed_build_leaves_nothing(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A build that fails half way is not taken for a model by the next call."""

    def broken(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("hsparity.models.checkpoint.write_byte_tokenizer", broken)
        with pytest.raises(HsparityError) as caught:
            models.path("tiny:llama")
    assert caught.value.code == "E205"
    assert list(cache.iterdir()) == []
    assert (models.path("tiny:llama") / "tokenizer.json").exists()


def test_an_unwritable_cache_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cache folder that cannot be made is E106."""
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.raises(HsparityError) as caught:
        models.path("tiny:llama")
    assert caught.value.code == "E106"


def test_unknown_names_suggest_a_near_one() -> None:
    """A misspelt bundled model is E107 with the nearest name."""
    with pytest.raises(HsparityError) as caught:
        models.path("tiny:lama")
    assert caught.value.code == "E107"
    assert "tiny:llama" in caught.value.help


def test_other_names_pass_through() -> None:
    """Paths and hub names are nobody's business here."""
    for name in ("deepseek-ai/DeepSeek-V3", "./smollm2", "/models/tiny-llama", "tiny-llama"):
        assert models.resolve(name) == name


def test_deepseek_has_published_head_sizes(tmp_path: Path) -> None:
    """vLLM's MLA runs on the published head sizes only, and SGLang's CPU rope on yarn only."""
    for family in ("deepseek-v2", "deepseek-v3", "kimi-k2"):
        config = FAMILIES[family]().config
        assert (config["kv_lora_rank"], config["qk_rope_head_dim"]) == (512, 64)
        assert config["rope_scaling"]["type"] == "yarn"
    build(FAMILIES["kimi-k2"](), tmp_path)
    assert json.loads((tmp_path / "config.json").read_text())["model_type"] == "kimi_k2"
    assert load_file(tmp_path / "model.safetensors")["lm_head.weight"].dtype == torch.bfloat16


@pytest.mark.slow
def test_smollm2_speaks_english() -> None:
    """The converted weights are the model: it continues plain English greedily, in words."""
    transformers = pytest.importorskip("transformers")
    folder = models.path("smollm2")
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModelForCausalLM.from_pretrained(folder)
    asked = [{"role": "user", "content": "What is the capital of France?"}]
    ids = tokenizer.apply_chat_template(
        asked, add_generation_prompt=True, return_tensors="pt", return_dict=True
    )
    answer = model.generate(**ids, max_new_tokens=12, do_sample=False)
    assert "Paris" in tokenizer.decode(answer[0, ids["input_ids"].shape[1] :])
