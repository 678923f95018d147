"""SpecForge 0.2.0's offline capture file code on states that SGLang made: runs in the environment of speculators.

Real: scripts/prepare_hidden_states.py's HiddenStatesGenerator with its whole generate loop, the capture front
OfflineSGLangCapture, the default OfflineCaptureLayout, SpecForge's own process groups on gloo.
By hand: the backend, which stands where SGLang 0.5.14 would run and hands out recorded states of SGLang, and three
names of torch that the script uses for a GPU.
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from pathlib import Path
from typing import Any

import torch

os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0", "RANK": "0", "WORLD_SIZE": "1"}


class Recorded:
    """Answers a batch of one prompt with its recorded states, in the shape of OfflineSGLangCaptureBackend."""

    def __init__(self, states: list[dict[str, torch.Tensor]]) -> None:
        self.states = iter(states)

    def capture(self, *, input_ids: Any, attention_mask: Any, loss_mask: Any) -> tuple[Any, Any, Any]:
        found = next(self.states)
        return [(input_ids, attention_mask, loss_mask)], (found["aux"],), (found["last"],)


def without_gpu() -> None:
    """Tensors that are sent to a GPU stay where they are."""
    torch.Tensor.cuda = lambda self, **_: self  # type: ignore[assignment,method-assign]
    torch.cuda.empty_cache = lambda: None
    made = torch.tensor

    def here(*given: Any, device: str = "cpu", **more: Any) -> torch.Tensor:
        return made(*given, **more)

    torch.tensor = here


def main() -> None:
    job = json.loads(Path(sys.argv[1]).read_text())
    sys.path.insert(0, job["wheel"])
    spec = importlib.util.spec_from_file_location("prepare_hidden_states", job["script"])
    assert spec is not None
    assert spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = script
    spec.loader.exec_module(script)
    states = torch.load(job["states"])
    batches = [
        {
            "input_ids": torch.tensor([ids]),
            "attention_mask": torch.ones(1, len(ids), dtype=torch.long),
            "loss_mask": torch.tensor([[int(2 * k >= len(ids)) for k in range(len(ids))]]),
        }
        for ids in job["prompts"]
    ]
    script.init_distributed(timeout=1, tp_size=1)
    without_gpu()
    for folder, compress in (("plain", False), ("compressed", True)):
        model = script.OfflineSGLangCapture(Recorded(states))
        with script.HiddenStatesGenerator(model, num_io_threads=1, compress=compress) as generator:
            generator.generate(batches, str(Path(job["out"], folder)), samples_per_dp=len(batches))
    script.destroy_distributed()


main()
