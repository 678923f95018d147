"""Transformers' output_hidden_states, every entry taken for the residual stream; its last one is normed."""

from __future__ import annotations

import torch
from transformers import AutoModelForCausalLM

from tests.engines.faults.plain import Job, Rows, boundaries, write


def main() -> None:
    job = Job.from_arguments()
    model = AutoModelForCausalLM.from_pretrained(job.model, dtype=torch.bfloat16).eval()
    prompts = {}
    for name, ids in job.prompts.items():
        with torch.no_grad():
            states = model(torch.tensor([ids]), output_hidden_states=True).hidden_states
        prompts[name] = Rows(torch.stack([state[0] for state in states], dim=1), range(len(ids)))
    write(job, "tuple", boundaries(range(model.config.num_hidden_layers + 1)), prompts, "hf")


if __name__ == "__main__":
    main()
