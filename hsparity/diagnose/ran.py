"""What each side ran, as far as it may be the cause: settings are priors, never proofs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hsparity.capture.source import Source
from hsparity.evidence import Evidence
from hsparity.yardstick import SETTINGS, setting

NARROW = ("fp8", "float8", "int8", "int4", "nvfp4", "fp4")  # how narrow caches are called
# Settings whose difference says nothing of the arithmetic by itself.
SILENT = {"batch", "prefix cache"}
LIST_KEYS = ("n_routed_experts", "num_experts", "num_local_experts")


@dataclass(frozen=True, slots=True)
class Scheme:
    """How a checkpoint is quantised. `activations` is None where its config does not say."""

    name: str
    bits: int  # of the weights; 0 where its config does not say
    activations: bool | None

    def __str__(self) -> str:
        words = f"{self.bits}-bit weights" if self.bits else "quantised weights"
        if self.activations:
            words += " and activations"
        return f"{words} ({self.name})"


@dataclass(frozen=True, slots=True)
class Ran:
    """One side."""

    engine: str
    dtype: str
    scheme: Scheme | None
    kv: str  # "" where nothing is said of it
    mode: str
    backend: str
    tp: str
    batch: int
    chunked: bool
    masked: int | None  # id of the tokens that nobody attends to
    weights: str  # digest
    config: Mapping[str, Any]

    @property
    def narrow_kv(self) -> bool:
        return self.kv.startswith(NARROW)

    @property
    def routed(self) -> bool:
        return any(self.config.get(key) for key in LIST_KEYS)

    @property
    def dense_layers(self) -> int:
        """Layers before the first one with experts; all of them in a dense model."""
        layers = int(self.config.get("num_hidden_layers") or 0)
        if not self.routed:
            return layers
        sparse = self.config.get("mlp_only_layers")
        if isinstance(sparse, list) and sparse:
            return next((k for k in range(layers) if k not in sparse), layers)
        return int(self.config.get("first_k_dense_replace") or 0)

    @property
    def window(self) -> int | None:
        """The sliding window, where a layer uses one."""
        width = self.config.get("sliding_window")
        if not isinstance(width, int) or width <= 0 or self.config.get("use_sliding_window") is False:
            return None
        return width


def ran(source: Source) -> Ran:
    """What the manifest of a capture says."""
    m = source.manifest
    said = m.settings
    batch = said.get("batch")
    masked = said.get("masked_token_id", said.get("mask_token_id"))
    return Ran(
        engine=m.engine,
        dtype=m.dtype,
        scheme=_scheme(m.model_config, setting(source, "quantisation")),
        kv=setting(source, "kv dtype") or "",
        mode=setting(source, "mode") or "",
        backend=setting(source, "attention backend") or "",
        tp=setting(source, "tp") or "",
        batch=batch if isinstance(batch, int) else 1,
        chunked=setting(source, "chunked prefill") == "true",
        masked=masked if isinstance(masked, int) else None,
        weights=m.weights_sha256,
        config=_text(m.model_config),
    )


def differing(evidence: Evidence) -> tuple[str, ...]:
    """What both sides state and state differently: settings, dtype, weights, engine."""
    ref, cand = evidence.ref, evidence.cand
    found = [
        name
        for name in SETTINGS
        if (a := setting(ref, name)) is not None and (b := setting(cand, name)) is not None and a != b
    ]
    one, other = ran(ref), ran(cand)
    found += ["dtype"] if one.dtype != other.dtype else []
    if one.kv in ("", one.dtype) and other.kv in ("", other.dtype) and "kv dtype" in found:
        found.remove("kv dtype")  # a cache in the dtype of the arithmetic
    found += ["weights"] if one.weights and other.weights and one.weights != other.weights else []
    found += ["mask"] if one.masked != other.masked else []
    found += ["quantisation"] if one.scheme != other.scheme and "quantisation" not in found else []
    found += ["engine"] if one.engine != other.engine else []
    if one.batch == other.batch and "batch" in found:
        found.remove("batch")
    return tuple(found)


def _text(config: Mapping[str, Any]) -> dict[str, Any]:
    inner: Mapping[str, Any] = next(
        (config[k] for k in ("text_config", "llm_config") if isinstance(config.get(k), Mapping)), {}
    )
    return {**config, **inner}


def _scheme(config: Mapping[str, Any], said: str | None) -> Scheme | None:
    text = _text(config)
    given = next((text[k] for k in ("quantization_config", "compression_config") if text.get(k)), None)
    if not isinstance(given, Mapping):
        if said in (None, "none", "false"):
            return None
        return Scheme(said, 8 if "8" in said else 4 if "4" in said else 0, True if "fp8" in said else None)
    method = str(given.get("quant_method") or said or "quantised")
    groups = given.get("config_groups")
    if isinstance(groups, Mapping) and groups:
        parts = [g for g in groups.values() if isinstance(g, Mapping)]
        bits = [int((g.get("weights") or {}).get("num_bits") or 0) for g in parts]
        narrow = any(g.get("input_activations") for g in parts)
        return Scheme(method, min(bits, default=0), narrow)
    if method in ("gptq", "awq", "gptq_marlin", "awq_marlin"):
        return Scheme(method, int(given.get("bits") or given.get("w_bit") or 4), False)
    if "fp8" in method:
        return Scheme(method, 8, True)
    if method == "bitsandbytes":
        return Scheme(method, 4 if given.get("load_in_4bit") else 8, not given.get("load_in_4bit"))
    width = given.get("bits") or given.get("num_bits")
    return Scheme(method, width if isinstance(width, int) else 0, None)
