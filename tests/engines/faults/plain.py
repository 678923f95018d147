"""Folders in the plain form, and the job a fault run is given."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import save_file


@dataclass(frozen=True)
class Job:
    """What to run: a checkpoint, prompts by name in their order, the folder for the results."""

    model: Path
    prompts: dict[str, list[int]]
    out: Path
    options: dict[str, Any]

    @staticmethod
    def from_arguments() -> Job:
        """The job that the first argument's JSON file holds."""
        said = json.loads(Path(sys.argv[1]).read_text())
        return Job(Path(said["model"]), said["prompts"], Path(said["out"]), said["options"])


@dataclass(frozen=True)
class Rows:
    """One prompt's rows [R, slots, H], and the position [R] that each is said to have."""

    states_nsh: torch.Tensor
    positions: Iterable[int]


def write(
    job: Job,
    name: str,
    slots: list[dict[str, object]],
    prompts: Mapping[str, Rows],
    engine: str,
    settings: Mapping[str, object] | None = None,
) -> None:
    """Write `prompts` as the folder `name` of the job, with the checkpoint's final norm beside them."""
    folder = job.out / name
    folder.mkdir(parents=True)
    config = json.loads((job.model / "config.json").read_text())
    with safe_open(job.model / "model.safetensors", "pt") as weights:
        save_file({"norm": weights.get_tensor("model.norm.weight").float()}, folder / "norm.safetensors")
    model = {
        "name": job.model.name,
        "num_layers": config["num_hidden_layers"],
        "hidden_size": config["hidden_size"],
        "norm_weight": "norm.safetensors",
        "norm_eps": config["rms_norm_eps"],
    }
    about = {"format": "hsparity.plain/1", "model": model, "slots": slots, "engine": engine}
    (folder / "plain.json").write_text(json.dumps({**about, "settings": dict(settings or {})}))
    for prompt, rows in prompts.items():
        tensors = {
            "token_ids": torch.tensor(job.prompts[prompt]),
            "hidden_states": rows.states_nsh.contiguous(),
            "positions": torch.tensor(list(rows.positions)),
        }
        save_file(tensors, folder / f"{prompt}.safetensors")


def boundaries(numbers: Iterable[int]) -> list[dict[str, object]]:
    """Slots that claim to be these boundaries."""
    return [{"boundary": number} for number in numbers]
