"""A model folder whose weights are read one at a time, dequantised."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open

from hsparity.capture.checkpoint import read_config, tensor_files
from hsparity.capture.shards import HELP, Tensor, read_header
from hsparity.errors import HsparityError
from hsparity.weights import rules
from hsparity.weights.schemes import Rule, Scheme, detect, unknown

FLOATS = (torch.float32, torch.float16, torch.bfloat16, torch.float64)
# Scales of activations and of the KV cache: they change what an engine computes, not a weight.
BESIDE = re.compile(
    r".*\.((input|output|act|q|k|v|prob)_(scale|zero_point|global_scale|scale_ub)|activation_scale|(k|v)_proj\.output_scale)$"
)
LAYER = re.compile(r"^(.*?)layers\.(\d+)\.(.+)$")
NOT_THE_DECODER = ("vision", "visual", "audio", "encoder.", "mtp.", "vit.")


class Checkpoint:
    """A folder with config.json and safetensors files. A weight that is stored quantised goes by the name that it
    has unquantised ("….q_proj.weight"); only what is read is loaded.

    Raises E107 without config.json or safetensors files, E206 for damaged ones, E231 for an unknown scheme.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.config: dict[str, Any] = read_config(folder)  # the text model's part over the outer one
        self.files = tensor_files(folder)
        self.scheme: Scheme = detect(self.config, str(folder))
        self._header = lru_cache(maxsize=256)(read_header)

    @cached_property
    def stored(self) -> dict[str, tuple[str, ...]]:
        """Weight -> the tensors it is stored in: itself, or the main one of a quantised weight and those beside it."""
        found: dict[str, tuple[str, ...]] = {}
        used: set[str] = set()
        for name in self.files:
            module, _, last = name.rpartition(".")
            rule = self.scheme.rule(module)
            if rule is None or last != rule.main or not self._has(module, rule):
                continue
            parts = (*rule.needs, *(p for p in rule.may if f"{module}.{p}" in self.files))
            found[f"{module}.weight"] = tuple(f"{module}.{p}" for p in parts)
            used.update(found[f"{module}.weight"])
        for name in self.files:
            if name not in used and not BESIDE.match(name):
                found.setdefault(name, (name,))
        return found

    def _has(self, module: str, rule: Rule) -> bool:
        return all(f"{module}.{part}" in self.files for part in rule.needs)

    def names(self) -> tuple[str, ...]:
        """Every weight, in the files' order."""
        return tuple(self.stored)

    def is_quantised(self, name: str) -> bool:
        """Whether a weight is dequantised when it is read."""
        return len(self.stored[name]) > 1

    def layer(self, index: int) -> dict[str, str]:
        """Name inside decoder layer `index` ("self_attn.q_proj.weight") -> weight. Raises E232 when there are none."""
        found: dict[str, dict[str, str]] = {}
        for name in self.stored:
            match = LAYER.match(name)
            if match and int(match[2]) == index and not any(w in match[1].lower() for w in NOT_THE_DECODER):
                found.setdefault(match[1], {})[match[3]] = name
        if not found:
            raise lacking(
                self.folder, f"no tensor of decoder layer {index} (model.layers.{index}.…)", self.files
            )
        return max(found.values(), key=len)

    @cached_property
    def num_layers(self) -> int:
        """As config.json says; 0 when it does not."""
        value = self.config.get("num_hidden_layers")
        return value if isinstance(value, int) else 0

    def header(self, name: str) -> Tensor:
        """Dtype, shape and place of a stored tensor. Raises E232 when the file lacks it."""
        tensor = self._header(self.files[name]).get(name) if name in self.files else None
        if tensor is None:
            raise lacking(self.folder, f"no tensor {name}", self.files)
        return tensor

    def tensor(self, name: str) -> torch.Tensor:
        """A tensor as it is stored. Raises E232 when it is absent, E206 when its file cannot be read."""
        self.header(name)
        file = self.files[name]
        try:
            with safe_open(file, "pt") as opened:
                return opened.get_tensor(name)
        except (SafetensorError, OSError) as error:
            raise HsparityError("E206", f"{file} cannot be read", (str(error),), HELP) from None

    def parts(self, name: str) -> dict[str, torch.Tensor]:
        """What a weight is stored in, by the last part of each tensor's name. Raises E232, E206."""
        stored = self.stored.get(name)
        if stored is None:
            raise lacking(self.folder, f"no weight {name}", self.files)
        return {full.rpartition(".")[2]: self.tensor(full) for full in stored}

    def read(self, name: str) -> torch.Tensor:
        """A weight: float32 [o, i] where it is stored quantised, else as it is stored.

        Raises E231 where it is stored as integers or float8 without the scales that its scheme names, or where they
        do not fit it; E232, E206.
        """
        return self.join(name, self.parts(name))

    def join(self, name: str, parts: dict[str, torch.Tensor]) -> torch.Tensor:
        """The weight that its parts make, on their device. Raises E231 as `read` does."""
        if len(parts) == 1:
            value = next(iter(parts.values()))
            if value.dtype not in FLOATS:
                raise unknown(str(self.folder), f"{name} is stored as {value.dtype} without scales beside it")
            return value
        module = name.rpartition(".")[0]
        rule = self.scheme.rule(module)
        assert rule is not None  # a weight is stored in several tensors only under a rule
        dtype = self.header(f"{module}.{rule.main}").dtype
        if dtype not in (rule.stored or ("I32",)):
            raise unknown(str(self.folder), f"{name} ({self.scheme.title}) is stored as {dtype}")
        try:
            return _apply(rule, parts)
        except (ValueError, IndexError) as error:
            raise unknown(str(self.folder), f"{name} ({self.scheme.title}): {error}") from None


def _apply(rule: Rule, parts: dict[str, torch.Tensor]) -> torch.Tensor:
    if rule.name == "pack-quantized":
        return rules.pack_quantized(parts, rule.bits, rule.symmetric)
    if rule.name == "gptq":
        return rules.gptq(parts, rule.bits, rule.minus_one)
    if rule.name == "awq":
        return rules.awq(parts)
    return rules.scaled(parts, rule.block, rule.scale)


def lacking(folder: Path, what: str, names: Iterable[str]) -> HsparityError:
    """E232."""
    known = list(names)
    return HsparityError(
        "E232",
        f"{folder} lacks a tensor that the replay needs",
        (what, f"it holds {len(known)} tensors, {json.dumps(known[:3])[1:-1]} …"),
        "name the folder of the whole checkpoint: --model PATH",
    )
