"""What sglang.Engine is given: defaults for a capture or a measurement, and what would give nothing or the wrong thing."""

from __future__ import annotations

import os
from typing import Any

import torch

from ..protocol import ProbeError
from ..schema import CaptureSpec
from . import sglang_runner

PAGE_MARGIN = 64  # cache slots a request may waste on page rounding

# What a graph-free run of layer hooks needs; asking for the opposite is refused.
GRAPH_ARGUMENTS = {
    "disable_cuda_graph": lambda v: v is False,
    "cuda_graph_backend_decode": lambda v: v not in (None, "disabled"),
    "cuda_graph_backend_prefill": lambda v: v not in (None, "disabled"),
    "cuda_graph_config": bool,
    "enable_torch_compile": bool,
}
# What spreads rows or layers over ranks so that no rank holds a pass.
SPREADING_ARGUMENTS = ("pp_size", "pipeline_parallel_size", "dp_size", "data_parallel_size", "attn_cp_size")


def engine_arguments(spec: CaptureSpec) -> dict[str, Any]:
    """The keyword arguments for sglang.Engine: defaults for a capture, then `spec.engine_args` as given.

    Raises ProbeError E306 for combinations that would capture nothing or the wrong thing.
    """
    device = spec.engine_args.get("device") or ("cuda" if torch.cuda.is_available() else "cpu")
    longest = max((len(p.token_ids) + spec.generate for p in spec.prompts), default=1)
    arguments: dict[str, Any] = {
        "model_path": spec.model,
        "dtype": spec.dtype,
        "device": device,
        "trust_remote_code": spec.trust_remote_code,
        "skip_tokenizer_init": True,  # prompts enter as token ids
        "disable_radix_cache": True,
        "chunked_prefill_size": -1,
        "max_prefill_tokens": max(16384, longest * spec.batch),
        "max_running_requests": max(spec.batch, 1),
        "disable_overlap_schedule": True,  # overlapped decoding runs finished requests one step too far
        "random_seed": 0,
        "log_level": "info",
    }
    if spec.revision:
        arguments["revision"] = spec.revision
    if device == "cpu":
        tokens = max(1024, (longest + PAGE_MARGIN) * max(spec.batch, 1))
        arguments |= {
            "attention_backend": "torch_native",
            "disable_custom_all_reduce": True,
            "max_total_tokens": tokens,
            "mem_fraction_static": 0.2,
        }
    if device == "cpu" or spec.mechanism in sglang_runner.HOOKS:
        arguments["disable_cuda_graph"] = True
    if spec.mechanism in sglang_runner.NATIVE:
        arguments |= {
            "enable_return_aux_hidden_states": True,
            "speculative_algorithm": "EAGLE3",
            "return_aux_hidden_state_layer_ids": list(spec.native_ids) or None,
        }
    if spec.mechanism == "drafts":
        arguments |= {
            "speculative_algorithm": "EAGLE3",
            "speculative_draft_model_path": spec.draft,
            "speculative_num_steps": spec.draft_steps,
            "speculative_eagle_topk": 1,  # a chain, as in vLLM: a tree has no acceptance by position
            "speculative_num_draft_tokens": spec.draft_steps + 1,
            # The target's own is refused where the draft's is shorter.
            "context_length": longest + PAGE_MARGIN,
        }
    arguments |= spec.engine_args
    _refuse(spec, arguments)
    return arguments


def _refuse(spec: CaptureSpec, arguments: dict[str, Any]) -> None:
    if spec.mechanism in sglang_runner.HOOKS:
        for name, asks_for_graphs in GRAPH_ARGUMENTS.items():
            if name in spec.engine_args and asks_for_graphs(spec.engine_args[name]):
                raise ProbeError(
                    "E306",
                    f"{name}={spec.engine_args[name]!r}: replayed graphs call no layer hooks",
                    "drop the argument, or use --mechanism native, which survives graphs",
                )
    for name in SPREADING_ARGUMENTS:
        if int(arguments.get(name) or 1) > 1:
            raise ProbeError(
                "E306", f"{name}={arguments[name]}: no rank holds every row of a pass", "use tp_size"
            )
    speculates = arguments.get("speculative_algorithm") and not arguments.get(
        "enable_return_aux_hidden_states"
    )
    if speculates and spec.mechanism != "drafts":
        raise ProbeError(
            "E306",
            "a live draft puts rejected tokens into the passes",
            "capture the target without speculation",
        )
    if os.environ.get("TRITON_INTERPRET") == "1" and arguments["dtype"] == "bfloat16":
        raise ProbeError(
            "E306",
            "bfloat16 under TRITON_INTERPRET gives norms of 1e10 without any error",
            "use float32 or float16, or attention_backend torch_native",
        )
