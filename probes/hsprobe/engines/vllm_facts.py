"""What vLLM's model process knows and the manifest must say: live configuration, mode, backend, machine."""

from __future__ import annotations

import os
import platform
from pathlib import Path
from typing import Any

import torch

from .. import stack as stacks

# Engine argument -> where the live configuration holds what became of it.
LIVE = {
    "block_size": "cache_config.block_size",
    "data_parallel_size": "parallel_config.data_parallel_size",
    "dtype": "model_config.dtype",
    "enable_chunked_prefill": "scheduler_config.enable_chunked_prefill",
    "enable_expert_parallel": "parallel_config.enable_expert_parallel",
    "enable_prefix_caching": "cache_config.enable_prefix_caching",
    "enforce_eager": "model_config.enforce_eager",
    "kv_cache_dtype": "cache_config.cache_dtype",
    "max_model_len": "model_config.max_model_len",
    "max_num_batched_tokens": "scheduler_config.max_num_batched_tokens",
    "max_num_seqs": "scheduler_config.max_num_seqs",
    "pipeline_parallel_size": "parallel_config.pipeline_parallel_size",
    "quantization": "model_config.quantization",
    "seed": "model_config.seed",
    "tensor_parallel_size": "parallel_config.tensor_parallel_size",
}
SETTINGS = {
    "tp": "tensor_parallel_size",
    "pp": "pipeline_parallel_size",
    "block_size": "block_size",
    "chunked_prefill": "enable_chunked_prefill",
    "prefix_caching": "enable_prefix_caching",
    "kv_cache_dtype": "kv_cache_dtype",
    "quantization": "quantization",
    "max_num_batched_tokens": "max_num_batched_tokens",
    "max_num_seqs": "max_num_seqs",
    "max_model_len": "max_model_len",
    "enforce_eager": "enforce_eager",
    "expert_parallel": "enable_expert_parallel",
}
SECRET = ("KEY", "TOKEN", "SECRET", "PASSWORD")


def mode(config: Any, device: torch.device) -> str:
    """ "eager", "compiled" (torch.compile alone) or "graphs" (CUDA graphs are replayed)."""
    compilation = config.compilation_config
    graphs = getattr(compilation, "cudagraph_mode", None)
    if device.type != "cpu" and getattr(graphs, "name", "NONE") != "NONE":
        return "graphs"
    return "eager" if int(compilation.mode or 0) == 0 else "compiled"


def save_loaded(out: Path, runner: Any, stack: stacks.Stack, moe: tuple[int, ...], aux: Any) -> None:
    """Leave what is known once the weights are loaded."""
    config = runner.model_config
    stacks.save_facts(
        out,
        architecture=type(runner.get_model()).__name__,
        num_layers=len(stack.layers),
        hidden_size=int(config.get_hidden_size()),
        dtype=str(config.dtype).removeprefix("torch."),
        mode=mode(runner.vllm_config, runner.device),
        stack=stack.path,
        moe_layers=list(moe),
        runner=class_path(runner),
        stream_scale=_stream_scale(stack, config),
        aux_layers=None if aux is None else list(aux),
        environment=environment(runner.device),
        model_config=config.hf_config.to_dict(),
    )


def save_running(out: Path, runner: Any) -> None:
    """Leave what is known once the KV cache and attention backends are set up: the settings that apply."""
    config = runner.vllm_config
    backends = sorted({group.backend.get_name() for groups in runner.attn_groups for group in groups})
    live = {name: _plain(_reach(config, path)) for name, path in LIVE.items()}
    stacks.save_facts(
        out,
        live=live,
        attention_backend=", ".join(backends),
        async_scheduling=bool(getattr(config.scheduler_config, "async_scheduling", False)),
        env={
            name: value
            for name, value in sorted(os.environ.items())
            if name.startswith("VLLM_")
            and name != "VLLM_DIST_IDENT"
            and not any(word in name for word in SECRET)
        },
    )


def environment(device: torch.device) -> dict[str, str]:
    """The machine and the versions, as strings."""
    import transformers
    import vllm

    facts = {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "vllm": vllm.__version__,
        "transformers": transformers.__version__,
        "device": device.type,
        "threads": str(torch.get_num_threads()),
    }
    if device.type == "cuda":
        facts |= {"device": torch.cuda.get_device_name(device), "cuda": str(torch.version.cuda)}
    else:
        facts["cpu_capability"] = torch.backends.cpu.get_cpu_capability()
    return facts


def class_path(value: Any) -> str:
    return f"{type(value).__module__}.{type(value).__name__}"


def _stream_scale(stack: stacks.Stack, config: Any) -> float | None:
    """What vLLM's DeepSeek multiplies the stream by in float16, None where it leaves it alone."""
    factor = getattr(stack.layers[0], "routed_scaling_factor", 1.0)
    if config.dtype != torch.float16 or type(stack.layers[0]).__name__ != "DeepseekV2DecoderLayer":
        return None
    return None if factor == 1.0 else 1.0 / factor


def _reach(config: Any, path: str) -> Any:
    for name in path.split("."):
        config = getattr(config, name, None)
    return config


def _plain(value: Any) -> Any:
    """JSON for a configuration value."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    return str(getattr(value, "value", value)).removeprefix("torch.")
