"""Which published rule a checkpoint's weights are stored by: read from its config, never guessed from numbers."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hsparity.errors import HsparityError

COMPRESSED = "compressed-tensors"
# What each format of compressed-tensors keeps a quantised weight under.
FORMATS = {
    "pack-quantized": "weight_packed",
    "int-quantized": "weight",
    "float-quantized": "weight",
    "naive-quantized": "weight",
    "dense": "",
}
MIXED = "mixed-precision"
STRATEGIES = ("tensor", "channel", "group", "block")
GPTQ_BITS = (2, 4, 8)
FLOAT8 = ("F8_E4M3", "F8_E5M2")


@dataclass(frozen=True, slots=True)
class Rule:
    """How one weight is stored. `main` is the tensor that stands for it; the others lie beside it."""

    name: str  # "pack-quantized" | "scaled" | "gptq" | "awq"
    main: str  # last part of the main tensor's name
    needs: tuple[str, ...]
    may: tuple[str, ...] = ()
    bits: int = 8
    symmetric: bool = True
    block: tuple[int, int] | None = None
    minus_one: bool = False
    scale: str = "weight_scale"
    stored: tuple[str, ...] = ()  # dtypes that the main tensor may have; empty: I32


@dataclass(frozen=True, slots=True)
class Group:
    """A rule and the modules that it is for: "re:…" patterns, names, or classes (any module)."""

    targets: tuple[str, ...]
    rule: Rule

    def names(self, module: str) -> bool:
        """Whether a target other than a class is this module."""
        return any(
            bool(re.match(t[3:], module)) if t.startswith("re:") else t == module or module.endswith(f".{t}")
            for t in self.targets
        )


@dataclass(frozen=True, slots=True)
class Scheme:
    """A checkpoint's quantisation. `title` is for people; plain checkpoints have no group."""

    title: str
    groups: tuple[Group, ...] = ()

    @property
    def quantised(self) -> bool:
        return bool(self.groups)

    def rule(self, module: str) -> Rule | None:
        """The rule of a module, should it be quantised: the group that names it, else the one for all."""
        for group in self.groups:
            if group.names(module):
                return group.rule
        return next((g.rule for g in self.groups if any(t.isidentifier() for t in g.targets)), None)


PLAIN = Scheme("not quantised")


def detect(config: Mapping[str, Any], folder: str) -> Scheme:
    """The scheme that `quantization_config` (or `compression_config`) of a config.json states.

    Raises E231 for one that is not known here.
    """
    stated = config.get("quantization_config") or config.get("compression_config")
    if not stated:
        return PLAIN
    if not isinstance(stated, dict):
        raise unknown(folder, f"quantization_config is {stated!r}")
    method = str(stated.get("quant_method", "")).replace("_", "-")
    if method == COMPRESSED or (not method and "config_groups" in stated):
        return _compressed(stated, folder)
    if method == "fp8":
        return _fp8(stated)
    if method == "gptq":
        return _gptq(stated, folder)
    if method == "awq":
        return _awq(stated, folder)
    raise unknown(folder, f"quant_method is {method or 'not stated'}")


def _compressed(stated: Mapping[str, Any], folder: str) -> Scheme:
    for key in ("transform_config", "sparsity_config"):
        extra = stated.get(key)
        if extra and not (key == "sparsity_config" and extra.get("format") in (None, "dense")):
            raise unknown(folder, f"compressed-tensors with {key}: its weights are not stored as they act")
    groups: list[Group] = []
    formats: list[str] = []
    for group in (stated.get("config_groups") or {}).values():
        weights = group.get("weights")
        if not weights:
            continue
        form = str(group.get("format") or stated.get("format") or "")
        if form == MIXED or form not in FORMATS:
            raise unknown(folder, f"compressed-tensors in the format {form or 'that it does not name'}")
        formats.append(_words(form, weights))
        if main := FORMATS[form]:
            groups.append(Group(tuple(group.get("targets") or ()), _compressed_rule(main, weights, folder)))
    if not groups and stated.get("format") not in ("dense", None):
        raise unknown(folder, "compressed-tensors without a group of quantised weights")
    title = ", ".join(dict.fromkeys(formats))
    return Scheme(f"compressed-tensors {title}" if title else PLAIN.title, tuple(groups))


def _words(form: str, weights: Mapping[str, Any]) -> str:
    size = (
        f" of {weights['group_size']}"
        if weights.get("group_size") and weights.get("strategy") == "group"
        else ""
    )
    return f"{form} {weights.get('type', 'int')}{weights.get('num_bits', '')} per {weights.get('strategy')}{size}"


def _compressed_rule(main: str, weights: Mapping[str, Any], folder: str) -> Rule:
    bits, strategy = weights.get("num_bits"), weights.get("strategy")
    if not isinstance(bits, int) or not 1 <= bits <= 8 or strategy not in STRATEGIES:
        raise unknown(folder, f"compressed-tensors with {bits} bits per {strategy}")
    symmetric = bool(weights.get("symmetric", True))
    zero = () if symmetric else ("weight_zero_point",)
    if main == "weight_packed":
        needs = ("weight_packed", "weight_scale", "weight_shape", *zero)
        # Symmetric checkpoints may hold zero points that are all zero; the rule does not read them.
        may = ("weight_g_idx", *(("weight_zero_point",) if symmetric else ()))
        return Rule("pack-quantized", main, needs, may, bits, symmetric)
    block = weights.get("block_structure") if strategy == "block" else None
    if strategy == "block" and not _is_block(block):
        raise unknown(folder, f"compressed-tensors in blocks of {block}")
    needs = ("weight", "weight_scale", *zero)
    stored = FLOAT8 if weights.get("type") == "float" else ("I8",)
    return Rule("scaled", main, needs, ("weight_g_idx",), bits, symmetric, _block(block), stored=stored)


def _fp8(stated: Mapping[str, Any]) -> Scheme:
    block = _block(stated.get("weight_block_size"))
    scale = "weight_scale" if block is None else "weight_scale_inv"
    rule = Rule("scaled", "weight", ("weight", scale), block=block, scale=scale, stored=FLOAT8)
    title = "fp8 per tensor" if block is None else f"fp8 in blocks of {block[0]} x {block[1]}"
    return Scheme(title, (Group(("Linear",), rule),))


def _gptq(stated: Mapping[str, Any], folder: str) -> Scheme:
    bits = stated.get("bits")
    if bits not in GPTQ_BITS:
        raise unknown(folder, f"GPTQ with {bits} bits")
    form = str(stated.get("checkpoint_format") or "gptq")
    if form not in ("gptq", "gptq_v2"):
        raise unknown(folder, f"GPTQ in the format {form}")
    needs = ("qweight", "qzeros", "scales")
    rule = Rule("gptq", "qweight", needs, ("g_idx",), bits, minus_one=form == "gptq")
    return Scheme(f"GPTQ {bits} bits, groups of {stated.get('group_size')}", (Group(("Linear",), rule),))


def _awq(stated: Mapping[str, Any], folder: str) -> Scheme:
    bits, version = stated.get("bits", 4), str(stated.get("version", "gemm")).lower()
    if bits != 4 or version != "gemm":
        raise unknown(folder, f"AWQ with {bits} bits, version {version}")
    rule = Rule("awq", "qweight", ("qweight", "qzeros", "scales"), (), 4)
    return Scheme(f"AWQ 4 bits, groups of {stated.get('group_size')}", (Group(("Linear",), rule),))


def _is_block(value: Any) -> bool:
    return (
        isinstance(value, Sequence) and len(value) == 2 and all(isinstance(n, int) and n > 0 for n in value)
    )


def _block(value: Any) -> tuple[int, int] | None:
    return (int(value[0]), int(value[1])) if _is_block(value) else None


def unknown(folder: str, what: str) -> HsparityError:
    """E231."""
    return HsparityError(
        "E231",
        f"{folder}: its weights are stored in a way that is not known here",
        (what, f"known: compressed-tensors {', '.join(FORMATS)}; fp8; gptq; awq; unquantised"),
        "name a checkpoint of the same weights in one of these forms, or an unquantised one: --model PATH",
    )
