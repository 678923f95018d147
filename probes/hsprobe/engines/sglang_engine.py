"""SGLang: hooks on the residual stream and the native auxiliary states, through its plugin entry point."""

from __future__ import annotations

import contextlib
import gc
import importlib.metadata
import json
import os
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch

from .. import __version__
from ..protocol import Completion, EngineInfo, ProbeError, from_environment
from ..schema import CaptureSpec, PromptSpec, Site
from ..spool import FOLDER
from ..stack import FACTS_FILE, load_facts
from . import sglang_arguments, sglang_runner, sglang_shims, sglang_verify

NAME = "sglang"
PLUGIN_GROUP = "sglang.srt.plugins"
TOP_LOGPROBS = 5
DISTRIBUTIONS = (
    "sglang",
    "sglang-kernel",
    "flashinfer_python",
    "transformers",
    "triton",
)  # whose versions matter

_installed = False


def plugin() -> None:
    """Entry point in every SGLang process: inert without a spec in the environment, and idempotent."""
    global _installed  # noqa: PLW0603
    asked = from_environment()
    if asked is None or asked[0].engine != NAME or _installed:
        return
    _installed = True
    spec, out = asked
    _write_started(out)
    if "sglang.srt.managers.scheduler" not in sys.modules:
        return  # the detokenizer; hooking there would only import the whole engine
    sglang_shims.apply(sglang_shims.requested())
    sglang_runner.install(spec, out)
    if spec.mechanism == "drafts":
        sglang_verify.install(out)

    from sglang.srt.plugins.hook_registry import HookRegistry, HookType

    # Once requests run, a dying child makes SGLang kill this whole process; the driver reports it instead.
    target = "sglang.srt.managers.tokenizer_manager.SignalHandler.running_phase_sigquit_handler"
    HookRegistry.register(target, _child_failed_running, HookType.AROUND)


def load(spec: CaptureSpec, out: Path) -> SglangEngine:
    """Start SGLang on `spec.model`.

    Raises ProbeError E301 where SGLang is not importable, E302 when the plugin did not reach the model, E303
    when the engine dies, E306 when it cannot do what the spec asks.
    """
    arguments = sglang_arguments.engine_arguments(spec)
    for name in (sglang_runner.ERROR_FILE, FACTS_FILE):
        (out / FOLDER / name).unlink(missing_ok=True)
    if arguments["device"] == "cpu":
        os.environ.setdefault("SGLANG_USE_CPU_ENGINE", "1")
        if int(arguments.get("tp_size") or 1) > 1:
            sglang_shims.prepare_cpu_ranks(int(arguments["tp_size"]))
        if spec.mechanism == "drafts":
            sglang_shims.need(sglang_shims.CPU_DRAFTS)
    try:
        import sglang
    except ModuleNotFoundError as error:
        raise ProbeError(
            "E301", f"SGLang cannot be imported here: {error}", "hsparity engines install sglang"
        ) from error
    except (ImportError, OSError) as error:
        raise ProbeError("E303", f"SGLang fails at import: {error}") from error
    with _failures(out):
        engine = sglang.Engine(**arguments, custom_sigquit_handler=child_failed)
    if not load_facts(out):
        engine.shutdown()
        raise ProbeError(
            "E302",
            f"SGLang {sglang.__version__} loaded the model without calling the probe's hooks",
            f"tried with {sglang_runner.TRIED}; SGLANG_PLUGINS must not leave hsprobe out",
        )
    return SglangEngine(spec, out, engine, arguments)


def child_failed(signum: int, frame: Any) -> None:
    """SIGQUIT handler while SGLang starts: one of its processes failed. Raises ProbeError E303."""
    raise ProbeError("E303", "a process of SGLang died while starting", "see the end of engine.log")


class _ChildFailed(SystemExit):
    """Leaves asyncio's loop, which swallows other exceptions from signal callbacks."""


def _child_failed_running(original: Any, *args: Any, **kwargs: Any) -> None:
    raise _ChildFailed(1)


class SglangEngine:
    """One running SGLang engine, its model in another process; rows arrive in the spool."""

    def __init__(self, spec: CaptureSpec, out: Path, engine: Any, arguments: dict[str, Any]) -> None:
        self.spec, self.out, self.engine, self.arguments = spec, out, engine, arguments
        self.sent = 0

    def info(self) -> EngineInfo:
        """What the manifest says; `mode` is "graphs" as soon as any pass could replay one."""
        facts = load_facts(self.out)
        return EngineInfo(
            version=_version("sglang"),
            architecture=facts["architecture"],
            num_layers=facts["num_layers"],
            hidden_size=facts["hidden_size"],
            dtype=facts["dtype"],
            settings=self._settings(facts),
            environment={name: version for name in DISTRIBUTIONS if (version := _version(name))},
            native_labels=self._native_labels(),
            norm_eps=facts.get("norm_eps"),
            norm_plus_one=bool(facts.get("norm_plus_one", False)),
            model_config=facts["model_config"],
            warnings=tuple(facts.get("warnings", ())),
        )

    def generate(self, prompts: Sequence[PromptSpec]) -> list[Completion]:
        """Run `prompts` as one batch. Raises ProbeError with the model process's own reason when it fails."""
        return [completion for completion, _ in self.answers(prompts)]

    def answers(self, prompts: Sequence[PromptSpec]) -> list[tuple[Completion, dict[str, Any]]]:
        """As `generate`, each with SGLang's own meta_info."""
        requests = [sglang_runner.request_id(self.sent + i, p.id) for i, p in enumerate(prompts)]
        self.sent += len(prompts)
        logprobs = "prompt_logprobs" in self.spec.sites
        with _failures(self.out):
            answers = self.engine.generate(
                input_ids=[list(p.token_ids) for p in prompts],
                rid=requests,
                # SGLang's prefill always samples one token; without --generate it is dropped.
                sampling_params={
                    "temperature": 0,
                    "ignore_eos": not self.spec.stop_ids,  # it would hide them too
                    "stop_token_ids": list(self.spec.stop_ids) or None,
                    "max_new_tokens": max(self.spec.generate, 1),
                },
                return_logprob=logprobs,
                logprob_start_len=0 if logprobs else -1,
                top_logprobs_num=TOP_LOGPROBS if logprobs else 0,
            )
        return [
            (self._completion(p, r, a), a["meta_info"])
            for p, r, a in zip(prompts, requests, answers, strict=True)
        ]

    def close(self) -> None:
        """Stop SGLang and wait for its processes."""
        self.engine.shutdown()

    def _completion(self, prompt: PromptSpec, request: str, answer: dict[str, Any]) -> Completion:
        meta = answer["meta_info"]
        chosen = (meta.get("input_token_logprobs") or [])[1:]  # the first token has no prediction
        top = (meta.get("input_top_logprobs") or [])[1:]
        return Completion(
            prompt=prompt.id,
            request=request,
            generated=tuple(answer["output_ids"][: self.spec.generate]),
            cached_tokens=int(meta.get("cached_tokens") or 0),
            logprob_ids=tuple(
                (int(c[1]), *(int(t[1]) for t in row)) for c, row in zip(chosen, top, strict=True)
            ),
            logprobs=tuple(
                (float(c[0]), *(float(t[0]) for t in row)) for c, row in zip(chosen, top, strict=True)
            ),
        )

    def _settings(self, facts: dict[str, Any]) -> dict[str, Any]:
        resolved = self.engine.server_args.resolved_dict()
        chunk = int(resolved.get("chunked_prefill_size") or -1)
        return {
            "mode": "compiled" if resolved.get("enable_torch_compile") else facts["mode"],
            "graph_runners": facts.get("graph_runners", []),
            "native_layers_to_capture": facts.get("layers_to_capture", []),
            "tp": int(resolved.get("tp_size") or 1),
            "pp": int(resolved.get("pp_size") or 1),
            "attention_backend": facts.get("attention_backend") or resolved.get("attention_backend"),
            "decode_attention_backend": facts.get("decode_attention_backend", ""),
            "chunked_prefill": chunk > 0,
            "chunked_prefill_size": chunk,
            "prefix_cache": not resolved.get("disable_radix_cache"),
            "overlap_schedule": not resolved.get("disable_overlap_schedule"),
            "quantization": resolved.get("quantization") or "",
            "kv_cache_dtype": facts.get("kv_cache_dtype") or str(resolved.get("kv_cache_dtype")),
            "max_running_requests": resolved.get("max_running_requests"),
            "not_applied": _not_applied(self.spec.engine_args, resolved, facts["mode"]),
        }

    def _native_labels(self) -> dict[str, str]:
        if self.spec.mechanism not in sglang_runner.NATIVE:
            return {}
        ids = ",".join(str(i) for i in self.spec.native_ids)
        return {
            Site("slot", slot).key: f"return_aux_hidden_state_layer_ids[{slot}] of {ids}"
            for slot in range(len(self.spec.native_ids))
        } or {Site("slot", slot).key: f"EAGLE3 default [{slot}]" for slot in range(3)}


def _not_applied(asked: dict[str, Any], resolved: dict[str, Any], mode: str) -> dict[str, Any]:
    """The arguments that SGLang took and then changed: name -> asked, applied."""
    changed = {n: {"asked": v, "applied": resolved[n]} for n, v in asked.items() if resolved.get(n, v) != v}
    if mode == "eager":  # torch_native drops graphs and leaves the argument as it was
        graphs = {
            n: v
            for n, v in asked.items()
            if n in sglang_arguments.GRAPH_ARGUMENTS and sglang_arguments.GRAPH_ARGUMENTS[n](v)
        }
        changed |= {name: {"asked": value, "applied": "eager"} for name, value in graphs.items()}
    return changed


@contextlib.contextmanager
def _failures(out: Path) -> Iterator[None]:
    """Turn what SGLang raises into a ProbeError with the model process's reason; leave no process behind."""
    try:
        yield
    except (Exception, _ChildFailed) as error:
        signal.signal(signal.SIGQUIT, signal.SIG_IGN)  # dying children signal more than once
        reason = _reason(out, error)
        _abandon()
        raise reason from error


def _reason(out: Path, error: BaseException) -> ProbeError:
    path = out / FOLDER / sglang_runner.ERROR_FILE
    if path.exists():
        left = json.loads(path.read_text())
        return ProbeError(left["code"], left["message"], left["help"])
    if isinstance(error, ProbeError):
        return error
    if isinstance(error, _ChildFailed):
        return ProbeError("E303", "a process of SGLang died while running", "see the end of engine.log")
    if isinstance(error, (ValueError, TypeError)):  # SGLang's own checks of its arguments and requests
        return ProbeError("E306", f"SGLang refuses: {error}")
    return ProbeError("E303", f"SGLang failed: {type(error).__name__}: {error}", "see the end of engine.log")


def _abandon() -> None:
    """Kill SGLang's processes and close its sockets: unsent messages would hold this process for ever."""
    from sglang.srt.utils import kill_process_tree

    kill_process_tree(os.getpid(), include_parent=False)
    if zmq := sys.modules.get("zmq"):
        for context in [o for o in gc.get_objects() if issubclass(type(o), zmq.Context)]:
            context.destroy(linger=0)


def _write_started(out: Path) -> None:
    out.mkdir(parents=True, exist_ok=True)
    started = {
        "pid": os.getpid(),
        "time": time.time(),
        "versions": {"hsprobe": __version__, "sglang": _version("sglang"), "torch": str(torch.__version__)},
    }
    temporary = out / f"probe.started.{os.getpid()}"
    temporary.write_text(json.dumps(started))
    os.replace(temporary, out / "probe.started")


def _version(distribution: str) -> str:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return ""
