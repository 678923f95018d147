"""Inside vLLM's worker processes, with a draft: what the target was shown of it and what it took.

The rejection sampler's input and output are read where the model runner calls it, so no step depends on the order in
which the scheduler hears of it. Dummy and profiling passes call the sampler elsewhere and record nothing.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from .. import measure_steps
from .. import stack as stacks
from ..protocol import ProbeError
from ..schema import CaptureSpec
from . import vllm_facts
from .vllm_runner import aux_holder, reported

NEEDED = ("_sample", "load_model", "input_batch", "positions", "drafter")


def with_draft(spec: CaptureSpec, arguments: dict[str, Any]) -> dict[str, Any]:
    """vllm.LLM's arguments with the draft of `spec` in them. A speculative_config of the user's is laid over ours."""
    draft = {"method": "eagle3", "model": spec.draft, "num_speculative_tokens": spec.draft_steps}
    room = spec.draft_steps + 1
    return {
        "async_scheduling": False,  # runs a finished request one step too far
        **arguments,
        "speculative_config": {**draft, **(spec.engine_args.get("speculative_config") or {})},
        "disable_log_stats": False,  # else nothing is counted
        # Without room behind the text vLLM would cut its last drafts short.
        "max_model_len": spec.engine_args.get("max_model_len", arguments["max_model_len"] + room),
    }


def attach(worker: Any, spec: CaptureSpec, out: Path) -> None:
    """Wrap the model runner that `worker` has just made. Raises E306 for runners of another design."""
    runner = worker.model_runner
    with reported(out):
        if missing := [name for name in NEEDED if not hasattr(runner, name)]:
            raise ProbeError(
                "E306",
                f"hsprobe reads drafts in vLLM's V1 model runner, not in {vllm_facts.class_path(runner)}, which has "
                f"no {missing[0]}",
                "leave VLLM_USE_V2_MODEL_RUNNER unset, and name an EAGLE-3 draft",
            )
    VerifyProbe(runner, out).wrap()


class VerifyProbe:
    """The probe of one model runner. Every tensor-parallel rank has one; rank 0 records."""

    def __init__(self, runner: Any, out: Path) -> None:
        from vllm.distributed import get_tensor_model_parallel_rank

        self.runner, self.out = runner, out
        self.records = get_tensor_model_parallel_rank() == 0

    def wrap(self) -> None:
        """Replace the runner's methods on the object: load, cache set-up, sample."""
        runner = self.runner
        load, cache, sample = runner.load_model, runner.initialize_kv_cache, runner._sample

        def load_model(*args: Any, **kwargs: Any) -> Any:
            result = load(*args, **kwargs)
            if self.records:
                with reported(self.out):
                    self.save_loaded()
            return result

        def initialize_kv_cache(*args: Any, **kwargs: Any) -> Any:
            result = cache(*args, **kwargs)
            if self.records:
                vllm_facts.save_running(self.out, runner)
            return result

        def sample_tokens(logits: Any, metadata: Any, *args: Any, **kwargs: Any) -> Any:
            output = sample(logits, metadata, *args, **kwargs)
            if self.records and metadata is not None:
                measure_steps.append(self.out, self.steps(metadata, output.sampled_token_ids.tolist()))
            return output

        runner.load_model, runner.initialize_kv_cache = load_model, initialize_kv_cache
        runner._sample = sample_tokens

    def save_loaded(self) -> None:
        """Leave what is known once both models are loaded: whose class they are, which layers the target hands over."""
        runner = self.runner
        target, drafter = runner.get_model(), runner.drafter
        stack = stacks.find_stack(target, runner.model_config.hf_config)
        vllm_facts.save_loaded(self.out, runner, stack, stacks.moe_layers(stack), None)
        layers = getattr(aux_holder(target), "aux_hidden_state_layers", None) or ()
        stacks.save_facts(
            self.out,
            draft={
                "aux_layers": [int(i) for i in layers],
                "class": type(drafter.model).__name__,
                "proposer": type(drafter).__name__,
                "steps": int(runner.speculative_config.num_speculative_tokens),
                "stand_ins": [],
            },
        )

    def steps(self, metadata: Any, sampled: list[list[int]]) -> list[measure_steps.Step]:
        """The step of every request that had drafts in this pass.

        `metadata` is vLLM's SpecDecodeMetadata; `sampled` [requests][drafts + 1] holds -1 behind the target's own token.
        """
        drafted = metadata.draft_token_ids.tolist()
        # The row whose logits judge a request's first draft is that of the last token that was settled before.
        settled = self.runner.positions[metadata.logits_indices].tolist()
        found, at, row = [], 0, 0
        for request, count, tokens in zip(
            self.runner.input_batch.req_ids, metadata.num_draft_tokens, sampled, strict=False
        ):
            if count:
                accepted = sum(t >= 0 for t in tokens) - 1
                shown = tuple(drafted[at : at + count])
                found.append(
                    measure_steps.Step(request, settled[row] + 1, shown, accepted, int(tokens[accepted]))
                )
            at, row = at + count, row + count + 1
        return found
