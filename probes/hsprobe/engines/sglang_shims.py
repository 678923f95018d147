"""Changes to SGLang that a machine without a GPU needs, each applied only when the launcher names it."""

from __future__ import annotations

import os
from typing import Any

from ..protocol import SHIMS_ENV, ProbeError
from . import sglang_eagle_shims

CPU_RANKS = "cpu-tensor-parallel"
CPU_DRAFTS = "cpu-eagle"
LAUNCHER_SHIMS = ("libcuda-stub",)  # the launcher's own business: LD_LIBRARY_PATH


def requested() -> tuple[str, ...]:
    """The shims that the launcher put around this engine, in its order."""
    return tuple(name for name in os.environ.get(SHIMS_ENV, "").split(",") if name)


def need(name: str) -> None:
    """Name a shim in the environment of the processes that SGLang starts."""
    if name not in requested():
        os.environ[SHIMS_ENV] = ",".join((*requested(), name))


def prepare_cpu_ranks(ranks: int) -> None:
    """Let `ranks` processes share this machine's cores, and name the shim they need in the environment."""
    need(CPU_RANKS)
    cores = sorted(os.sched_getaffinity(0))
    shares = [cores[rank::ranks] or cores for rank in range(ranks)]
    binding = "|".join(",".join(str(core) for core in share) for share in shares)
    os.environ.setdefault("SGLANG_CPU_OMP_THREADS_BIND", binding)  # else SGLang wants a NUMA node per rank


def apply(names: tuple[str, ...]) -> None:
    """Apply the named shims. Raises ProbeError E306 for one that does not exist."""
    for name in names:
        if name in LAUNCHER_SHIMS:
            continue
        if name not in SHIMS:
            known = ", ".join((*LAUNCHER_SHIMS, *SHIMS))
            raise ProbeError("E306", f"SGLang has no shim {name!r}", f"these exist: {known}")
        SHIMS[name]()


def _absorb_mla() -> None:
    """torch_native has no multi-head prefill path for MLA; the absorbed form computes the same attention."""
    from sglang.srt.models.deepseek_common import attention_backend_handler as handler

    def absorbed(attention: Any, forward_batch: Any) -> Any:
        return handler.AttnForwardMethod.MLA

    handler.AttentionBackendRegistry.register("torch_native", absorbed)
    handler.AttentionBackendRegistry.register("triton", absorbed)


def _disable_pynccl() -> None:
    """Tensor parallelism without a GPU: PyNccl insists on a CUDA device, gloo does the same sums."""
    from sglang.srt.plugins.hook_registry import HookRegistry, HookType

    def disabled(original: Any, communicator: Any, *args: Any, **kwargs: Any) -> None:
        communicator.available, communicator.disabled, communicator.world_size = False, True, 1

    target = "sglang.srt.distributed.device_communicators.pynccl.PyNcclCommunicator.__init__"
    HookRegistry.register(target, disabled, HookType.AROUND)


SHIMS = {"mla-absorb": _absorb_mla, CPU_RANKS: _disable_pynccl, CPU_DRAFTS: sglang_eagle_shims.apply}
