"""Rows on their way out of the engine: one file per forward pass, written where the model runs, collected by the driver.

The model may live in another process than the driver (SGLang's scheduler, vLLM's engine core and workers), so rows
travel through `spool/` in the capture folder. A row is known by (request, position, token id), taken from the engine's
own scheduling data, never by its order.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import save_file

FOLDER = "spool"


@dataclass(frozen=True)
class Span:
    """Rows [start, stop) of a forward pass belong to `request`; their positions and ids are given per row."""

    request: str
    start: int
    stop: int


class StepRecorder:
    """Collects one forward pass at a time. Not thread-safe; one per model process, rank 0 only."""

    def __init__(self, out: Path, rank: int = 0) -> None:
        self.folder = out / FOLDER
        self.folder.mkdir(parents=True, exist_ok=True)
        self.rank = rank
        self.steps = 0
        self._open = False

    @property
    def recording(self) -> bool:
        """False outside begin/end: warm-up, profiling and dummy passes put nothing."""
        return self._open

    def begin(self, spans: Sequence[Span], token_ids: torch.Tensor, positions: torch.Tensor) -> None:
        """Open a pass. `token_ids` and `positions` are int [n], one per real (un-padded) row; copied at once."""
        self._spans = list(spans)
        self._rows = max((s.stop for s in spans), default=0)
        self._tensors: dict[str, torch.Tensor] = {
            "token_ids": token_ids[: self._rows].detach().to("cpu", torch.int32, copy=True),
            "positions": positions[: self._rows].detach().to("cpu", torch.int32, copy=True),
        }
        self._padded = 0
        self._open = True

    def put(self, key: str, tensor: torch.Tensor) -> None:
        """Keep `tensor` [>= n, ...] under a site key, copied to the CPU now; rows past n are padding, dropped and counted."""
        self._padded = max(self._padded, tensor.shape[0] - self._rows)
        self._tensors[key] = tensor[: self._rows].detach().to("cpu", copy=True).contiguous()

    def end(self) -> None:
        """Close the pass and write its file atomically."""
        if not self._open:
            return
        self._open = False
        metadata = {
            "spans": json.dumps([[s.request, s.start, s.stop] for s in self._spans]),
            "step": str(self.steps),
            "padded": str(self._padded),
        }
        path = self.folder / f"step-{self.rank:03d}-{self.steps:08d}.safetensors"
        temporary = path.with_suffix(".tmp")
        save_file(self._tensors, temporary, metadata)
        os.replace(temporary, path)
        self._tensors = {}
        self.steps += 1

    def abandon(self) -> None:
        """Drop an open pass (the forward raised)."""
        self._open, self._tensors = False, {}


@dataclass(frozen=True)
class Piece:
    """One request's rows of one forward pass."""

    step: int
    token_ids: torch.Tensor  # int32 [n]
    positions: torch.Tensor  # int32 [n]
    sites: dict[str, torch.Tensor]  # each [n, ...]


@dataclass
class Collected:
    """What the spool held: pieces per request in pass order, and how many padded rows the passes had."""

    pieces: dict[str, list[Piece]]
    padded: int
    steps: int


def collect(out: Path) -> Collected:
    """Read and remove every finished step file, in pass order."""
    result = Collected({}, 0, 0)
    for path in sorted((out / FOLDER).glob("step-*.safetensors")):
        with safe_open(path, "pt") as shard:
            metadata = shard.metadata()
            tensors = {key: shard.get_tensor(key) for key in shard.keys()}  # noqa: SIM118
        token_ids, positions = tensors.pop("token_ids"), tensors.pop("positions")
        for request, start, stop in json.loads(metadata["spans"]):
            piece = Piece(
                int(metadata["step"]),
                token_ids[start:stop],
                positions[start:stop],
                {key: t[start:stop] for key, t in tensors.items()},
            )
            result.pieces.setdefault(request, []).append(piece)
        result.padded += int(metadata["padded"])
        result.steps += 1
        path.unlink()
    return result
