"""Every knob, and whether it can be turned: here, on this release, on this model, on this capture."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from hsprobe.schema import CaptureManifest, CaptureSpec

from ..engines.facts import release
from .knob import Knob, Slice, Value
from .knobs_sglang import KNOBS as SGLANG
from .knobs_transformers import KNOBS as TRANSFORMERS
from .knobs_vllm import KNOBS as VLLM

KNOBS: tuple[Knob, ...] = (*VLLM, *SGLANG, *TRANSFORMERS)
# What has no place in the table: a `Knob` is made of it when the sides differ in it.
OTHER = "argument "
PREFIX = 16  # tokens: the smallest block that a prefix cache keeps


@dataclass(frozen=True, slots=True)
class Situation:
    """Where a knob is to be turned. `spec` and `manifest` are None for "on some capture"."""

    device: str  # "cpu" | "cuda"
    version: str = ""
    spec: CaptureSpec | None = None
    manifest: CaptureManifest | None = None

    @property
    def config(self) -> dict[str, Any]:
        return self.manifest.model_config if self.manifest else {}


@dataclass(frozen=True, slots=True)
class Need:
    """A condition: what to say when it is not met; `holds` is None where only a capture can tell."""

    text: str
    holds: Callable[[Situation], bool | None]
    machine: bool = field(default=False)  # a matter of the machine, not of the capture


def knobs(engine: str) -> tuple[Knob, ...]:
    """The knobs of an engine, in the order of the table."""
    return tuple(k for k in KNOBS if k.engine == engine)


def argument_knobs(one: CaptureSpec, other: CaptureSpec) -> tuple[Knob, ...]:
    """A knob for each engine argument and variable that differs and that no knob of the table owns."""
    owned = {key for knob in knobs(one.engine) for key in (*knob.args, *knob.env)}
    made = []
    for what, left, right in (
        ("args", one.engine_args, other.engine_args),
        ("env", one.env, other.env),
    ):
        for key in sorted({*left, *right} - owned):
            if left.get(key) != right.get(key):
                title = f"{'the engine argument' if what == 'args' else 'the variable'} {key}"
                how = "engine_args" if what == "args" else "env"
                owns: dict[str, Any] = {what: (key,)}
                made.append(Knob(one.engine, f"{OTHER}{key}", "unknown", title, how, "argument", **owns))
    return tuple(made)


def obstacle(knob: Knob, value: Value | Slice, where: Situation, *, machine_only: bool = False) -> str:
    """Why the knob cannot be put there; "" when it can."""
    low, high = knob.versions
    if where.version and low and release(where.version) < release(low):
        return f"{knob.engine} {where.version} does not have it: {low} and later do"
    if where.version and high and release(where.version) > release(high):
        return f"{knob.engine} {where.version} no longer has it: {high} was the last"
    needs = (*knob.needs, *(value.needs if isinstance(value, Value) else ()))
    for name in needs:
        need = NEEDS[name]
        if (need.machine or not machine_only) and need.holds(where) is False:
            return need.text
    return ""


def turnable(engine: str, version: str, device: str) -> tuple[list[str], dict[str, list[str]]]:
    """The knobs of an engine that can be turned on a machine, and what cannot: reason -> knobs, with the value where it is
    the value's reason. What only a capture can tell is not asked."""
    where, able = Situation(device, version), []
    unable: dict[str, list[str]] = {}
    for knob in (k for k in knobs(engine) if k.values):
        names = dict.fromkeys(v.name for v in knob.values)
        free = [n for n in names if not all_blocked(knob, n, where)]
        # One place of several is where it stands already; a knob with one place alone is put back there.
        if len(free) > 1 or (free and len(names) == 1):
            able.append(knob.name)
        for value in knob.values:
            why = obstacle(knob, value, where, machine_only=True)
            if why and value.name not in free:
                unable.setdefault(why, []).append(
                    f"{knob.name} {value.name}" if knob.name in able else knob.name
                )
    return able, {why: list(dict.fromkeys(names)) for why, names in unable.items()}


def all_blocked(knob: Knob, name: str, where: Situation) -> bool:
    """Whether no value of that name can be turned to on the machine."""
    return all(obstacle(knob, v, where, machine_only=True) for v in knob.values if v.name == name)


def _on(device: str) -> Callable[[Situation], bool]:
    return lambda where: where.device == device


def _mla(where: Situation) -> bool | None:
    return bool(where.config.get("kv_lora_rank")) if where.manifest else None


def _moe(where: Situation) -> bool | None:
    keys = ("n_routed_experts", "num_experts", "num_local_experts")
    return any(where.config.get(k) for k in keys) if where.manifest else None


def _quantised(where: Situation) -> bool | None:
    return quantisation(where.manifest) is not None if where.manifest else None


def _native(where: Situation) -> bool | None:
    return where.spec.mechanism in ("native", "both") if where.spec else None


def _hooks_fire(where: Situation) -> bool | None:
    return where.manifest.settings.get("mode") == "eager" if where.manifest else None


def _decoded(where: Situation) -> bool | None:
    return any(p.tokens > p.prefill for p in where.manifest.prompts) if where.manifest else None


def _ranks(where: Situation) -> bool | None:
    if where.device == "cpu":
        return True
    import torch

    return torch.cuda.device_count() > 1


def _hopper(where: Situation) -> bool | None:
    import torch

    return torch.cuda.is_available() and torch.cuda.get_device_capability() >= (9, 0)


def _negate(test: Callable[[Situation], bool | None]) -> Callable[[Situation], bool | None]:
    def holds(where: Situation) -> bool | None:
        found = test(where)
        return None if found is None else not found

    return holds


def _share_prefixes(where: Situation) -> bool | None:
    if where.spec is None:
        return None
    starts = [p.token_ids[:PREFIX] for p in where.spec.prompts if len(p.token_ids) > PREFIX]
    return len(set(starts)) < len(starts)


def _bfloat16(where: Situation) -> bool | None:
    return where.spec.dtype == "bfloat16" if where.spec else None


NEEDS = {
    "gpu": Need("needs a GPU", _on("cuda"), machine=True),
    "cpu": Need("is for machines without a GPU", _on("cpu"), machine=True),
    "ranks": Need("needs two GPUs", _ranks, machine=True),
    "hopper": Need("needs a Hopper GPU or later", _hopper, machine=True),
    "mla": Need("the model has no MLA", _mla),
    "no-mla": Need("the model has MLA, which these kernels do not do", _negate(_mla)),
    "moe": Need("the model routes to no experts", _moe),
    "quantised": Need("the checkpoint is not quantised", _quantised),
    "native": Need(
        "needs captures of the native path (--mechanism native): layer hooks are silent in compiled and replayed passes",
        _native,
    ),
    "hooks-fire": Need("layer hooks are silent in compiled and replayed passes", _hooks_fire),
    "no-graph": Need("needs eager passes", _hooks_fire),
    "decoded": Need("no token was decoded (--generate)", _decoded),
    "prefixes": Need("no two prompts share a prefix of 16 tokens", _share_prefixes),
    "not-bfloat16": Need(
        "bfloat16 under the Triton interpreter is garbage: capture both sides in float16 or float32",
        _negate(_bfloat16),
    ),
}


def quantisation(manifest: CaptureManifest) -> dict[str, Any] | None:
    """The checkpoint's quantization_config; None for plain weights."""
    config = manifest.model_config
    found = config.get("quantization_config") or config.get("text_config", {}).get("quantization_config")
    return dict(found) if found else None


def quantises_activations(config: dict[str, Any]) -> bool:
    """Whether a quantization_config says that activations are quantised too, static or per token."""
    if config.get("activation_scheme"):
        return True
    groups = config.get("config_groups") or {}
    return any(group.get("input_activations") for group in groups.values() if isinstance(group, dict))
