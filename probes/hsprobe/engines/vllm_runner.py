"""Inside vLLM's worker processes: hooks on the decoder layers, passes opened from the scheduler's data.

Everything hangs on one model runner object, so it holds for whichever runner class the platform chose. Dummy,
profiling and warm-up passes call the model directly, never `_model_forward`, and therefore record nothing.
"""

from __future__ import annotations

import inspect
import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import nn

from .. import stack as stacks
from ..protocol import ProbeError
from ..schema import CaptureSpec, Site
from ..spool import FOLDER, Span, StepRecorder
from . import vllm_facts

ERROR_FILE = "error.json"  # in the spool: what a model process died of, for a driver in another process
NEEDED = ("_model_forward", "execute_model", "load_model", "input_batch", "query_start_loc")


def attach(worker: Any, spec: CaptureSpec, out: Path) -> None:
    """Wrap the model runner that `worker` has just made. Raises E306 for runners of another design."""
    runner = worker.model_runner
    with reported(out):
        if any(not hasattr(runner, name) for name in NEEDED):
            raise ProbeError(
                "E306",
                f"hsprobe hooks vLLM's V1 model runner, not {vllm_facts.class_path(runner)}",
                "leave VLLM_USE_V2_MODEL_RUNNER unset, or set it to 0",
            )
        RunnerProbe(runner, spec, out).wrap()


@contextmanager
def reported(out: Path) -> Iterator[None]:
    """A block whose ProbeError is left in the spool, because only its text would reach another process."""
    try:
        yield
    except ProbeError as error:
        path = out / FOLDER / ERROR_FILE
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_suffix(f".{os.getpid()}.tmp")
        temporary.write_text(json.dumps({"code": error.code, "message": error.message, "help": error.help}))
        os.replace(temporary, path)
        raise


class RunnerProbe:
    """The probe of one model runner. Every tensor-parallel rank has one; rank 0 records."""

    def __init__(self, runner: Any, spec: CaptureSpec, out: Path) -> None:
        from vllm.distributed import get_tensor_model_parallel_rank

        self.runner, self.spec, self.out = runner, spec, out
        self.records = get_tensor_model_parallel_rank() == 0
        self.native = spec.mechanism in ("native", "both")
        self.hooks = spec.mechanism in ("hooks", "both")
        self.recorder = StepRecorder(out)
        self.expected: set[str] = set()  # site keys that every real pass must put
        self.came: set[str] = set()
        self.scheduled: dict[str, int] = {}
        self.rows = 0  # of the open pass, padding included
        self.slots = -1

    def wrap(self) -> None:
        """Replace the runner's methods on the object: load, cache set-up, execute, forward."""
        runner = self.runner
        load, cache = runner.load_model, runner.initialize_kv_cache
        execute, forward = runner.execute_model, runner._model_forward

        def load_model(*args: Any, **kwargs: Any) -> Any:
            with reported(self.out):
                if self.native:
                    self.ask_for_aux()
                try:
                    result = load(*args, **kwargs)
                except RuntimeError as error:
                    if "does not support EAGLE3" not in str(error):
                        raise
                    message = f"vLLM has no auxiliary hidden states for this model: {error}"
                    raise ProbeError("E309", message, "take --mechanism hooks") from error
                self.install(runner.get_model())
                return result

        def initialize_kv_cache(*args: Any, **kwargs: Any) -> Any:
            result = cache(*args, **kwargs)
            if self.records:
                vllm_facts.save_running(self.out, runner)
            return result

        def execute_model(scheduler_output: Any, *args: Any, **kwargs: Any) -> Any:
            self.scheduled = dict(scheduler_output.num_scheduled_tokens)
            with reported(self.out):
                return execute(scheduler_output, *args, **kwargs)

        def model_forward(*args: Any, **kwargs: Any) -> Any:
            if not self.records or not (self.hooks or self.native):
                return forward(*args, **kwargs)
            self.begin(*args, **kwargs)
            try:
                output = forward(*args, **kwargs)
                self.finish(output)
            except BaseException as error:
                self.recorder.abandon()
                if isinstance(error, TypeError) and self.native and 0 in self.spec.native_ids:
                    message = (
                        f"this model cannot hand over id 0, the stream entering its first layer: {error}"
                    )
                    raise ProbeError("E309", message, "leave 0 out, or take --mechanism hooks") from error
                raise
            return output

        runner.load_model, runner.initialize_kv_cache = load_model, initialize_kv_cache
        runner.execute_model, runner._model_forward = execute_model, model_forward

    def ask_for_aux(self) -> None:
        """Make the runner do what it does for an EAGLE-3 draft, with ids as a draft's config gives them.

        Without ids it takes the model's own default, as it does for a draft whose config names none.
        """
        if not hasattr(self.runner, "use_aux_hidden_state_outputs"):
            raise ProbeError("E309", "this vLLM hands no auxiliary hidden states to its model runner")
        self.runner.use_aux_hidden_state_outputs = True
        if self.spec.native_ids:
            self.runner._get_eagle3_aux_layers_from_config = lambda: tuple(self.spec.native_ids)

    def install(self, model: nn.Module) -> None:
        """Find the stack, refuse what cannot be captured rightly, register hooks, leave the facts."""
        config = self.runner.vllm_config
        mode = vllm_facts.mode(config, self.runner.device)
        stack = stacks.find_stack(model, self.runner.model_config.hf_config)
        self.refuse(stack, mode)
        moe = stacks.moe_layers(stack)
        keys = [Site.parse(k) for k in stacks.expand(self.spec.sites, len(stack.layers), moe)]
        # The embedding is a collective under tensor parallelism: every rank runs it.
        stacks.save_embedding(self.out, stack, self.spec, write=self.records)
        if not self.records:
            return
        wanted = [s for s in keys if s.kind == "final_norm" or (self.hooks and s.kind != "prompt_logprobs")]
        self.expected = {s.key for s in wanted}
        self.register(stack, [s for s in wanted if s.kind != "final_norm"])
        stacks.save_norm(self.out, stack)
        aux = getattr(aux_holder(model), "aux_hidden_state_layers", None) if self.native else None
        vllm_facts.save_loaded(self.out, self.runner, stack, moe, aux)

    def refuse(self, stack: stacks.Stack, mode: str) -> None:
        """Raise ProbeError E306 for settings under which rows or layers would be missing or partial."""
        parallel = self.runner.parallel_config
        if self.hooks and mode != "eager":
            raise ProbeError(
                "E306",
                f"layer hooks fall silent in vLLM's {mode} mode",
                "leave enforce_eager at hsprobe's default (true), or take --mechanism native",
            )
        for name, limit in (("pipeline_parallel_size", 1), ("data_parallel_size", 1)):
            if getattr(parallel, name, 1) > limit:
                raise ProbeError(
                    "E306", f"hsprobe does not capture vLLM with {name} > 1", "use tensor parallelism"
                )
        if self.runner.speculative_config is not None:
            raise ProbeError(
                "E306",
                "under speculative decoding a pass holds rejected tokens, whose rows could be taken for accepted ones",
                "leave the draft out: --mechanism native hands over the same states without one",
            )
        if getattr(parallel, "use_ubatching", False):
            raise ProbeError("E306", "dual-batch overlap runs layers in two threads", "turn enable_dbo off")
        if self.hooks and any(getattr(layer, "use_sequence_parallel_moe", False) for layer in stack.layers):
            raise ProbeError(
                "E306",
                "sequence-parallel MoE leaves each rank a part of the rows between layers",
                "turn expert parallelism off, or take --mechanism native, whose rows vLLM gathers",
            )

    def register(self, stack: stacks.Stack, wanted: list[Site]) -> None:
        """Hook the modules that compute `wanted`. Raises ProbeError E306 naming what is absent."""
        for index, layer in enumerate(stack.layers):
            kinds = {s.kind for s in wanted if s.kind in stacks.BOUNDARY_KINDS and s.index == index + 1}
            if kinds:
                layer.register_forward_hook(self.after_layer(index + 1, kinds))
        for site in wanted:
            if site == Site("boundary", 0):
                stack.layers[0].register_forward_pre_hook(
                    self.before_first(stack.layers[0]), with_kwargs=True
                )
            elif site.kind in stacks.LAYER_KINDS:
                parts = stacks.layer_parts(stack.layers[site.index])
                if site.kind == "experts":
                    _router_of(parts.mlp, site).set_capture_fn(self.keep(site.key))
                    continue
                module = {"attn_out": parts.attention, "mlp_out": parts.mlp}.get(site.kind, parts.router)
                if module is None:
                    raise ProbeError(
                        "E306", f"{type(stack.layers[site.index]).__name__} has no module for {site.key}"
                    )
                module.register_forward_hook(self.after_module(site.key))

    def after_layer(self, boundary: int, kinds: set[str]) -> Callable[..., None]:
        def hook(module: nn.Module, args: Any, output: Any) -> None:
            if not self.recorder.recording:
                return
            hidden, residual = stacks.hidden_and_residual(module, output)
            if residual is None and kinds != {"boundary"}:
                raise ProbeError(
                    "E306", f"{type(module).__name__} returns one tensor: hidden and residual are no parts"
                )
            # Summed and copied here: the next layer's fused add-norm writes over both.
            if "boundary" in kinds:
                self.put(Site("boundary", boundary).key, hidden if residual is None else hidden + residual)
            for kind, part in (("hidden", hidden), ("residual", residual)):
                if kind in kinds and part is not None:
                    self.put(Site(kind, boundary).key, part)

        return hook

    def before_first(self, layer: nn.Module) -> Callable[..., None]:
        signature = inspect.signature(layer.forward)  # families order the arguments differently

        def hook(module: nn.Module, args: Any, kwargs: Any) -> None:
            if self.recorder.recording:
                given = signature.bind(*args, **kwargs).arguments
                given_states = [given[k] for k in ("hidden_states", "residual") if given.get(k) is not None]
                hidden, residual = stacks.hidden_and_residual(module, given_states)
                self.put(Site("boundary", 0).key, hidden if residual is None else hidden + residual)

        return hook

    def after_module(self, key: str) -> Callable[..., None]:
        def hook(module: nn.Module, args: Any, output: Any) -> None:
            if self.recorder.recording:
                self.put(key, output[0] if isinstance(output, tuple) else output)

        return hook

    def keep(self, key: str) -> Callable[[torch.Tensor], None]:
        def capture(topk_ids: torch.Tensor) -> None:
            if self.recorder.recording:
                self.put(key, topk_ids.to(torch.int32))

        return capture

    def put(self, key: str, tensor: torch.Tensor) -> None:
        """Record `tensor` [rows, ...]. Raises ProbeError E306 when its rows are not the pass's."""
        if tensor.shape[0] != self.rows:
            raise ProbeError(
                "E306", f"{key} has {tensor.shape[0]} rows in a pass of {self.rows}: they are sharded"
            )
        self.came.add(key)
        self.recorder.put(key, tensor)

    def begin(self, input_ids: Any = None, positions: Any = None, *args: Any, **kwargs: Any) -> None:
        """Open a pass: rows belong to requests by the batch's offsets, checked against the scheduler."""
        runner = self.runner
        requests = list(runner.input_batch.req_ids)
        offsets = runner.query_start_loc.np[: len(requests) + 1].tolist()
        spans = [Span(r, offsets[i], offsets[i + 1]) for i, r in enumerate(requests)]
        if {s.request: s.stop - s.start for s in spans} != self.scheduled:
            raise ProbeError(
                "E304", f"the runner's row offsets {offsets} are not what was scheduled: {self.scheduled}"
            )
        ids = runner.input_ids.gpu if input_ids is None else input_ids
        flat = (
            positions if positions.dim() == 1 else positions[0]
        )  # M-RoPE: text has the same number in all rows
        self.rows, self.came = flat.shape[0], set()
        self.recorder.begin(spans, ids, flat)

    def finish(self, output: Any) -> None:
        """Close a pass. Raises ProbeError E304 when a hook stayed silent, E309 when no native slot came."""
        if self.native:
            if not (isinstance(output, tuple) and len(output) == 2):
                raise ProbeError(
                    "E309", f"none of the ids {list(self.spec.native_ids)} is a layer of this model"
                )
            output, slots = output
            for index, slot in enumerate(slots):
                self.put(Site("slot", index).key, slot)
            if self.slots not in (-1, len(slots)):
                raise ProbeError("E304", f"{len(slots)} native slots in a pass, {self.slots} before")
            if self.slots == -1:
                stacks.save_facts(self.out, native_slots=len(slots))
            self.slots = len(slots)
        if "final_norm" in self.expected:
            self.put("final_norm", output)
        silent = sorted(self.expected - self.came)
        if silent:
            raise ProbeError(
                "E304",
                f"{len(silent)} of {len(self.expected)} sites stayed silent in a real forward pass: "
                + ", ".join(silent[:4])
                + (", …" if len(silent) > 4 else ""),
                "vLLM replayed a compiled or captured model, or a fused kernel skips the module; "
                "--mechanism native survives both",
            )
        self.recorder.end()


def _router_of(mlp: nn.Module | None, site: Site) -> Any:
    for module in mlp.modules() if mlp is not None else ():
        router = getattr(module, "router", None)
        if callable(getattr(router, "set_capture_fn", None)):
            return router
    raise ProbeError(
        "E306", f"no router that tells its choice was found for {site.key}", "leave out the site experts"
    )


def aux_holder(model: nn.Module) -> Any:
    """The module that keeps the aux layer ids, found as vLLM's own setter finds it."""
    find = getattr(model, "get_language_model", None)
    parent: Any = find() if callable(find) else getattr(model, "language_model", model)
    return getattr(parent, "model", parent)
