"""SpecForge 0.1 and 0.2, EAGLE-3: `rows_<a>-<b>/data_<i>.ckpt`, as scripts/prepare_hidden_states.py lays them out.

`input_ids` int64 [T], `loss_mask` int64 [T], `aux_hidden_state` [1, T, kH] and `hidden_state` [1, T, H], the last state
after the final norm.
"""

from __future__ import annotations

from pathlib import Path

from hsparity.capture.readers.base import Sample
from hsparity.capture.writers import parts
from hsparity.capture.writers.base import Layout, Sink, Writer
from hsparity.capture.writers.whole import save_torch, sweep

GROUP = 2000  # samples in a folder, as SpecForge 0.2 groups them


class SpecForgeSink(Sink):
    """See the module's docstring."""

    def __init__(self, out: Path, layout: Layout) -> None:
        self.out = out
        sweep(out)

    def add(self, index: int, sample: Sample) -> None:
        import torch

        ids, mask = parts.tokens(sample)
        first = index // GROUP * GROUP
        folder = self.out / f"rows_{first}-{first + GROUP}"
        folder.mkdir(exist_ok=True)
        *aux, last = sample.states
        content = {
            "input_ids": ids,
            "loss_mask": mask,
            "hidden_state": parts.own(last)[None],
            "aux_hidden_state": torch.cat(aux, dim=1)[None],
        }
        save_torch(folder / f"data_{index}.ckpt", content)

    def finish(self) -> None:
        """Nothing lies beside the samples."""


WRITER = Writer("specforge", "SpecForge offline (0.1, 0.2)", True, SpecForgeSink)
