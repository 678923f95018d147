"""Our own Python in place of what SGLang lacks for EAGLE on a CPU without its kernels: chains of drafts, greedy only.

The scheduler, the workers, the models and the draft loop stay SGLang's. What is put in place here is bookkeeping of cache
slots, the comparison of drafted with greedy tokens, and torch_native attention for passes that it was not written for.
Only an operator that is absent is defined, and every stand-in's name is kept in `placed` for the record.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

placed: list[str] = []
_library: Any = None  # torch forgets operators whose library object is gone


def apply() -> None:
    """Define the absent operators and hook the attention. Runs once, in the process that holds the models."""
    global _library  # noqa: PLW0603
    import sgl_kernel  # noqa: F401  # the operators that it does have are defined first

    _library = torch.library.Library("sgl_kernel", "FRAGMENT")
    for schema, operator in OPERATORS.items():
        name = schema.partition("(")[0]
        if not hasattr(torch.ops.sgl_kernel, name):
            _library.define(f"{schema} -> ()")
            _library.impl(name, operator, "CompositeExplicitAutograd")
            placed.append(f"sgl_kernel.{name}")
    _hook_attention()


def copy_all_layer_kv_cache(
    pointers: torch.Tensor, strides: torch.Tensor, target: torch.Tensor, source: torch.Tensor
) -> None:
    """Copy cache rows of every layer. SGLang tries it out while it makes its cache, and cannot start without it."""
    for pointer, stride in zip(pointers.tolist(), strides.tolist(), strict=True):
        rows = [ctypes.string_at(pointer + row * stride, stride) for row in source.tolist()]
        for row, held in zip(target.tolist(), rows, strict=True):
            ctypes.memmove(pointer + row * stride, held, stride)


def assign_draft_cache_locs_contiguous(
    requests: torch.Tensor,
    table: torch.Tensor,
    lengths: torch.Tensor,
    slots: torch.Tensor,
    _width: int,
    branches: int,
    steps: int,
) -> None:
    """The cache slots that a chain of drafts writes: those behind each request's text."""
    count = branches * steps
    for i, (request, length) in enumerate(zip(requests.tolist(), lengths.tolist(), strict=True)):
        slots[i * count : (i + 1) * count] = table[request, length : length + count]


def assign_extend_cache_locs(
    requests: torch.Tensor,
    table: torch.Tensor,
    starts: torch.Tensor,
    ends: torch.Tensor,
    slots: torch.Tensor,
    _width: int,
) -> None:
    """The cache slots that the target writes when it is shown the drafts."""
    at = 0
    for request, start, end in zip(requests.tolist(), starts.tolist(), ends.tolist(), strict=True):
        slots[at : at + end - start] = table[request, start:end]
        at += end - start


def assign_req_to_token_pool(
    requests: torch.Tensor,
    table: torch.Tensor,
    starts: torch.Tensor,
    ends: torch.Tensor,
    slots: torch.Tensor,
    _width: int,
) -> None:
    """Note freshly allocated cache slots in the table of requests."""
    at = 0
    for request, start, end in zip(requests.tolist(), starts.tolist(), ends.tolist(), strict=True):
        table[request, start:end] = slots[at : at + end - start].to(table.dtype)
        at += end - start


def fill_bonus_tokens(
    accepted: torch.Tensor, lengths: torch.Tensor, bonus: torch.Tensor, stride: int
) -> None:
    """The target's own token: the last one of each request's accepted run."""
    flat = accepted.reshape(-1)
    for i, length in enumerate(lengths.tolist()):
        bonus[i] = flat[stride * i + length - 1]


def build_tree_kernel_efficient(
    _parents: torch.Tensor,
    _chosen: torch.Tensor,
    lengths: torch.Tensor,
    mask: torch.Tensor,
    positions: torch.Tensor,
    own: torch.Tensor,
    following: torch.Tensor,
    sibling: torch.Tensor,
    branches: int,
    _depth: int,
    count: int,
    _mode: int,
) -> None:
    """The tree of drafts, which is a chain: each token's position, index and successor. Attention is causal; no mask."""
    if branches != 1:
        raise NotImplementedError("hsprobe's stand-ins serve chains only: speculative_eagle_topk=1")
    mask.fill_(True)
    nodes = torch.arange(count)
    for i, length in enumerate(lengths.tolist()):
        positions[i * count : (i + 1) * count] = length + nodes
        own.view(-1, count)[i] = i * count + nodes
        following.view(-1, count)[i] = torch.where(nodes + 1 < count, nodes + 1, -1)
        sibling.view(-1, count)[i] = -1


def verify_tree_greedy(
    predicted: torch.Tensor,
    accepted_at: torch.Tensor,
    accepted: torch.Tensor,
    candidates: torch.Tensor,
    _own: torch.Tensor,
    _following: torch.Tensor,
    _sibling: torch.Tensor,
    greedy: torch.Tensor,
) -> None:
    """How many drafts are the target's greedy tokens, from the first on; column 0 of `candidates` is settled text."""
    count = candidates.shape[1]
    for i, (drafted, wanted) in enumerate(zip(candidates.tolist(), greedy.tolist(), strict=True)):
        run = 0
        while run + 1 < count and drafted[run + 1] == wanted[run]:
            run += 1
        accepted[i] = run
        accepted_at[i, : run + 1] = torch.arange(i * count, i * count + run + 1)
        predicted[i * count : i * count + run + 1] = greedy[i, : run + 1].to(predicted.dtype)


# Arguments as sgl_kernel's Python wrappers pass them; (a!) marks what is written.
OPERATORS: dict[str, Callable[..., None]] = {
    "copy_all_layer_kv_cache_cpu(Tensor p, Tensor s, Tensor t, Tensor f)": copy_all_layer_kv_cache,
    "assign_draft_cache_locs_contiguous_cpu(Tensor r, Tensor t, Tensor l, Tensor(a!) o, int w, int k, int n)": (
        assign_draft_cache_locs_contiguous
    ),
    "assign_extend_cache_locs_cpu(Tensor r, Tensor t, Tensor s, Tensor e, Tensor(a!) o, int w)": (
        assign_extend_cache_locs
    ),
    "assign_req_to_token_pool_cpu(Tensor r, Tensor(a!) t, Tensor s, Tensor e, Tensor o, int w)": (
        assign_req_to_token_pool
    ),
    "fill_bonus_tokens_cpu(Tensor t, Tensor l, Tensor(a!) o, int s)": fill_bonus_tokens,
    "build_tree_kernel_efficient_cpu(Tensor p, Tensor c, Tensor l, Tensor(a!) m, Tensor(b!) o, Tensor(c!) i, "
    "Tensor(d!) n, Tensor(e!) s, int k, int d, int w, int mode)": build_tree_kernel_efficient,
    "verify_tree_greedy_cpu(Tensor(a!) p, Tensor(b!) i, Tensor(c!) n, Tensor c, Tensor o, Tensor f, Tensor s, "
    "Tensor g)": verify_tree_greedy,
}


def _hook_attention() -> None:
    """Let torch_native serve the draft, and the target where it is shown drafts: SGLang has it in neither list."""
    from sglang.srt.plugins.hook_registry import HookRegistry, HookType

    def drafting(_original: Any, factory: Any) -> Any:
        if factory.speculative_num_steps <= 1:
            return None  # the one draft comes from the pass over the text
        return _stamped(_chain(factory.draft_model_runner, factory.speculative_num_steps - 1))

    def extending(_original: Any, factory: Any) -> Any:
        from sglang.srt.layers.attention.torch_native_backend import TorchNativeAttnBackend

        return _stamped(TorchNativeAttnBackend(factory.draft_model_runner))

    def attend(
        original: Any, backend: Any, q: Any, k: Any, v: Any, layer: Any, batch: Any, **rest: Any
    ) -> Any:
        if not batch.forward_mode.is_target_verify():
            return original(backend, q, k, v, layer, batch, **rest)
        # A verify pass extends the text by the drafts; SGLang leaves the fields of an extend pass empty in it.
        count, before = batch.spec_info.draft_token_num, batch.seq_lens
        with _with(
            batch,
            seq_lens=before + count,
            extend_prefix_lens=before,
            extend_seq_lens=torch.full_like(before, count),
        ):
            return original(backend, q, k, v, layer, batch, **rest)

    factory = "sglang.srt.speculative.draft_utils.DraftBackendFactory"
    native = "sglang.srt.layers.attention.torch_native_backend.TorchNativeAttnBackend"
    HookRegistry.register(f"{factory}.create_decode_backend", drafting, HookType.AROUND)
    HookRegistry.register(f"{factory}.create_draft_extend_backend", extending, HookType.AROUND)
    HookRegistry.register(f"{native}.forward_extend", attend, HookType.AROUND)
    placed.extend(("torch_native attention of the draft", "torch_native attention of verify passes"))


def _chain(runner: Any, passes: int) -> Any:
    """torch_native for a chain's passes after the first: pass i attends to the text and to i + 1 drafts."""
    from sglang.srt.layers.attention.torch_native_backend import TorchNativeAttnBackend

    class Pass(TorchNativeAttnBackend):
        def __init__(self, drafted: int) -> None:
            super().__init__(runner)
            self.drafted = drafted

        def forward_decode(self, q: Any, k: Any, v: Any, layer: Any, batch: Any, **rest: Any) -> Any:
            with _with(batch, seq_lens=batch.seq_lens + self.drafted):
                return super().forward_decode(q, k, v, layer, batch, **rest)

    class Chain:
        def __init__(self) -> None:
            self.attn_backends = [Pass(i + 1) for i in range(passes)]

        def init_forward_metadata(self, batch: Any) -> None:
            for backend in self.attn_backends:
                backend.init_forward_metadata(batch)

    return Chain()


def _stamped(backend: Any) -> Any:
    """SGLang's factory leaves each backend its name."""
    for one in (backend, *getattr(backend, "attn_backends", ())):
        one.prefill_attention_backend_str = one.decode_attention_backend_str = "torch_native"
    return backend


@contextmanager
def _with(holder: Any, **values: Any) -> Iterator[None]:
    """`holder` with other attributes inside the block."""
    before = {name: getattr(holder, name) for name in values}
    for name, value in values.items():
        setattr(holder, name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            setattr(holder, name, value)
