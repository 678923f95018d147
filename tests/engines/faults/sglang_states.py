"""SGLang's own return_hidden_states under chunked prefill and the radix cache, and hooks on its layers."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from tests.engines.faults.plain import Job, Rows, boundaries, write

IDS = (2, 4, 6)  # SGLang's Llama adds one: boundaries 3, 5, 7
CHUNK = 32


def hook_factory(config: dict[str, Any]) -> Callable[..., None]:
    """SGLang's entry for --forward-hooks: a hook that takes what a layer returns for the stream."""
    folder = Path(config["folder"])
    returned: list[torch.Tensor] = []
    kept: list[torch.Tensor] = []
    passes = 0

    def hook(layer: Any, args: Any, output: Any) -> None:
        nonlocal passes
        batch = next(a for a in args if hasattr(a, "forward_mode"))
        if batch.forward_mode.is_idle() or not batch.rids:
            return
        returned.append(output.clone())
        kept.append(output)
        if len(returned) == config["layers"]:
            rows = (torch.stack(returned, dim=1), torch.stack(kept, dim=1))
            torch.save((batch.rids, batch.positions, rows), folder / f"{passes:04d}.pt")
            passes += 1
            returned.clear()
            kept.clear()

    return hook


def hooked(folder: Path, prompt: str, which: int) -> Rows:
    """The rows of `prompt` in all of its passes so far."""
    found: dict[int, torch.Tensor] = {}
    for path in sorted(folder.glob("*.pt")):
        requests, positions, rows = torch.load(path)
        if requests[0].endswith(prompt):
            found.update(zip(positions.tolist(), rows[which], strict=True))
    return Rows(torch.stack([found[p] for p in sorted(found)]), sorted(found))


def main() -> None:
    os.environ.setdefault("SGLANG_USE_CPU_ENGINE", "1")
    import sglang

    job = Job.from_arguments()
    passes = job.out / "passes"
    passes.mkdir()
    layers = int(job.options["layers"])
    spec = {
        "name": "fault",
        "target_modules": ["model.layers.?"],
        "hook_factory": "tests.engines.faults.sglang_states:hook_factory",
        "config": {"folder": str(passes), "layers": layers},
    }
    engine = sglang.Engine(
        model_path=str(job.model),
        dtype="bfloat16",
        device="cpu",
        skip_tokenizer_init=True,
        attention_backend="torch_native",
        disable_custom_all_reduce=True,
        max_total_tokens=1024,
        mem_fraction_static=0.2,
        max_running_requests=1,
        disable_overlap_schedule=True,
        disable_cuda_graph=True,
        chunked_prefill_size=CHUNK,
        disable_radix_cache=False,
        random_seed=0,
        enable_return_aux_hidden_states=True,
        speculative_algorithm="EAGLE3",
        return_aux_hidden_state_layer_ids=list(IDS),
        forward_hooks=[spec],
    )

    def ask(name: str, run: str) -> torch.Tensor:
        """The auxiliary states [R, 3, H] that SGLang returns for a prompt."""
        answer = engine.generate(
            input_ids=[job.prompts[name]],
            rid=[f"{run}-{name}"],
            sampling_params={"temperature": 0, "max_new_tokens": 1, "ignore_eos": True},
            return_hidden_states=True,
        )
        rows = torch.tensor(answer[0]["meta_info"]["hidden_states"][0], dtype=torch.bfloat16)
        return rows.unflatten(1, (len(IDS), -1))

    folders: dict[str, dict[str, Rows]] = {}

    def keep(folder: str, name: str, states: torch.Tensor) -> None:
        """The rows as they came, once where they belong and once counted from zero."""
        length = len(job.prompts[name])
        folders.setdefault(folder, {})[name] = Rows(states, range(length - len(states), length))
        folders.setdefault(f"{folder}-from-zero", {})[name] = Rows(states, range(len(states)))

    def empty_cache() -> None:
        """Refused while the last request is being put away."""
        while not engine.flush_cache().success:
            time.sleep(0.1)

    for name in job.prompts:
        empty_cache()
        rows = ask(name, "alone")
        keep("chunked", name, rows)
        if len(rows) == len(job.prompts[name]):
            folders.setdefault("native", {})[name] = Rows(rows, range(len(rows)))
    empty_cache()
    for name in job.options["warm"]:
        ask(name, "warm")
    for name in job.options["cached"]:
        keep("radix", name, ask(name, "cached"))
    for index, folder in enumerate(("returned", "returned-kept")):
        folders[folder] = {name: hooked(passes, f"alone-{name}", index) for name in job.prompts}
    engine.shutdown()
    claims: dict[str, list[dict[str, object]]] = {
        "native": [{"label": f"return_aux_hidden_state_layer_ids[{n}]"} for n in range(len(IDS))],
        "returned": boundaries(range(1, layers + 1)),
        "returned-kept": boundaries(range(1, layers + 1)),
    }
    for folder, prompts in folders.items():
        settings: dict[str, object] = {"chunked_prefill": True, "prefix_cache": True}
        if not folder.startswith("returned"):
            settings["native_ids"] = list(IDS)
        write(job, folder, claims.get(folder, boundaries(i + 1 for i in IDS)), prompts, "sglang", settings)


if __name__ == "__main__":
    main()
