"""vLLM's hidden-state connectors without CUDA: the stock ones copy through pinned memory and a stream.

Runs in vLLM's own interpreter, named by `kv_connector_module_path`. What is asked of a request, when a lock is taken
and what is written stay vLLM's and hs_connectors' own code.
"""

from __future__ import annotations

import fcntl
import os
import sys
from functools import partial
from pathlib import Path

import torch
from vllm.distributed.kv_transfer.kv_connector.v1.example_hidden_states_connector import (
    ExampleHiddenStatesConnector,
    PendingSave,
    extract_from_kv_cache,
)

# hs_connectors lives in the environment of speculators; last on the path, vLLM's own packages win over its others.
if (beside := os.environ.get("HS_CONNECTORS_SITE")) and beside not in sys.path:
    sys.path.append(beside)


class Done:
    """Stands in for a CUDA event: a copy made on the CPU is complete when it returns."""

    def query(self) -> bool:
        return True

    def synchronize(self) -> None:
        return None


class CpuHiddenStatesConnector(ExampleHiddenStatesConnector):
    """Takes a request's rows out of the cache at once, then writes them as the stock connector does."""

    def _submit_async_write(self, pending: PendingSave) -> None:
        if not self._is_tp_rank_zero:
            return
        blocks = torch.tensor(pending.block_ids, dtype=torch.long)
        offsets = torch.arange(self._block_size, dtype=torch.long)
        slots = (blocks[:, None] * self._block_size + offsets).flatten()
        states_tnh = extract_from_kv_cache(self._kv_cache, slots, pending.token_ids.shape[0])
        tensors = {
            "hidden_states": states_tnh.cpu().clone(memory_format=torch.contiguous_format),
            "token_ids": pending.token_ids.clone(),
        }
        file = Path(pending.filename)
        file.parent.mkdir(parents=True, exist_ok=True)
        lock = self._lock_fds.pop(pending.req_id, None)
        if lock is None and self.use_lock:
            lock = os.open(f"{file}.lock", os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o644)
            fcntl.flock(lock, fcntl.LOCK_EX)
        written = self._executor.submit(self._write_tensors, tensors, Done(), str(file), lock)
        self._req_copy_events[pending.req_id] = Done()
        self._req_futures[pending.req_id] = written
        written.add_done_callback(partial(self._on_write_done, pending.req_id))


if beside:
    from hs_connectors.fp8_hidden_states_connector import FP8HiddenStatesConnector

    class CpuFP8HiddenStatesConnector(CpuHiddenStatesConnector, FP8HiddenStatesConnector):
        """hs_connectors' own quantising write behind the CPU's way out of the cache."""
