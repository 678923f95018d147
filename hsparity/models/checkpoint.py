"""Random checkpoints with the same bytes on every machine: integer noise, written as one safetensors file."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file

RECIPE = 1  # raised when the noise or the layout changes: old cached builds are then left alone

PAD, BOS, EOS, FIRST_BYTE = 0, 1, 2, 3  # token ids of the byte tokenizer


@dataclass(frozen=True)
class Weight:
    """One tensor of a checkpoint: mean + std x noise, rounded to bfloat16 and stored as `dtype`."""

    name: str
    shape: tuple[int, ...]
    std: float
    mean: float = 0.0
    dtype: torch.dtype = torch.bfloat16


def linear(name: str, out_features: int, in_features: int) -> Weight:
    """A projection whose output has the scale of its input."""
    return Weight(f"{name}.weight", (out_features, in_features), in_features**-0.5)


def bias(name: str, features: int) -> Weight:
    return Weight(f"{name}.bias", (features,), 0.1)


def norm(name: str, features: int) -> Weight:
    """An RMSNorm weight. Spread around one, so that a norm applied or left out cannot go unseen."""
    return Weight(f"{name}.weight", (features,), 0.1, mean=1.0)


@dataclass(frozen=True)
class Recipe:
    """A checkpoint as data: `config` is config.json, `weights` the tensors."""

    name: str
    config: dict[str, Any]
    weights: Sequence[Weight]

    def digest(self) -> str:
        """SHA-256 of everything that decides the checkpoint's bytes."""
        weights = [[w.name, w.shape, w.std, w.mean, str(w.dtype)] for w in self.weights]
        text = json.dumps([RECIPE, self.name, self.config, weights], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()


def noise(name: str, shape: tuple[int, ...]) -> torch.Tensor:
    """Bell-shaped float32 noise of unit variance, the same on every machine for one tensor name.

    The sum of four 16-bit integers: no logarithm, hence no rounding that a math library could do otherwise.
    """
    seed = int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "little")
    count = int(np.prod(shape))
    words = np.random.PCG64(seed).random_raw(count).astype("<u8").view("<u2").reshape(count, 4)
    total = words.sum(axis=1, dtype=np.int64) - 131070  # 4 x the mean of a 16-bit integer
    scale = 65536.0 * (4 / 12) ** 0.5
    return torch.from_numpy((total / scale).astype(np.float32)).reshape(shape)


def tensors_sha256(tensors: dict[str, torch.Tensor]) -> str:
    """SHA-256 of tensors by sorted name: name, dtype, shape, bytes."""
    digest = hashlib.sha256()
    for name in sorted(tensors):
        tensor = tensors[name].contiguous()
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def build(recipe: Recipe, folder: Path) -> None:
    """Write the checkpoint and the byte tokenizer into an existing empty folder."""
    tensors = {}
    for weight in recipe.weights:
        value = weight.mean + weight.std * noise(f"{recipe.name}/{weight.name}", weight.shape)
        tensors[weight.name] = value.to(torch.bfloat16).to(weight.dtype)
    write(folder, recipe.config, tensors)
    write_byte_tokenizer(folder)


def write(folder: Path, config: dict[str, Any], tensors: dict[str, torch.Tensor]) -> None:
    """Write config.json, generation_config.json and model.safetensors."""
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    special = {k: config[k] for k in ("bos_token_id", "eos_token_id", "pad_token_id") if k in config}
    write_json(folder / "config.json", config)
    write_json(folder / "generation_config.json", special)


def write_json(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value, indent=1, sort_keys=True, ensure_ascii=False) + "\n", encoding="utf-8")


def byte_characters() -> list[str]:
    """The printable stand-in for each of the 256 bytes, as byte-level BPE tokenizers write it."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    spare = iter(range(256, 512))
    return [chr(b) if b in printable else chr(next(spare)) for b in range(256)]


def write_byte_tokenizer(folder: Path) -> None:
    """Write a tokenizer whose token ids are FIRST_BYTE + byte; it adds no special tokens by itself."""
    special = {"<pad>": PAD, "<s>": BOS, "</s>": EOS}
    vocabulary = special | {c: FIRST_BYTE + b for b, c in enumerate(byte_characters())}
    write_bpe_tokenizer(
        folder, vocabulary, [], list(special), {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>"}
    )


def write_bpe_tokenizer(
    folder: Path,
    vocabulary: dict[str, int],
    merges: Sequence[Sequence[str]],
    special: Sequence[str],
    roles: dict[str, str],
    *,
    split_digits: bool = False,
    chat_template: str = "",
) -> None:
    """Write tokenizer.json and tokenizer_config.json of a byte-level BPE tokenizer."""
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    digits = {"type": "Digits", "individual_digits": True}
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    model = {
        "type": "BPE",
        "dropout": None,
        "unk_token": None,
        "continuing_subword_prefix": None,
        "end_of_word_suffix": None,
        "fuse_unk": False,
        "byte_fallback": False,
        "ignore_merges": False,
        "vocab": vocabulary,
        "merges": [list(pair) for pair in merges],
    }
    tokenizer = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [{"id": vocabulary[token], "content": token, **flags} for token in special],
        "normalizer": None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [digits, byte_level]}
        if split_digits
        else byte_level,
        "post_processor": None,
        "decoder": byte_level,
        "model": model,
    }
    # Not sorted: a tokenizer's vocabulary reads in id order.
    text = json.dumps(tokenizer, indent=1, ensure_ascii=False)
    (folder / "tokenizer.json").write_text(text + "\n", encoding="utf-8")
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": False, **roles}
    write_json(
        folder / "tokenizer_config.json", config | ({"chat_template": chat_template} if chat_template else {})
    )
