"""Transformers as an engine: the reference, a prompt per pass, every boundary, the last one un-normed.

Its native path is `output_hidden_states` with the config as it is: native id i is entry i of that tuple,
0 to L. Entry L is the final norm's output unless the config says otherwise: a slot is not yet a boundary.
"""

from __future__ import annotations

import inspect
import json
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from ..protocol import Completion, EngineInfo, ProbeError
from ..schema import CaptureSpec, PromptSpec, Site
from ..spool import Span, StepRecorder
from ..stack import expand, find_stack, moe_layers, save_embedding, save_facts, save_norm
from ..weights import model_config
from .hf_hooks import attach

NAME = "hf"
PLUGIN_GROUP = None  # the driver's own process holds the model: nothing is injected
TOP_LOGPROBS = 5
MASK = "mask_token_id"
LOGPROB_ROWS = 256  # rows of the vocabulary in float32 at a time


def load(spec: CaptureSpec, out: Path) -> HfEngine:
    """Load spec.model in spec.dtype on the first GPU or the CPU.

    Attention is Transformers' own choice: sdpa, or eager in families without it; the settings say which.
    spec.engine_args go to from_pretrained, apart from `device` and `mask_token_id`: tokens of that id are masked, as
    Transformers itself does where it derives the mask from pad_token_id; positions count them all the same.
    Raises ProbeError E301 without transformers, E306 for what it cannot give, E307 for a model without one
    residual stream or with weights missing.
    """
    try:
        import transformers
    except ImportError as error:
        raise ProbeError(
            "E301", f"transformers cannot be imported: {error}", "pip install transformers"
        ) from error
    started = {"pid": os.getpid(), "time": time.time(), "transformers": transformers.__version__}
    (out / "probe.started").write_text(json.dumps({**started, "torch": torch.__version__}))
    arguments = dict(spec.engine_args)
    arguments.pop(MASK, None)
    device = arguments.pop("device", "cuda" if torch.cuda.is_available() else "cpu")
    if spec.revision:
        arguments["revision"] = spec.revision
    if spec.trust_remote_code:
        arguments["trust_remote_code"] = True
    transformers.utils.logging.disable_progress_bar()
    config = _config(transformers, spec)
    if config is not None:
        arguments["config"] = config
    dtype = getattr(torch, spec.dtype)
    model, loaded = transformers.AutoModelForCausalLM.from_pretrained(
        spec.model, dtype=dtype, output_loading_info=True, **arguments
    )
    missing = sorted(loaded["missing_keys"])
    if missing:
        # Transformers draws them at random and only warns: no reference at all.
        raise ProbeError(
            "E307",
            f"Transformers found no weights for {len(missing)} parameters of {type(model).__name__}, "
            f"{missing[0]} first",
            "the checkpoint is not of the architecture that its config.json names",
        )
    model.eval()
    return HfEngine(spec, out, model if "device_map" in arguments else model.to(device))


def _config(transformers: Any, spec: CaptureSpec) -> Any:
    """The config to load with, or None for Transformers' own reading.

    Kimi-K2 is DeepSeek-V3 under a model_type of its own, which Transformers knows only from remote code.
    """
    if spec.trust_remote_code:
        return None
    raw, _ = transformers.PretrainedConfig.get_config_dict(spec.model, revision=spec.revision or None)
    if raw.get("model_type") != "kimi_k2":
        return None
    known = {key: value for key, value in raw.items() if key != "auto_map"}
    return transformers.DeepseekV3Config.from_dict({**known, "model_type": "deepseek_v3"})


class HfEngine:
    """A loaded Transformers model with hooks on the sites that were asked for."""

    def __init__(self, spec: CaptureSpec, out: Path, model: Any) -> None:
        self.spec, self.model = spec, model
        self.stack = find_stack(model, model.config)
        self.recorder = StepRecorder(out)
        self.device = next(model.parameters()).device
        self.accepts = inspect.signature(model.forward).parameters
        self.masked: int | None = spec.engine_args.get(MASK)
        layers = len(self.stack.layers)
        if spec.mechanism in ("hooks", "both"):
            keys = expand(spec.sites, layers, moe_layers(self.stack))
            attach(self.stack, [Site.parse(key) for key in keys if key != "prompt_logprobs"], self.recorder)
        self.native_ids = self._native_ids(layers)
        save_facts(out, moe_layers=moe_layers(self.stack))
        save_norm(out, self.stack)
        save_embedding(out, self.stack, spec)

    def info(self) -> EngineInfo:
        """What the manifest says of this engine."""
        import transformers

        config = self.model.config
        batch = {"not_applied": {"batch": self.spec.batch}} if self.spec.batch > 1 else {}
        experts = getattr(config, "_experts_implementation", None)
        return EngineInfo(
            version=transformers.__version__,
            architecture=(getattr(config, "architectures", None) or [type(self.model).__name__])[0],
            num_layers=len(self.stack.layers),
            hidden_size=config.get_text_config().hidden_size,
            dtype=str(self.model.dtype).removeprefix("torch."),
            settings={
                "mode": "eager",
                "tp": 1,
                "pp": 1,
                "attention_backend": config._attn_implementation,
                **({"experts_implementation": experts} if experts else {}),
                "prefix_cache": False,
                "chunked_prefill": False,
                "threads": torch.get_num_threads(),
                **({} if self.masked is None else {"masked_token_id": self.masked}),
                **batch,
            },
            environment={"transformers": transformers.__version__, "device_type": self.device.type},
            native_labels={Site("slot", n).key: f"hidden_states[{i}]" for n, i in enumerate(self.native_ids)},
            model_config=model_config(config),
        )

    def generate(self, prompts: Sequence[PromptSpec]) -> list[Completion]:
        """Run each prompt alone: one prefill pass, then spec.generate - 1 passes of one token."""
        with torch.inference_mode():
            return [self._run(prompt) for prompt in prompts]

    def close(self) -> None:
        """Nothing to stop: the model lives in this process."""

    def _run(self, prompt: PromptSpec) -> Completion:
        cache = self._cache() if self.spec.generate > 1 else None
        fed = list(prompt.token_ids)
        logits_nv = self._forward(prompt.id, fed, 0, cache)
        ids, logprobs = self._logprobs(prompt.token_ids, logits_nv) if self._wants_logprobs else ((), ())
        generated: list[int] = []
        while len(generated) < self.spec.generate:
            if generated:
                fed.append(generated[-1])
                logits_nv = self._forward(prompt.id, fed, len(fed) - 1, cache)
            forced = prompt.forced[len(generated) : len(generated) + 1]
            generated.append(forced[0] if forced else int(logits_nv[-1].argmax()))
        return Completion(prompt.id, prompt.id, tuple(generated), 0, ids, logprobs)

    def _forward(self, request: str, fed: Sequence[int], start: int, cache: Any) -> torch.Tensor:
        """Run the ids of `fed` from `start` on; the cache holds those before. Records the pass.

        Logits [n, V] where log-probabilities are wanted, else [1, V].
        """
        fed_t = torch.tensor(fed, dtype=torch.int64)
        ids_n, positions_n = fed_t[start:], torch.arange(start, len(fed))
        # Never a comparison with pad_token_id unless asked for: that masks real tokens equal to it.
        mask_t = torch.ones_like(fed_t) if self.masked is None else (fed_t != self.masked).long()
        arguments: dict[str, Any] = {
            "input_ids": ids_n[None].to(self.device),
            "attention_mask": mask_t[None].to(self.device),
            "position_ids": positions_n[None].to(self.device),
            "use_cache": cache is not None,
            "output_hidden_states": bool(self.native_ids),
        }
        if cache is not None:
            arguments["cache" if "cache" in self.accepts else "past_key_values"] = cache
        if "logits_to_keep" in self.accepts and not self._wants_logprobs:
            arguments["logits_to_keep"] = 1
        self.recorder.begin([Span(request, 0, len(ids_n))], ids_n, positions_n)
        try:
            output = self.model(**arguments)
            for slot, native in enumerate(self.native_ids):
                self.recorder.put(Site("slot", slot).key, output.hidden_states[native][0])
            self.recorder.end()
        finally:
            self.recorder.abandon()
        logits_nv: torch.Tensor = output.logits[0]
        return logits_nv

    def _logprobs(self, token_ids: Sequence[int], logits_nv: torch.Tensor) -> tuple[Any, Any]:
        """Ids and log-probabilities per row t of what follows it: the prompt's own token, then the top k."""
        ids: list[tuple[int, ...]] = []
        values: list[tuple[float, ...]] = []
        following = torch.tensor(token_ids[1:], device=logits_nv.device)
        for start in range(0, len(following), LOGPROB_ROWS):
            next_n = following[start : start + LOGPROB_ROWS]
            logprob_nv = torch.log_softmax(logits_nv[start : start + len(next_n)].float(), dim=-1)
            own_n1 = logprob_nv.gather(1, next_n[:, None])
            top = logprob_nv.topk(TOP_LOGPROBS, dim=-1)
            ids += map(tuple, torch.cat([next_n[:, None], top.indices], 1).tolist())
            values += map(tuple, torch.cat([own_n1, top.values], 1).tolist())
        return tuple(ids), tuple(values)

    @property
    def _wants_logprobs(self) -> bool:
        return "prompt_logprobs" in self.spec.sites

    def _cache(self) -> Any:
        from transformers import DynamicCache

        return DynamicCache(config=self.model.config)

    def _native_ids(self, layers: int) -> tuple[int, ...]:
        if self.spec.mechanism not in ("native", "both"):
            return ()
        wanted = self.spec.native_ids or tuple(range(layers + 1))
        if unknown := [i for i in wanted if not 0 <= i <= layers]:
            raise ProbeError("E306", f"hidden_states has entries 0 to {layers}; asked for {unknown}")
        return wanted
