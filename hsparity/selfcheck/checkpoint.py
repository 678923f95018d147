"""The final norm and the lm_head of a checkpoint: found in its index, read by pread, block by block. No download."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from hsparity.capture.checkpoint import read_config, tensor_files
from hsparity.capture.shards import Span, Tensor, as_torch, read_header, read_into
from hsparity.errors import HsparityError
from hsprobe.schema import CaptureManifest
from hsprobe.stack import rms_norm

PREFIXES = ("model.", "", "language_model.model.", "model.language_model.", "language_model.", "model.model.")
HEADS = ("lm_head", "language_model.lm_head", "model.lm_head", "output", "head")
NORMS = ("norm", "final_layernorm", "ln_f")
EMBEDDINGS = ("embed_tokens", "wte", "tok_embeddings")
EPS_KEYS = ("rms_norm_eps", "layer_norm_epsilon", "layer_norm_eps", "norm_epsilon", "norm_eps", "eps")
FLOATS = ("BF16", "F16", "F32")
# Config keys by which models change their logits, and how the key's value acts on them.
MULTIPLY, DIVIDE = ("logit_scale", "lm_head_multiplier", "output_multiplier_scale"), ("logits_scaling",)
CAPS = ("final_logit_softcapping", "final_logit_softcap", "logits_soft_cap")
PLUS_ONE = (
    "gemma",
    "gemma2",
    "gemma3",
    "gemma3_text",
    "qwen3_next",
)  # model types whose norm scales by 1 + w
NORM_TOLERANCE = 2.0**-7  # relative: an engine may hold the norm's weight in bf16


@dataclass(frozen=True, slots=True, eq=False)
class Head:
    """What turns a last state [n, H] into logits [n, V]: cap(scale x (norm(state) @ weight.T + bias))."""

    folder: Path
    name: str  # of the weight's tensor
    weight: Span
    norm_h: torch.Tensor  # float32 [H], as it is stored
    eps: float
    plus_one: bool
    bias_v: torch.Tensor | None = None
    scale: float = 1.0
    cap: float = 0.0

    def norm(self, states_nh: torch.Tensor, plus_one: bool | None = None) -> torch.Tensor:
        """The final RMSNorm in float32; `plus_one` other than the model's own gives the other form."""
        return rms_norm(states_nh, self.norm_h, self.eps, self.plus_one if plus_one is None else plus_one)

    @property
    def gain_h(self) -> torch.Tensor:
        """What the norm multiplies each channel by."""
        return self.norm_h + 1.0 if self.plus_one else self.norm_h

    def blocks(self, rows: int) -> Iterator[tuple[int, torch.Tensor]]:
        """(first token id, weight float32 [n <= rows, H]) over the vocabulary."""
        buffer = torch.empty(rows * self.weight.row_bytes, dtype=torch.uint8)
        for start in range(0, self.weight.rows, rows):
            count = min(rows, self.weight.rows - start)
            part = buffer[: count * self.weight.row_bytes]
            read_into(self.weight, [(start, start + count, 0)], part.numpy().data)
            yield start, as_torch(part, self.weight.dtype, self.weight.width).float()

    def shape(self, logits: torch.Tensor, start: int) -> torch.Tensor:
        """Bias, scale and soft cap of logits whose last axis begins at token `start`."""
        if self.bias_v is not None:
            logits = logits + self.bias_v[start : start + logits.shape[-1]]
        if self.scale != 1.0:
            logits = logits * self.scale
        return self.cap * torch.tanh(logits / self.cap) if self.cap else logits


def open_head(folder: Path, manifest: CaptureManifest, norm: tuple[Any, float, bool] | None) -> Head:
    """The head of a checkpoint. `norm` is the capture's own record of the final norm (`Source.norm`).

    Raises E214 for a checkpoint without the tensors or with ones that are not to be computed with (a quantised head,
    a final norm with a bias), E206 for a damaged one, E208 for one of another model, E107 without config.json or
    safetensors files.
    """
    config = read_config(folder)
    files = tensor_files(folder)
    norm_name = _first(files, (f"{p}{n}.weight" for p in PREFIXES for n in NORMS))
    names = [f"{h}.weight" for h in HEADS]
    embeddings = [f"{p}{e}.weight" for p in PREFIXES for e in EMBEDDINGS]
    tied = config.get("tie_word_embeddings")
    name = _first(files, [*embeddings, *names] if tied else names if tied is False else [*names, *embeddings])
    packed = _first(files, (n for n in files if n.rpartition(".")[0] in HEADS))
    if name not in names and packed:
        # A packed head has no tensor called weight, and a tied embedding would be read in its place.
        raise _unreadable(f"{packed} belongs to a quantised head, which cannot be read here")
    if not name or not norm_name:
        lacks = "lm_head" if not name else "final norm"
        notes = (
            f"it holds {len(files)} tensors, none called {names[0] if not name else 'model.norm.weight'}",
        )
        raise HsparityError(
            "E214", f"{folder} has no {lacks} that can be read", notes, "--model PATH names another"
        )
    if norm_name.replace(".weight", ".bias") in files:
        raise HsparityError(
            "E214",
            f"{norm_name} comes with a bias: this model's final norm is no RMSNorm",
            help="compare its captures with another engine's: hsparity compare REF CAND",
        )
    weight, hidden = _matrix(files, name, config), manifest.hidden_size
    stored_h = _vector(files, norm_name)
    plus_one = norm[2] if norm else str(config.get("model_type", "")) in PLUS_ONE
    if weight.width != hidden or len(stored_h) != hidden:
        widths = (f"capture     hidden size {hidden}", f"checkpoint  {weight.width} ({name})")
        raise HsparityError(
            "E208",
            f"{folder} is another model than the capture's",
            widths,
            "name the checkpoint that the engine ran: --model PATH",
        )
    if norm:
        _same_norm(folder, stored_h, torch.from_numpy(norm[0]))
    bias = name.replace(".weight", ".bias")
    eps = next((float(config[k]) for k in EPS_KEYS if isinstance(config.get(k), (int, float))), None)
    return Head(
        folder=folder,
        name=name,
        weight=weight,
        norm_h=stored_h,
        eps=eps if eps is not None else norm[1] if norm else 1e-6,
        plus_one=plus_one,
        bias_v=_vector(files, bias) if bias in files else None,
        scale=_scale(config, hidden),
        cap=next((float(config[k]) for k in CAPS if config.get(k)), 0.0),
    )


def _first(files: Mapping[str, Path], names: Any) -> str:
    return next((name for name in names if name in files), "")


def _tensor(files: Mapping[str, Path], name: str) -> Tensor:
    tensor = read_header(files[name]).get(name)
    if tensor is None:
        raise HsparityError(
            "E206", f"{files[name]} has no {name}, which the index promises", help="--model PATH"
        )
    if tensor.dtype not in FLOATS:
        raise _unreadable(
            f"{name} is stored as {tensor.dtype}: a quantised head cannot be read here",
            f"readable are {', '.join(FLOATS)}",
        )
    return tensor


def _matrix(files: Mapping[str, Path], name: str, config: Mapping[str, Any]) -> Span:
    tensor = _tensor(files, name)
    if len(tensor.shape) != 2:
        raise _unreadable(f"{name} is {list(tensor.shape)}, not [vocabulary, hidden size]")
    rows, width = tensor.shape
    # Some tables are padded to a round number of rows; engines read as many as the config says.
    vocabulary = config.get("vocab_size")
    used = min(rows, vocabulary) if isinstance(vocabulary, int) and vocabulary > 0 else rows
    item = {"BF16": 2, "F16": 2, "F32": 4}[tensor.dtype]
    return Span(files[name], tensor.offset, used, width, tensor.dtype, width * item)


def _unreadable(message: str, *notes: str) -> HsparityError:
    return HsparityError(
        "E214", message, notes, "name an unquantised checkpoint of the same model: --model PATH"
    )


def _vector(files: Mapping[str, Path], name: str) -> torch.Tensor:
    tensor = _tensor(files, name)
    width = tensor.shape[0] if tensor.shape else 1
    span = Span(files[name], tensor.offset, 1, width, tensor.dtype, 0)
    buffer = torch.empty(span.row_bytes, dtype=torch.uint8)
    read_into(span, [(0, 1, 0)], buffer.numpy().data)
    return as_torch(buffer, tensor.dtype, width)[0].float()


def _same_norm(folder: Path, stored_h: torch.Tensor, captured_h: torch.Tensor) -> None:
    off_h = (stored_h - captured_h).abs() > NORM_TOLERANCE * stored_h.abs().clamp_min(1e-3)
    if len(captured_h) != len(stored_h) or bool(off_h.any()):
        raise HsparityError(
            "E208",
            f"{folder} is another model than the capture's: their final norms differ",
            (f"{int(off_h.sum())} of {len(stored_h)} channels of the norm's weight differ",),
            "name the checkpoint that the engine ran: --model PATH",
        )


def _scale(config: Mapping[str, Any], hidden: int) -> float:
    def value(key: str) -> float:
        found = config.get(key)
        return float(found) if isinstance(found, (int, float)) and found else 1.0

    scale = 1.0
    for key in MULTIPLY:
        scale *= value(key)
    for key in DIVIDE:
        scale /= value(key)
    if config.get("dim_model_base"):  # MiniCPM divides the state by hidden size / dim_model_base
        scale *= value("dim_model_base") / hidden
    return scale
