"""Writes transformers-tuple/: the hidden_states of a real model as its users save them.

python transformers_producer.py MODEL OUT
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM

PROMPTS = ([11, 48, 3, 301, 77, 205, 9], [410, 6, 92, 33, 150])
ASKED = [1, 3, 7]  # of the list form, transformers 5.17 and later


@torch.no_grad()
def main(path: str, out: Path) -> None:
    model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.bfloat16)
    first, second = PROMPTS
    ids = torch.tensor([first])
    states = model(ids, output_hidden_states=True).hidden_states
    torch.save(states, out / "tuple.pt")
    torch.save(
        {"input_ids": ids, "hidden_states": model(ids, output_hidden_states=ASKED).hidden_states},
        out / "asked.pt",
    )
    named = {f"hidden_states.{i}": s.contiguous() for i, s in enumerate(states)}
    save_file({"input_ids": ids, **named}, out / "numbered.safetensors")
    # Padded on the left, as generation wants it.
    gap = len(first) - len(second)
    batch = torch.tensor([first, [0] * gap + second])
    mask = torch.tensor([[1] * len(first), [0] * gap + [1] * len(second)])
    states = model(batch, attention_mask=mask, output_hidden_states=True).hidden_states
    torch.save({"input_ids": batch, "attention_mask": mask, "hidden_states": states}, out / "batch.pt")


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
