"""vLLM: the plugin that reaches its worker processes, and the driver that loads it and submits prompts."""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .. import spool
from .. import stack as stacks
from ..protocol import Completion, EngineInfo, ProbeError, from_environment
from ..schema import CaptureSpec, PromptSpec
from ..spool import FOLDER
from . import vllm_facts, vllm_forced, vllm_verify
from .vllm_runner import ERROR_FILE, attach

NAME = "vllm"
PLUGIN_GROUP = "vllm.general_plugins"
STARTED_FILE = "probe.started"
TOP_LOGPROBS = 5


def plugin() -> None:
    """vLLM's entry point, run in every one of its processes. Inert without a spec for vLLM."""
    asked = from_environment()
    if asked is None or asked[0].engine != NAME:
        return
    spec, out = asked
    started = {
        "pid": os.getpid(),
        "time": time.time(),
        "python": platform.python_version(),
        "vllm": _version("vllm"),
        "torch": _version("torch"),
    }
    temporary = out / f"{STARTED_FILE}.{os.getpid()}"
    temporary.write_text(json.dumps(started))
    os.replace(temporary, out / STARTED_FILE)
    from vllm.v1.worker.worker_base import WorkerWrapperBase

    if hasattr(WorkerWrapperBase, "_hsprobe"):
        return
    original = WorkerWrapperBase.init_device

    def init_device(self: Any) -> None:
        original(self)
        (vllm_verify.attach if spec.mechanism == "drafts" else attach)(self.worker, spec, out)

    # The worker has made its model runner here, whatever its class, and not yet loaded the weights.
    WorkerWrapperBase.init_device = init_device
    WorkerWrapperBase._hsprobe = True


def load(spec: CaptureSpec, out: Path) -> VllmEngine:
    """Start vLLM with the probe in it. Raises ProbeError E302, E303, E306, E307 or E309."""
    for name in (ERROR_FILE, stacks.FACTS_FILE):
        (out / FOLDER / name).unlink(missing_ok=True)
    if os.environ.setdefault("VLLM_USE_V2_MODEL_RUNNER", "0") not in ("0", "false", "False"):
        raise ProbeError(
            "E306", "hsprobe hooks vLLM's V1 model runner only", "unset VLLM_USE_V2_MODEL_RUNNER"
        )
    # One process less to start, and to be left behind; an environment that says otherwise is obeyed.
    os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
    from vllm import LLM
    from vllm.platforms import current_platform

    arguments = engine_arguments(spec)
    if current_platform.is_cpu():
        os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", _kv_cache_gib(arguments))
    try:
        llm = LLM(**arguments)
    except Exception as error:
        raise _failure(out, error, "vLLM did not load the model", _load_help(arguments)) from error
    if not stacks.load_facts(out):
        raise ProbeError(
            "E302",
            "vLLM loaded the model without the probe in it",
            "VLLM_PLUGINS, if set, has to name hsprobe",
        )
    engine = VllmEngine(llm, spec, out)
    if spec.mechanism in ("native", "both"):
        engine.count_slots()
    return engine


def engine_arguments(spec: CaptureSpec) -> dict[str, Any]:
    """vllm.LLM's arguments: hsprobe's defaults, overridden by what the user passes through."""
    longest = max((len(p.token_ids) + max(spec.generate, len(p.forced), 1) for p in spec.prompts), default=1)
    arguments: dict[str, Any] = {
        "model": spec.model,
        "dtype": spec.dtype,
        "revision": spec.revision or None,
        "trust_remote_code": spec.trust_remote_code,
        "skip_tokenizer_init": True,  # prompts enter as token ids
        "enforce_eager": True,
        "max_model_len": longest,
        "max_num_seqs": max(spec.batch, 1),
        "enable_prefix_caching": False,
        "seed": 0,
        **spec.engine_args,
    }
    if spec.mechanism == "drafts":
        arguments = vllm_verify.with_draft(spec, arguments)
    if any(p.forced for p in spec.prompts):
        arguments["logits_processors"] = [*arguments.get("logits_processors", ()), vllm_forced.NAME]
    if spec.mechanism in ("native", "both"):
        # vLLM's compile cache does not know the aux layer ids; this makes them part of its key.
        extra = {"hsprobe_native_ids": list(spec.native_ids)}
        arguments["additional_config"] = {**arguments.get("additional_config", {}), **extra}
    return arguments


class VllmEngine:
    """A loaded vLLM. See protocol.Engine."""

    def __init__(self, llm: Any, spec: CaptureSpec, out: Path) -> None:
        self.llm, self.spec, self.out = llm, spec, out
        self.internal: dict[str, str] = {}
        processor = llm.llm_engine.input_processor
        assign = processor.assign_request_id

        def assign_request_id(request: Any) -> None:
            assign(request)  # vLLM appends random letters; the rows carry the longer name
            self.internal[request.external_req_id] = request.request_id

        processor.assign_request_id = assign_request_id

    def count_slots(self) -> None:
        """Run one token, not to be kept, so that the model process counts the slots vLLM hands over.

        An id list does not say: families drop duplicates and ids that reach no layer. Raises E309, E303.
        """
        self.generate([PromptSpec("slots", self.spec.prompts[0].token_ids[:1])])
        spool.collect(self.out)

    def info(self) -> EngineInfo:
        facts = stacks.load_facts(self.out)
        live = facts["live"]
        refused = {
            name: {"asked": asked, "applied": live[name]}
            for name, asked in self.spec.engine_args.items()
            if name in live and asked not in (None, "auto") and asked != live[name]
        }
        settings = {name: live[argument] for name, argument in vllm_facts.SETTINGS.items()} | {
            "mode": facts["mode"],
            "attention_backend": facts["attention_backend"],
            "async_scheduling": facts["async_scheduling"],
            "model_runner": facts["runner"],
            "decoder_stack": facts["stack"],
            "engine_process": "own" if os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] == "1" else "driver's",
            "env": facts["env"],
            "not_applied": refused,
        }
        warnings = [
            f"vLLM did not apply {n}={d['asked']}: it runs with {d['applied']}" for n, d in refused.items()
        ]
        labels: dict[str, str] = {}
        if self.spec.mechanism in ("native", "both"):
            aux = facts["aux_layers"] or []
            ids = (
                ",".join(str(i) for i in self.spec.native_ids) or f"vLLM's default {','.join(map(str, aux))}"
            )
            asked = len(self.spec.native_ids) or len(aux)
            slots = facts["native_slots"]
            settings |= {"aux_hidden_state_layers": aux, "native_slots": slots}
            labels = {f"slot.{i:03d}": f"aux_hidden_state_layers[{i}] of {ids}" for i in range(slots)}
            if slots < asked:
                warnings.append(f"vLLM handed over {slots} slots for the {asked} ids {ids}")
        if scale := facts["stream_scale"]:
            warnings.append(
                f"vLLM scales this model's stream by {scale:.6g} from layer 0 on, against overflow"
            )
        if "prompt_logprobs" in self.spec.sites and live["enable_prefix_caching"]:
            warnings.append(
                "vLLM does not read its prefix cache for requests that ask for prompt log-probabilities"
            )
        return EngineInfo(
            version=facts["environment"]["vllm"],
            architecture=facts["architecture"],
            num_layers=facts["num_layers"],
            hidden_size=facts["hidden_size"],
            dtype=facts["dtype"],
            settings=settings,
            environment=facts["environment"],
            native_labels=labels,
            norm_eps=facts.get("norm_eps"),
            norm_plus_one=facts.get("norm_plus_one", False),
            model_config=facts["model_config"],
            warnings=tuple(warnings),
        )

    def generate(self, prompts: Sequence[PromptSpec]) -> list[Completion]:
        """Run `prompts` together. Raises what the model process raised, E303, or E306 when forcing failed."""
        inputs = [{"prompt_token_ids": list(p.token_ids)} for p in prompts]
        try:
            outputs = self.llm.generate(inputs, [self.sampling(p) for p in prompts], use_tqdm=False)
        except Exception as error:
            raise _failure(self.out, error, "vLLM failed while running prompts") from error
        return [self.completion(p, output) for p, output in zip(prompts, outputs, strict=True)]

    def sampling(self, prompt: PromptSpec) -> Any:
        """Greedy decoding of exactly as many tokens as asked; vLLM cannot decode fewer than one."""
        from vllm import SamplingParams

        return SamplingParams(
            temperature=0.0,
            max_tokens=max(self.decoded(prompt), 1),
            ignore_eos=True,
            stop_token_ids=list(self.spec.stop_ids) or None,
            detokenize=False,
            prompt_logprobs=TOP_LOGPROBS if "prompt_logprobs" in self.spec.sites else None,
            extra_args={vllm_forced.KEY: list(prompt.forced)} if prompt.forced else None,
        )

    def decoded(self, prompt: PromptSpec) -> int:
        return max(self.spec.generate, len(prompt.forced))

    def completion(self, prompt: PromptSpec, output: Any) -> Completion:
        generated = tuple(output.outputs[0].token_ids)[: self.decoded(prompt)]
        if generated[: len(prompt.forced)] != prompt.forced:
            raise ProbeError(
                "E306", f"vLLM decoded {generated} for {prompt.id} where {prompt.forced} was forced"
            )
        ids, values = _logprobs(output.prompt_logprobs, prompt.token_ids)
        return Completion(
            prompt=prompt.id,
            request=self.internal[output.request_id],
            generated=generated,
            cached_tokens=output.num_cached_tokens or 0,
            logprob_ids=ids,
            logprobs=values,
        )

    def close(self) -> None:
        """Stop vLLM's processes and leave its process groups."""
        from vllm.distributed import cleanup_dist_env_and_memory

        self.llm.llm_engine.engine_core.shutdown()
        del self.llm
        cleanup_dist_env_and_memory()


def _logprobs(
    rows: Any, token_ids: Sequence[int]
) -> tuple[tuple[tuple[int, ...], ...], tuple[tuple[float, ...], ...]]:
    """Per prompt token but the first: its own id and log-probability, then the top k by rank."""
    ids, values = [], []
    for token, row in zip(token_ids[1:], (rows or ())[1:], strict=False):
        top = sorted((p.rank, t) for t, p in row.items() if p.rank is not None and p.rank <= TOP_LOGPROBS)
        chosen = [token, *(t for _, t in top)]
        ids.append(tuple(chosen))
        values.append(tuple(float(row[t].logprob) for t in chosen))
    return tuple(ids), tuple(values)


def _failure(out: Path, error: Exception, what: str, help_text: str = "") -> ProbeError:
    """The ProbeError that a model process left, or E303 with the engine's own words."""
    left = out / FOLDER / ERROR_FILE
    if left.exists():
        record = json.loads(left.read_text())
        return ProbeError(record["code"], record["message"], record["help"])
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return ProbeError("E303", f"{what}: {lines[0]}", help_text)


def _load_help(arguments: dict[str, Any]) -> str:
    from vllm.platforms import current_platform

    ranks = arguments.get("tensor_parallel_size", 1)
    if ranks > 1 and current_platform.is_cpu() and "VLLM_CPU_OMP_THREADS_BIND" not in os.environ:
        return "on CPUs vLLM binds a rank to a NUMA node: set VLLM_CPU_OMP_THREADS_BIND, to 'nobind' or '0|1'"
    return ""


def _kv_cache_gib(arguments: dict[str, Any]) -> str:
    """One GiB holds 8,192 tokens of an 8-billion-parameter model; vLLM's default is half the machine."""
    return str(1 + arguments["max_num_seqs"] * arguments["max_model_len"] // 8192)


def _version(distribution: str) -> str:
    for name in (distribution, f"{distribution}-cpu"):
        try:
            return importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return "unknown"
