"""The capture format's records: what was asked for, what a site is, what a folder holds. Standard library only."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import Any

SCHEMA = "hsparity.capture/1"

INDEXED_KINDS = (
    "boundary",  # the residual stream (hidden + residual) after `index` decoder layers, 0..L
    "hidden",  # boundary `index`, the branch output alone, before it is added to the residual
    "residual",  # boundary `index`, the residual alone
    "attn_out",  # attention output of decoder layer `index` (0-based), before the residual add
    "mlp_out",  # MLP or MoE output of decoder layer `index` (0-based), before the residual add
    "router_logits",  # router logits of decoder layer `index` (0-based), [R, experts]
    "experts",  # chosen experts of decoder layer `index` (0-based), int32 [R, top_k]
    "slot",  # what an engine hands over under its own label; its boundary is not known until the data say so
)
SINGLE_KINDS = (
    "final_norm",  # norm(boundary L): the lm_head's input
    "prompt_logprobs",  # the engine's own log-probabilities of the next prompt token; see writer.py
)


@dataclass(frozen=True, order=True)
class Site:
    """A place in the forward pass. `key` names it in shards: "boundary.030", "final_norm"."""

    kind: str
    index: int = 0

    def __post_init__(self) -> None:
        if self.kind not in INDEXED_KINDS and self.kind not in SINGLE_KINDS:
            raise ValueError(f"unknown site kind {self.kind!r}")
        if self.index < 0:
            raise ValueError(f"negative site index {self.index}")

    @property
    def key(self) -> str:
        return self.kind if self.kind in SINGLE_KINDS else f"{self.kind}.{self.index:03d}"

    @classmethod
    def parse(cls, key: str) -> Site:
        """The site that `key` names. Raises ValueError for anything else."""
        kind, dot, index = key.partition(".")
        if kind in SINGLE_KINDS and not dot:
            return cls(kind)
        if kind in INDEXED_KINDS and index.isdigit():
            return cls(kind, int(index))
        raise ValueError(f"not a site key: {key!r}")


@dataclass(frozen=True)
class PromptSpec:
    """One prompt to capture. `forced` are the tokens to decode after it (teacher forcing); empty means greedy."""

    id: str
    token_ids: tuple[int, ...]
    forced: tuple[int, ...] = ()
    text: str = ""


@dataclass(frozen=True)
class CaptureSpec:
    """Everything that decides a capture's content. `sha256()` guards resume: a changed spec is refused."""

    engine: str  # "hf" | "vllm" | "sglang"
    model: str  # local path or hub name, passed to the engine as is
    prompts: tuple[PromptSpec, ...]
    sites: tuple[
        str, ...
    ]  # site keys asked of the hooks; "boundary.*" etc. are expanded by the probe (L is known there)
    mechanism: str = "hooks"  # "hooks" | "native" | "both"; "drafts" measures a draft and keeps no rows
    native_ids: tuple[int, ...] = ()  # exactly as a draft config would give them
    generate: int = 0  # tokens to decode after each prompt
    batch: int = 1  # prompts submitted to the engine together
    dtype: str = "bfloat16"  # compute dtype asked of the engine
    revision: str = ""
    trust_remote_code: bool = False
    engine_args: dict[str, Any] = field(default_factory=dict)  # passed through to the engine's constructor
    env: dict[str, str] = field(default_factory=dict)  # set in the engine's processes
    draft: str = ""  # mechanism "drafts": the EAGLE-3 head's folder
    draft_steps: int = 0  # tokens it drafts between two steps of the target
    stop_ids: tuple[int, ...] = ()  # mechanism "drafts": a text ends behind one of these

    def sha256(self) -> str:
        # Specs written before there were these fields keep their digest.
        later = ("env", "draft", "draft_steps", "stop_ids")
        return canonical_sha256({k: v for k, v in asdict(self).items() if k not in later or v})

    def to_json(self) -> str:
        return json.dumps(asdict(self), indent=1, sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> CaptureSpec:
        raw = json.loads(text)
        raw["prompts"] = tuple(
            PromptSpec(p["id"], tuple(p["token_ids"]), tuple(p.get("forced", ())), p.get("text", ""))
            for p in raw["prompts"]
        )
        raw["sites"] = tuple(raw["sites"])
        raw["native_ids"] = tuple(raw["native_ids"])
        raw["stop_ids"] = tuple(raw.get("stop_ids", ()))
        return cls(**{k: v for k, v in raw.items() if k in cls.__dataclass_fields__})


@dataclass(frozen=True)
class Prompt:
    """A captured prompt. T = `tokens` ids were fed to the model; R = `rows` of them have states."""

    id: str
    tokens: int  # T: prompt tokens plus decoded tokens that were fed back
    prefill: int  # how many of the T belong to the prompt
    rows: int  # R <= T
    missing: tuple[tuple[int, int], ...]  # positions without a row, as [start, stop) spans
    token_ids_sha256: str  # of the T ids as little-endian int32
    generated: tuple[int, ...] = ()  # the continuation, its last token never fed back
    dropped_rows: int = 0  # padded, overrun or recomputed rows the engine produced and the probe dropped
    text: str = ""


@dataclass(frozen=True)
class ShardEntry:
    path: str  # "shards/00007.safetensors"
    prompt: str
    sites: tuple[str, ...]
    tokens: int
    bytes: int
    sha256: str


@dataclass(frozen=True)
class Check:
    """One line of a capture's self-check."""

    name: str  # "final-norm", "embedding", "rows", "native-matches-hooks"
    passed: bool
    detail: str
    value: float = 0.0
    limit: float = 0.0


@dataclass(frozen=True)
class NormInfo:
    """The model's final RMSNorm, its weight [H] saved beside the shards as tensor `norm`."""

    file: str  # "norm.safetensors"
    eps: float
    plus_one: bool  # Gemma's (1 + w)
    sha256: str


@dataclass(frozen=True)
class CaptureManifest:
    """`manifest.json`: written last, atomically. Its presence means the capture is complete."""

    schema: str
    engine: str
    engine_version: str
    model: str
    revision: str
    architecture: str
    weights_sha256: str
    num_layers: int
    hidden_size: int
    dtype: str  # storage dtype of hidden states
    settings: dict[
        str, Any
    ]  # tp, mode ("eager" | "compiled" | "graphs"), attention backend, mechanism, native_ids, shims, …
    environment: dict[str, str]
    native_labels: dict[str, str]  # site key -> the engine's own name
    prompts: tuple[Prompt, ...]
    shards: tuple[ShardEntry, ...]
    spec_sha256: str
    status: str  # "complete" | "partial"
    checks: tuple[Check, ...] = ()
    norm: NormInfo | None = None
    model_config: dict[str, Any] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    created: str = ""  # UTC, ISO 8601

    def to_json(self) -> str:
        return json.dumps(asdict(self), indent=1, sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> CaptureManifest:
        """Read a manifest, ignoring keys it does not know. Raises ValueError or KeyError when it is not one."""
        raw = json.loads(text)
        if not isinstance(raw, dict) or "schema" not in raw:
            raise ValueError("not a capture manifest")
        raw["prompts"] = tuple(_prompt(p) for p in raw["prompts"])
        raw["shards"] = tuple(_known(ShardEntry, s, sites=tuple(s["sites"])) for s in raw["shards"])
        raw["checks"] = tuple(_known(Check, c) for c in raw.get("checks", ()))
        raw["norm"] = _known(NormInfo, raw["norm"]) if raw.get("norm") else None
        raw["warnings"] = tuple(raw.get("warnings", ()))
        return cls(**{k: v for k, v in raw.items() if k in cls.__dataclass_fields__})


def _known(cls: Any, raw: dict[str, Any], **override: Any) -> Any:
    return cls(**{**{k: v for k, v in raw.items() if k in cls.__dataclass_fields__}, **override})


def _prompt(raw: dict[str, Any]) -> Prompt:
    missing = tuple((int(a), int(b)) for a, b in raw["missing"])
    prompt: Prompt = _known(Prompt, raw, missing=missing, generated=tuple(raw.get("generated", ())))
    return prompt


def canonical_sha256(value: Any) -> str:
    """SHA-256 of a value's canonical JSON."""
    return hashlib.sha256(json.dumps(value, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def token_ids_sha256(token_ids: Iterable[int]) -> str:
    """SHA-256 of token ids as little-endian int32."""
    return hashlib.sha256(b"".join(int(t).to_bytes(4, "little", signed=True) for t in token_ids)).hexdigest()
