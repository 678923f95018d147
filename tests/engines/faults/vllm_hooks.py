"""Layer hooks of many kinds on one in-process vLLM: whole, without the residual, without a copy, cached.

On CPUs vLLM adds and norms into new tensors; GPUs do it in place. Both in-place forms below are vLLM's own code,
put where the GPU has it, so that a hook without a copy meets here what it meets there.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

import torch

from tests.engines.faults.plain import Job, Rows, boundaries, write


class Hooks:
    """What hooks saw in the pass that ran last: copies taken at once, and the tensors themselves."""

    def __init__(self) -> None:
        self.copies: dict[tuple[str, int], torch.Tensor] = {}
        self.kept: dict[tuple[str, int], torch.Tensor] = {}
        self.positions: list[int] = []

    def install(self, model: Any) -> int:
        """Hook every layer, its branches and its first norm; the number of layers."""
        layers = model.model.layers
        layers[0].register_forward_pre_hook(self._before_first)
        for index, layer in enumerate(layers):
            layer.input_layernorm.register_forward_hook(self._after_norm(index))
            layer.register_forward_hook(self._after_layer(index))
            layer.self_attn.register_forward_hook(self._after_branch("attn_out", index))
            layer.mlp.register_forward_hook(self._after_branch("mlp_out", index))
        return len(layers)

    def _before_first(self, module: Any, args: Any) -> None:
        self.positions = args[0].tolist()
        self.copies["sum", 0] = args[1].clone()
        self.kept["residual", 0] = args[1]

    def _after_norm(self, boundary: int) -> Callable[..., None]:
        def hook(module: Any, args: Any, output: Any) -> None:
            # The first norm adds nothing: its input is the stream.
            self.kept["stream", boundary] = output[1] if isinstance(output, tuple) else args[0]

        return hook

    def _after_layer(self, index: int) -> Callable[..., None]:
        def hook(module: Any, args: Any, output: Any) -> None:
            hidden, residual = output
            self.copies["sum", index + 1] = hidden + residual
            self.copies["hidden", index + 1] = hidden.clone()
            self.copies["residual", index + 1] = residual.clone()
            self.kept["hidden", index + 1], self.kept["residual", index + 1] = hidden, residual
            # The stream that entered this layer, taken before its attention and copied only now.
            self.copies["stream", index] = self.kept["stream", index].clone()

        return hook

    def _after_branch(self, kind: str, layer: int) -> Callable[..., None]:
        def hook(module: Any, args: Any, output: Any) -> None:
            self.copies[kind, layer] = output.clone()

        return hook


class Norms:
    """vLLM's RMSNorm, switched between its out-of-place form and two in-place ones."""

    def __init__(self) -> None:
        from vllm.model_executor.layers.layernorm import RMSNorm

        self.form = "new tensors"
        self.original = RMSNorm.forward_native
        norms = self

        def forward(norm: Any, x: torch.Tensor, residual: torch.Tensor | None = None) -> Any:
            if residual is None or norms.form == "new tensors":
                return norms.original(norm, x, residual)
            if norms.form == "kernel":
                torch.ops._C.fused_add_rms_norm(x, residual, norm.weight.data, norm.variance_epsilon)
                return x, residual
            # The branch of vLLM's in-place implementation for tensors that its kernel cannot take.
            output, added = norms.original(norm, x, residual)
            x.copy_(output)
            residual.copy_(added)
            return x, residual

        RMSNorm.forward_native = forward


def main() -> None:
    os.environ.update(VLLM_ENABLE_V1_MULTIPROCESSING="0", VLLM_USE_V2_MODEL_RUNNER="0")
    os.environ["VLLM_CPU_KVCACHE_SPACE"] = "1"
    from vllm import LLM, SamplingParams

    # vLLM takes its kernel library for x86 without bfloat16 instructions, which truncates, on every x86 CPU.
    torch.cpu._is_avx512_bf16_supported = lambda: False
    job = Job.from_arguments()
    norms, hooks = Norms(), Hooks()
    llm = LLM(
        model=str(job.model),
        skip_tokenizer_init=True,
        enforce_eager=True,
        dtype="bfloat16",
        max_model_len=256,
        max_num_seqs=1,
        enable_prefix_caching=True,
        block_size=32,
        seed=0,
    )
    layers = llm.apply_model(hooks.install)[0]
    every, upper, entered = range(layers + 1), range(1, layers + 1), range(layers)
    folders: dict[str, dict[str, Rows]] = {}
    claims: dict[str, list[dict[str, object]]] = {}

    def run(ids: list[int], form: str) -> None:
        norms.form = form
        one = SamplingParams(temperature=0.0, max_tokens=1, ignore_eos=True, detokenize=False)
        llm.generate([{"prompt_token_ids": ids}], one, use_tqdm=False)

    def keep(folder: str, prompt: str, states: Sequence[torch.Tensor], claimed: Sequence[int]) -> None:
        rows = Rows(torch.stack(list(states), dim=1), hooks.positions)
        folders.setdefault(folder, {})[prompt] = rows
        claims[folder] = boundaries(claimed)

    for name, ids in job.prompts.items():
        copies, kept = hooks.copies, hooks.kept
        llm.reset_prefix_cache()
        run(ids, "new tensors")
        branches = [(kind, n) for kind in ("attn_out", "mlp_out") for n in range(layers)]
        keep("whole", name, [copies["sum", n] for n in every] + [copies[b] for b in branches], every)
        claims["whole"] += [{"site": f"{kind}.{n:03d}"} for kind, n in branches]
        keep("hidden-alone", name, [copies["hidden", n] for n in upper], upper)
        keep("residual-alone", name, [copies["residual", n] for n in upper], upper)
        llm.reset_prefix_cache()
        run(ids, "in place")
        keep("whole-in-place", name, [copies["sum", n] for n in every], every)
        keep("copied-late", name, [copies["stream", n] for n in entered], entered)
        keep("residual-kept", name, [kept["residual", n] for n in every], every)
        keep("hidden-kept", name, [kept["hidden", n] for n in upper], upper)
        keep("summed-late", name, [kept["hidden", n] + kept["residual", n] for n in upper], upper)
        llm.reset_prefix_cache()
        run(ids, "kernel")
        keep("kernel", name, [copies["sum", n] for n in every], every)
    llm.reset_prefix_cache()
    for name, ids in job.prompts.items():
        run(ids, "new tensors")
        keep("cached", name, [hooks.copies["sum", n] for n in every], every)
        folders.setdefault("cached-from-zero", {})[name] = Rows(
            folders["cached"][name].states_nsh, range(len(hooks.positions))
        )
    claims["cached-from-zero"] = claims["cached"]
    for folder, prompts in folders.items():
        settings = {"prefix_caching": folder.startswith("cached")}
        write(job, folder, claims[folder], prompts, "vllm", settings)
    llm.llm_engine.engine_core.shutdown()


if __name__ == "__main__":
    main()
