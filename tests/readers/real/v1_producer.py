"""speculators 0.4.0's worker extension, saving script and config on today's vLLM, in one process.

Runs in vLLM's interpreter. Real: HiddenStatesWorkerExtension with its _patched_forward, injected by vLLM's own
worker_extension_cls; generate_and_save_hidden_states, save_config and DataGenerationConfig; the counting of tokens.
By hand: the loop that feeds vLLM. VllmHiddenStatesGenerator builds a scheduler from parts of vLLM 0.12 to 0.16 that
are gone, so `Generator` calls the same four worker methods in its order, one prompt per step.
"""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import sys
import types
from pathlib import Path
from typing import Any

os.environ |= {"VLLM_ENABLE_V1_MULTIPROCESSING": "0", "VLLM_USE_V2_MODEL_RUNNER": "0"}
os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")
os.environ["HF_DATASETS_CACHE"] = "cache"


def packages(wheel: str, site: str) -> None:
    """Make the parts of the 0.4.0 wheel importable that need no transformers 4: its top package does."""
    sys.path.insert(0, wheel)
    sys.path.append(site)  # datasets
    for name in ("speculators", "speculators.data_generation", "speculators.train"):
        bare = types.ModuleType(name)
        bare.__path__ = [str(Path(wheel, *name.split(".")))]
        sys.modules[name] = bare
    # Only named by the script, never made here.
    absent = types.ModuleType("speculators.data_generation.vllm_hidden_states_generator")
    absent.VllmHiddenStatesGenerator = None  # type: ignore[attr-defined]
    sys.modules[absent.__name__] = absent


class Generator:
    """What the script asks of VllmHiddenStatesGenerator: prompts in, a dict of tensors per prompt out."""

    def __init__(self, model_path: str, layer_ids: list[int], tensor_parallel_size: int, **_: Any) -> None:
        from vllm import LLM

        self.model_path, self.layer_ids = model_path, layer_ids
        self.tensor_parallel_size = tensor_parallel_size
        self.llm = LLM(
            model=model_path,
            dtype="bfloat16",
            enforce_eager=True,
            max_model_len=512,
            enable_prefix_caching=False,
            worker_extension_cls="speculators.data_generation.custom_worker.HiddenStatesWorkerExtension",
        )
        cache = types.SimpleNamespace(gpu_memory_utilization=0.8)
        self.vllm_config = types.SimpleNamespace(cache_config=cache)
        self.llm.collective_rpc("_setup_hidden_states_capture", args=(layer_ids,))

    def generate(self, token_ids: list[Any]) -> list[dict[str, Any]]:
        import torch
        from vllm import SamplingParams

        results = []
        for index, given in enumerate(token_ids):
            ids = [int(i) for i in given]
            self.llm.collective_rpc("_reset_capture")
            self.llm.collective_rpc("_set_request_metadata", args=({f"req_0_{index}": len(ids)},))
            self.llm.generate(
                {"prompt_token_ids": ids}, SamplingParams(max_tokens=1, temperature=0), use_tqdm=False
            )
            (states,) = self.llm.collective_rpc("_get_captured_states")
            results.append(
                {
                    "input_ids": torch.as_tensor(ids, dtype=torch.long),
                    "hidden_states": [h.clone().cpu() for h in states[f"req_0_{index}"]],
                    "loss_mask": None,
                }
            )
        return results


def main() -> None:
    job = json.loads(Path(sys.argv[1]).read_text())
    packages(job["wheel"], job["site"])
    # The config file records paths as they were typed.
    Path("tiny-llama").symlink_to(job["model"])
    spec = importlib.util.spec_from_file_location("data_generation_offline", job["script"])
    assert spec is not None
    assert spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    script.VllmHiddenStatesGenerator = Generator
    ids = [str(i) for i in job["ids"]]
    sys.argv = ["data_generation_offline.py", "--target-model-path", "tiny-llama"]
    sys.argv += ["--train-data-path", "rows.jsonl", "--output-dir", "training_data", "--seq-length", "512"]
    sys.argv += ["--tensor-parallel-size", "1", "--hf-cache-dir", "cache", "--layer-ids", *ids]
    args = script.parse_args()
    from datasets import Dataset
    from speculators.train.vocab_mapping import save_token_frequency_distribution

    masks = [[int(2 * k >= len(p)) for k in range(len(p))] for p in job["prompts"]]
    dataset = Dataset.from_dict({"input_ids": job["prompts"], "loss_mask": masks})
    dataset.set_format(type="torch")
    out = Path(args.output_dir)
    out.mkdir()
    save_token_frequency_distribution(dataset, output_path=str(out / "token_freq.pt"))
    script.generate_and_save_hidden_states(args, dataset)
    shutil.copytree(out, job["out"])


main()
