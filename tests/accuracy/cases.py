"""The divergences that real engines show on a CPU, as data: what to capture, what against what, and the truth."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import torch

MODELS = {
    "llama": "tiny:llama",
    "smollm2": "smollm2",
    "deepseek": "tiny:deepseek-v3",
    "qwen3-moe": "tiny:qwen3-moe",
}
STREAM = ("boundary.*", "final_norm")
PARTS = ("attn_out.*", "mlp_out.*")
ROUTERS = ("router_logits.*", "experts.*")
ALL_IDS = tuple(range(9))  # every boundary of a tiny model
PAD = 0  # the tiny models' pad token
DECODED = 8

Spec = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Take:
    """One capture. `name` is its folder; `weights` a scheme of quantise.SCHEMES, with -dequant its twin."""

    model: str
    label: str
    engine: str
    spec: Spec = field(default_factory=dict)
    weights: str = ""
    prompts: str = (
        "forced"  # "forced": 8 tokens decoded; "whole": the same as prompts; "padded": pad ids among them
    )

    @property
    def name(self) -> str:
        return f"{self.model}-{self.label}"

    @property
    def sites(self) -> tuple[str, ...]:
        if self.spec.get("mechanism") == "native":
            return ()
        parts = () if self.model == "smollm2" else PARTS
        return (*STREAM, *parts, *(ROUTERS if self.model in ("deepseek", "qwen3-moe") else ()))


@dataclass(frozen=True, slots=True)
class Case:
    """Two captures that differ in one thing. `truth` is what `compare` is to say, `bisect_truth` what `bisect` is."""

    truth: str
    ref: Take
    cand: Take
    how: str
    also: tuple[str, ...] = ()
    bisect_truth: str = ""
    passive: bool = True
    floors: tuple[Take, ...] = ()

    @property
    def name(self) -> str:
        return f"{self.ref.model}: {self.cand.label} against {self.ref.label}"


def hf(model: str, dtype: str = "bfloat16", label: str = "", **spec: Any) -> Take:
    short = {"bfloat16": "bf16", "float32": "fp32"}[dtype]
    return Take(model, label or f"hf-{short}", "hf", {"dtype": dtype, **spec})


def floors(model: str, prompts: str = "forced", weights: str = "") -> tuple[Take, ...]:
    """Transformers in float32 and bfloat16 on the same tokens and weights."""
    suffix = "".join(f"-{word}" for word in (weights, prompts if prompts != "forced" else "") if word)
    takes = (hf(model, dtype, label=f"hf-{n}{suffix}") for n, dtype in FLOORS)
    return tuple(replace(t, prompts=prompts, weights=weights) for t in takes)


FLOORS = (("fp32", "float32"), ("bf16", "bfloat16"))


def vllm(model: str, label: str = "", weights: str = "", prompts: str = "forced", **spec: Any) -> Take:
    return Take(model, f"vllm-{label or weights or 'bf16'}", "vllm", spec, weights, prompts)


def sglang(model: str, label: str = "bf16", **spec: Any) -> Take:
    return Take(model, f"sglang-{label}", "sglang", spec)


def cases() -> list[Case]:
    """Every case, those that others wait for first."""
    found = [*_quantised("llama", "w4a16"), *_kv(), *_quantised("deepseek", "w4a16"), *_mla(), *_mask()]
    found += [*_quantised("smollm2", "w4a16"), *_sglang_backends(), *_dtype(), *_graph()]
    found += [*_quantised("llama", "w8a8"), *_quantised("llama", "fp8")]
    found += [*_quantised("deepseek", "w8a8"), *_quantised("deepseek", "fp8")]
    found += [*_quantised("smollm2", "w8a8"), *_quantised("smollm2", "fp8")]
    found += [*_healthy(), *_shapes(), *_ignored(), *_across()]
    return [c if c.floors else replace(c, floors=floors(c.ref.model)) for c in found]


def _quantised(model: str, scheme: str) -> Iterator[Case]:
    """Against the original, against the twin (by the twin's own floor), and the twin against the original."""
    original = vllm(model)
    quantised, twin = vllm(model, weights=scheme), vllm(model, weights=f"{scheme}-dequant")
    part = f"{scheme.upper()} (dense linears)" if model == "deepseek" else scheme.upper()
    weights, activations = "quantised-weights", "quantised-activations"
    first = DOMINANT[scheme]
    also = () if scheme == "w4a16" else tuple({weights, activations} - {first})
    yield Case(first, original, quantised, f"vLLM {part} against its bf16 original", also)
    kernel, rival = _int4_kernel() if scheme == "w4a16" else (activations, ())
    said = f"vLLM {part} against the bf16 twin of its weights"
    yield Case(kernel, twin, quantised, said, rival, floors=floors(model, weights=twin.weights))
    said = f"vLLM on the bf16 twin of {part} weights against the original"
    yield Case(weights, original, twin, said, ("weights-differ",))


def _int4_kernel() -> tuple[str, tuple[str, ...]]:
    """What vLLM's W4A16 kernel does to equal weights on this CPU, and the names that are right too.

    With AMX it quantises the activations (VLLM_CPU_INT4_W4A8 is on by default). Without avx512_bf16 it cuts
    the dequantised weights and every output to bfloat16 instead of rounding: csrc/cpu/cpu_types_x86.hpp.
    """
    if torch.cpu._is_amx_tile_supported():
        return "quantised-activations", ()
    if torch.cpu._is_avx512_bf16_supported():
        return "within-noise", ()
    return "dtype-rounding", ("truncated-rounding", "quantised-weights")


# Which of the two errors is the larger was measured: docs/accuracy.md.
DOMINANT = {"w4a16": "quantised-weights", "w8a8": "quantised-activations", "fp8": "quantised-weights"}


def _kv() -> Iterator[Case]:
    fp8 = {"engine_args": {"kv_cache_dtype": "fp8"}}
    kv = "quantised-kv"
    yield Case(kv, vllm("smollm2"), vllm("smollm2", "fp8kv", **fp8), "vLLM with an fp8 KV cache against bf16")
    yield Case(kv, vllm("llama"), vllm("llama", "fp8kv", **fp8), "vLLM with an fp8 KV cache against bf16")
    plain = vllm("deepseek", "mha", env=NO_MLA)
    yield Case(
        kv,
        plain,
        vllm("deepseek", "mha-fp8kv", env=NO_MLA, **fp8),
        "vLLM with an fp8 KV cache against bf16, MLA off on both",
    )


NO_MLA = {"VLLM_MLA_DISABLE": "1"}


def _mla() -> Iterator[Case]:
    yield Case(
        "within-noise",
        vllm("deepseek"),
        vllm("deepseek", "mha", env=NO_MLA),
        "vLLM with MLA on against off",
        bisect_truth="attention-backend",
    )


def _mask() -> Iterator[Case]:
    for model in ("llama", "deepseek"):
        fp32, bf16 = floors(model, "padded")
        masked = replace(hf(model, label="hf-masked", engine_args={"mask_token_id": PAD}), prompts="padded")
        yield Case(
            "mask-differs",
            bf16,
            masked,
            "Transformers with the mask derived from the pad id against a full mask",
            floors=(fp32, bf16),
        )
    eager = hf("llama", label="hf-eager", engine_args={"attn_implementation": "eager"})
    yield Case(
        "within-noise",
        hf("llama"),
        eager,
        "Transformers eager attention against sdpa",
        bisect_truth="attention-backend",
    )


INTERPRETED = {"TRITON_INTERPRET": "1"}


def _sglang_backends() -> Iterator[Case]:
    for dtype, short in (("float16", "fp16"), ("float32", "fp32")):
        native = sglang("llama", short, dtype=dtype)
        triton = sglang(
            "llama",
            f"{short}-triton",
            dtype=dtype,
            env=INTERPRETED,
            engine_args={"attention_backend": "triton"},
        )
        yield Case(
            "within-noise",
            native,
            triton,
            f"SGLang {dtype} with the interpreted triton backend against torch_native",
            bisect_truth="attention-backend",
        )
    whole = sglang("llama")
    chunked = sglang("llama", "chunked", engine_args={"chunked_prefill_size": 16})
    yield Case("within-noise", whole, chunked, "SGLang with chunks of 16 tokens against none")
    # The prompts share their first token, whose row the cache then leaves out; the rows that are there are equal.
    radix = sglang("llama", "radix", engine_args={"disable_radix_cache": False})
    said = "SGLang with the radix cache on against off"
    yield Case("prefix-cache-skip", whole, radix, said, bisect_truth="within-noise")


def _dtype() -> Iterator[Case]:
    for model in ("llama", "deepseek"):
        half = vllm(model, "fp16", dtype="float16")
        yield Case(
            "within-noise",
            vllm(model),
            half,
            "vLLM float16 against bfloat16",
            ("dtype-rounding",),
            bisect_truth="dtype-rounding",
        )


def _graph() -> Iterator[Case]:
    native = {"mechanism": "native", "native_ids": ALL_IDS}
    eager = vllm("llama", "native", **native)
    compiled = vllm("llama", "compiled", **native, engine_args={"enforce_eager": False})
    yield Case(
        "within-noise",
        eager,
        compiled,
        "vLLM compiled against eager, native ids 0 to 8 on both",
        ("graph-or-compile",),
        bisect_truth="graph-or-compile",
    )


def _healthy() -> Iterator[Case]:
    for model in MODELS:
        for ref, cand in (
            (hf(model), vllm(model)),
            (hf(model), sglang(model)),
            (vllm(model), sglang(model)),
        ):
            yield Case("within-noise", ref, cand, "two engines in bfloat16, nothing wrong")
    yield Case(
        "within-noise",
        hf("llama"),
        vllm("llama", "fp16", dtype="float16"),
        "vLLM float16 against Transformers",
    )


def _shapes() -> Iterator[Case]:
    """What moves at most by noise: how rows are put into passes, and over how many ranks."""
    two = {"env": {"VLLM_CPU_OMP_THREADS_BIND": "nobind"}, "engine_args": {"tensor_parallel_size": 2}}
    chunks = {"engine_args": {"enable_chunked_prefill": True, "max_num_batched_tokens": 16}}
    for model in ("llama", "deepseek"):
        for label, said, cause, fields in (
            ("tp2", "two tensor-parallel ranks against one", "batch-variance", two),
            ("batch4", "batches of 4 prompts against one by one", "batch-variance", {"batch": 4}),
            ("whole", "the decoded tokens as part of the prompt", "prefill-decode", {"prompts": "whole"}),
        ):
            yield Case(
                "within-noise",
                vllm(model),
                vllm(model, label, **fields),
                f"vLLM: {said}",
                bisect_truth=cause,
                passive=False,
            )
    yield Case(
        "within-noise",
        vllm("llama"),
        vllm("llama", "chunked", **chunks),
        "vLLM: chunks of 16 tokens against none",
        bisect_truth="within-noise",
        passive=False,
    )


def _ignored() -> Iterator[Case]:
    """Settings that vLLM takes and does not apply under MLA on a CPU."""
    for label, argument in (
        ("block32", {"block_size": 32}),
        ("chunks16", {"enable_chunked_prefill": True, "max_num_batched_tokens": 16}),
    ):
        yield Case(
            "within-noise",
            vllm("deepseek"),
            vllm("deepseek", label, engine_args=argument),
            f"vLLM under MLA with {argument}: not applied",
            bisect_truth="not-applied",
            passive=False,
        )


def _across() -> Iterator[Case]:
    """What users have: another engine, and one thing wrong with a side."""
    kv = {"engine_args": {"kv_cache_dtype": "fp8"}}
    weights, activations = "quantised-weights", "quantised-activations"
    for model in ("llama", "smollm2"):
        yield Case(
            "quantised-kv", hf(model), vllm(model, "fp8kv", **kv), "vLLM with an fp8 KV cache, Transformers"
        )
    plain = vllm("deepseek", "mha-fp8kv", env=NO_MLA, **kv)
    yield Case("quantised-kv", sglang("deepseek"), plain, "vLLM with an fp8 KV cache and MLA off, SGLang")
    for model in ("llama", "deepseek"):
        yield Case(weights, hf(model), vllm(model, weights="w4a16"), "vLLM on W4A16, Transformers on bf16")
    int8 = vllm("llama", weights="w8a8")
    yield Case(activations, sglang("llama"), int8, "vLLM on W8A8, SGLang on bf16", (weights,))
