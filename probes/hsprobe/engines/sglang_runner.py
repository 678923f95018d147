"""The half of the SGLang probe in the scheduler process: one recorded pass per forward of the model."""

from __future__ import annotations

import json
import os
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from ..protocol import ProbeError
from ..schema import CaptureSpec, Site
from ..spool import FOLDER, Span, StepRecorder
from ..stack import expand, find_stack, moe_layers, save_embedding, save_facts, save_norm
from .sglang_hooks import LayerHooks

REQUEST_PREFIX = "hsprobe-"  # requests of anybody else (health checks, warm-up) are not recorded
ERROR_FILE = "engine.error"  # in spool/: why the model process failed, for the driver
TRIED = "0.5.23"
HOOKS, NATIVE = ("hooks", "both"), ("native", "both")  # mechanisms

# Where the engine itself refuses or miscounts a native id: its own message is the answer to give.
NATIVE_ID_FRAMES = (
    "_check_capture_layer_ids_in_range",
    "set_eagle3_layers_to_capture",
    "_check_aux_hidden_states",
    "finalize",
)


def install(spec: CaptureSpec, out: Path) -> None:
    """Register the probe with SGLang's hook registry; it acts in the process that loads the model."""
    from sglang.srt.plugins.hook_registry import HookRegistry, HookType

    def loaded(original: Callable[..., Any], runner: Any, *args: Any, **kwargs: Any) -> Any:
        result = original(runner, *args, **kwargs)
        if not getattr(runner, "is_draft_worker", False):
            runner.hsprobe = ModelProbe(spec, out, runner)
        return result

    def ready(original: Callable[..., Any], runner: Any, *args: Any, **kwargs: Any) -> Any:
        result = original(runner, *args, **kwargs)
        if probe := getattr(runner, "hsprobe", None):
            probe.save_run_facts()
        return result

    def forward(original: Callable[..., Any], runner: Any, batch: Any, *args: Any, **kwargs: Any) -> Any:
        probe = getattr(runner, "hsprobe", None)
        if probe is None or not probe.begin(batch):
            return original(runner, batch, *args, **kwargs)
        try:
            output = original(runner, batch, *args, **kwargs)
            probe.end(output)
        finally:
            probe.close_pass()
        return output

    def sample(original: Callable[..., Any], runner: Any, logits: Any, batch: Any, *args: Any) -> Any:
        chosen = original(runner, logits, batch, *args)
        probe = getattr(runner, "hsprobe", None)
        return chosen if probe is None else probe.force(chosen, batch)

    def guarded(original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        try:
            return original(*args, **kwargs)
        except Exception as error:
            leave_error(spec, out, error)
            raise

    runner = "sglang.srt.model_executor.model_runner.ModelRunner"
    scheduler = "sglang.srt.managers.scheduler.Scheduler"
    HookRegistry.register(f"{runner}.load_model", loaded, HookType.AROUND)
    HookRegistry.register(f"{runner}.init_cuda_graphs", ready, HookType.AROUND)
    if spec.mechanism not in ("none", "drafts"):
        HookRegistry.register(f"{runner}.forward", forward, HookType.AROUND)
    if any(p.forced for p in spec.prompts):
        HookRegistry.register(f"{runner}.sample", sample, HookType.AROUND)
    HookRegistry.register(f"{scheduler}.__init__", guarded, HookType.AROUND)
    HookRegistry.register(f"{scheduler}.run_event_loop", guarded, HookType.AROUND)


def leave_error(spec: CaptureSpec, out: Path, error: Exception) -> None:
    """Write why the model process fails to spool/engine.error; SGLang tells its parent only that it did."""
    path = out / FOLDER / ERROR_FILE
    if path.exists():  # other ranks fail after the first, for reasons of their own
        return
    frames = [frame.name for frame in traceback.extract_tb(error.__traceback__)]
    if isinstance(error, ProbeError):
        reason = {"code": error.code, "message": error.message, "help": error.help}
    elif spec.mechanism in NATIVE and any(name in NATIVE_ID_FRAMES for name in frames):
        reason = {
            "code": "E306",
            "message": f"SGLang cannot hand over these native ids: {error or type(error).__name__}",
            "help": "most families cannot give their last layer's output; try smaller ids",
        }
    else:
        reason = {"code": "E303", "message": f"SGLang failed: {type(error).__name__}: {error}", "help": ""}
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(f".{os.getpid()}")
    temporary.write_text(json.dumps(reason))
    os.replace(temporary, path)


class ModelProbe:
    """One model's hooks and recorder. Every rank runs them, for snapshots are collective; rank 0 writes."""

    def __init__(self, spec: CaptureSpec, out: Path, runner: Any) -> None:
        self.spec, self.out, self.runner = spec, out, runner
        self.rank, self.ranks = rank_of(runner)
        self.recorder = StepRecorder(out, self.rank)
        self.active = False  # inside a pass that is recorded
        self.rows = 0
        self.got: set[str] = set()
        self.calls: dict[str, int] = {}
        self.graph_passes = 0
        self.forced = {p.id: (len(p.token_ids), p.forced) for p in spec.prompts if p.forced}
        config = runner.model_config.hf_text_config
        self.stack = find_stack(runner.model, runner.model_config.hf_config)
        self.sites: tuple[str, ...] = ()
        moe = moe_layers(self.stack)
        if spec.mechanism in HOOKS:
            keys = expand(spec.sites, len(self.stack.layers), moe)
            self.sites = tuple(key for key in keys if key != "prompt_logprobs")
            LayerHooks(self, self.stack, config, self.sites).install()
        save_embedding(out, self.stack, spec, write=self.rank == 0)
        if self.rank == 0:
            save_norm(out, self.stack)
            save_facts(
                out,
                num_layers=len(self.stack.layers),
                hidden_size=int(config.hidden_size),
                architecture=type(runner.model).__name__,
                dtype=str(runner.model_config.dtype).removeprefix("torch."),
                model_config=_plain(config.to_dict()),
                moe_layers=list(moe),
                warnings=_warnings(spec, type(runner.model).__name__),
            )

    def save_run_facts(self) -> None:
        """Leave what is known once backends and graphs are set up: mode, backends, native layers."""
        if self.rank:
            return
        runner, inner = self.runner, self.stack.inner
        graph_runners = [getattr(runner, f"{p}_cuda_graph_runner", None) for p in ("prefill", "decode")]
        graphs = [
            type(r).__name__ for r in graph_runners if r is not None and "Eager" not in type(r).__name__
        ]
        save_facts(
            self.out,
            mode="graphs" if graphs else "eager",
            graph_runners=graphs,
            attention_backend=getattr(runner, "prefill_attention_backend_str", ""),
            decode_attention_backend=getattr(runner, "decode_attention_backend_str", ""),
            kv_cache_dtype=str(getattr(runner, "kv_cache_dtype", "")).removeprefix("torch."),
            layers_to_capture=[int(i) for i in getattr(inner, "layers_to_capture", None) or ()],
        )

    def begin(self, batch: Any) -> bool:
        """Open a pass for the rows of our own requests; False for idle, dummy, warm-up and foreign passes."""
        spans = pass_spans(batch)
        if not any(s.request.startswith(REQUEST_PREFIX) for s in spans):
            return False
        self.rows = max(s.stop for s in spans)
        if self.rank == 0:
            self.recorder.begin(spans, batch.input_ids, batch.positions)
        self.got, self.active = set(), True
        return True

    def put(self, key: str, tensor: torch.Tensor) -> None:
        """Record `tensor` [>= rows, ...]. Raises ProbeError E306 when its rows are spread over ranks."""
        if tensor.shape[0] < self.rows:
            raise ProbeError(
                "E306",
                f"SGLang gives {tensor.shape[0]} of {self.rows} rows at {key}: they are spread over ranks",
                "capture without data-parallel attention, sequence or context parallelism",
            )
        self.got.add(key)
        self.calls[key] = self.calls.get(key, 0) + 1
        if self.rank == 0:
            self.recorder.put(key, tensor)

    def end(self, output: Any) -> None:
        """Take the native slots, check that nothing stayed silent, write the pass.

        Raises ProbeError E304 when a hook was not called, E309 when the engine handed nothing over.
        """
        self.graph_passes += bool(getattr(output, "can_run_graph", False))
        if self.spec.mechanism in NATIVE:
            self._take_native(output.logits_output)
        if silent := [key for key in self.sites if key not in self.got]:
            graph = "the engine replayed a captured graph" if output.can_run_graph else "the pass ran eagerly"
            raise ProbeError(
                "E304",
                f"{len(silent)} of {len(self.sites)} hooks stayed silent, {silent[0]} first ({graph})",
                "disable graphs and compilation for --mechanism hooks, or use --mechanism native",
            )
        if self.rank == 0:
            self.recorder.end()
            if self.recorder.steps == 1 or self.graph_passes == 1:
                mode = {"mode": "graphs"} if self.graph_passes else {}
                save_facts(self.out, calls=self.calls, **mode)

    def close_pass(self) -> None:
        """Leave the pass, finished or failed."""
        self.active = False
        self.recorder.abandon()

    def force(self, chosen: torch.Tensor, batch: Any) -> torch.Tensor:
        """The sampled tokens [requests] with the spec's forced tokens in their place."""
        for row, request in enumerate(batch.rids or ()):
            prefill, forced = self.forced.get(prompt_of(request), (0, ()))
            step = int(batch.seq_lens[row]) - prefill
            if 0 <= step < len(forced):
                chosen[row] = forced[step]
        return chosen

    def _take_native(self, logits: Any) -> None:
        aux_nk = getattr(logits, "hidden_states", None)
        hidden = int(self.runner.model_config.hf_text_config.hidden_size)
        wanted = len(self.spec.native_ids)
        if aux_nk is None or aux_nk.shape[-1] % hidden or (wanted and aux_nk.shape[-1] != wanted * hidden):
            got = "nothing" if aux_nk is None else f"{aux_nk.shape[-1]} columns"
            raise ProbeError(
                "E309", f"SGLang handed over {got} where {wanted} x {hidden} auxiliary columns were expected"
            )
        for slot, part_nh in enumerate(aux_nk.split(hidden, dim=-1)):
            self.put(Site("slot", slot).key, part_nh)


def pass_spans(batch: Any) -> list[Span]:
    """The rows of a ForwardBatch per request, from its own lengths; empty for passes of no request."""
    rids, mode = getattr(batch, "rids", None), batch.forward_mode
    if not rids or mode.is_idle():
        return []
    lengths = [1] * len(rids) if mode.is_decode() else [int(n) for n in batch.extend_seq_lens_cpu or ()]
    if len(lengths) != len(rids):
        raise ProbeError(
            "E306", f"a pass of {len(rids)} requests in mode {mode.name} gives {len(lengths)} lengths"
        )
    spans, start = [], 0
    for rid, length in zip(rids, lengths, strict=True):
        spans.append(Span(rid, start, start + length))
        start += length
    return spans


def request_id(number: int, prompt: str) -> str:
    """The id that `prompt`'s request carries through the engine."""
    return f"{REQUEST_PREFIX}{number}-{prompt}"


def prompt_of(request: str) -> str:
    """The prompt id inside a request id."""
    return request.removeprefix(REQUEST_PREFIX).partition("-")[2]


def rank_of(runner: Any) -> tuple[int, int]:
    """A model runner's tensor-parallel rank, and how many there are."""
    try:
        from sglang.srt.runtime_context import get_parallel
    except ImportError:  # before 0.5.2x the runner holds them
        return int(runner.tp_rank), int(runner.tp_size)
    return int(get_parallel().tp_rank), int(get_parallel().tp_size)


def _warnings(spec: CaptureSpec, architecture: str) -> list[str]:
    if spec.mechanism in NATIVE and architecture.startswith("Gemma3"):
        return ["SGLang 0.5.17 to 0.5.23 hands over Gemma3's branch output under a native id, not its stream"]
    return []


def _plain(value: Any) -> Any:
    """`value` as JSON would hold it."""
    return json.loads(json.dumps(value, default=str))
