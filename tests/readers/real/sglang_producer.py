"""Writes what sglang-response/, sglang-dumper/ and sglang-tensor-dump/ were taken from: one start of SGLang 0.5.23.

Two prompts in one batch; a prompt longer than a prefill chunk; one that shares its prefix, which the cache serves.

DUMPER_ENABLE=1 DUMPER_DIR=dump DUMPER_EXP_NAME=run DUMPER_NON_INTRUSIVE_MODE=all SGLANG_USE_CPU_ENGINE=1 \
    python sglang_producer.py MODEL     (in a new folder; MODEL as a relative path, for the dumper keeps it)
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

PROMPTS = [[11, 48, 3, 301, 77, 205, 9], [410, 6, 92, 33, 150]]
LONG = [(37 * i + 20) % 500 + 5 for i in range(20)]
CHUNK = 16


def main(model: str) -> None:
    import sglang

    engine = sglang.Engine(
        model_path=model,
        dtype="bfloat16",
        device="cpu",
        skip_tokenizer_init=True,
        disable_radix_cache=False,
        chunked_prefill_size=CHUNK,
        max_running_requests=4,
        disable_overlap_schedule=True,
        random_seed=0,
        attention_backend="torch_native",
        disable_custom_all_reduce=True,
        max_total_tokens=2048,
        mem_fraction_static=0.2,
        disable_cuda_graph=True,
        enable_return_hidden_states=True,
        debug_tensor_dump_output_folder="tensor-dump",
        debug_tensor_dump_layers=[0, 7],
    )
    asked: dict[str, dict[str, Any]] = {
        "two": {"input_ids": PROMPTS, "return_logprob": True, "logprob_start_len": 0},
        "chunked": {"input_ids": LONG},
        "cached": {"input_ids": [*LONG[:18], 7, 8, 9]},
    }
    sampling = {"temperature": 0.0, "max_new_tokens": 3, "ignore_eos": True}
    for name, request in asked.items():
        answer = engine.generate(**request, sampling_params=sampling, return_hidden_states=True)
        Path(f"{name}.json").write_text(json.dumps(answer))
    engine.shutdown()


if __name__ == "__main__":  # SGLang's processes import this file
    main(sys.argv[1])
