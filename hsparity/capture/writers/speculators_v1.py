"""speculators v1: `data_<i>.pt` beside `data_config.json`, as speculators 0.3 and 0.4 lay them out.

`input_ids` int64 [T], `hidden_states` a list of [T, H], the last one before the final norm, `loss_mask` int64 [T].
`sample_lengths.json` and `token_freq.pt` are what its trainer looks for beside them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hsparity import __version__
from hsparity.capture.readers import pickled
from hsparity.capture.readers.base import Sample
from hsparity.capture.readers.look import number_in
from hsparity.capture.writers import parts
from hsparity.capture.writers.base import Layout, Sink, Writer
from hsparity.capture.writers.whole import save_torch, sweep
from hsprobe.writer import write_text

CONFIG = "data_config.json"
VERSION = "2.0"  # of that file: DataGenerationConfig.VERSION of speculators 0.4.0
DESCRIPTION = "Layers selected for EAGLE3 fusion and target logits"


class SpeculatorsV1Sink(Sink):
    """See the module's docstring."""

    def __init__(self, out: Path, layout: Layout) -> None:
        self.out, self.layout = out, layout
        sweep(out)

    def add(self, index: int, sample: Sample) -> None:
        ids, mask = parts.tokens(sample)
        states = [parts.own(state) for state in sample.states]
        save_torch(
            self.out / f"data_{index}.pt", {"input_ids": ids, "hidden_states": states, "loss_mask": mask}
        )

    def finish(self) -> None:
        held = sorted(self.out.glob("data_*.pt"), key=lambda path: number_in(path.name))
        lengths: dict[str, int] = {}

        def rows() -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
            for path in held:
                content = pickled.load(path)  # the states of it stay on the disk
                lengths[str(number_in(path.name))] = len(content["input_ids"])
                yield content["input_ids"].numpy(), content["loss_mask"].numpy()

        save_torch(self.out / "token_freq.pt", parts.learnt(rows()))
        write_text(self.out / "sample_lengths.json", json.dumps(lengths, indent=2))
        if held:
            states = pickled.load(held[0])["hidden_states"]
            write_text(self.out / CONFIG, json.dumps(self._config(len(held), states), indent=2))

    def _config(self, count: int, states: list[Any]) -> dict[str, Any]:
        """As DataGenerationConfig lays it out, without what is only known of a run of speculators."""
        slots, width = len(states), states[0].shape[1]
        kind = str(states[0].dtype)
        config: dict[str, Any] = {
            "version": VERSION,
            "generated_at": datetime.now(timezone.utc).isoformat(),
            "generated_by": f"hsparity {__version__}",
            "model": {"target_model_path": self.layout.model, "hidden_size": width},
            "data": {"train_data_path": self.layout.note, "num_samples": count},
            "format": {
                "file_pattern": "data_{idx}.pt",
                "schema": {
                    "input_ids": {"dtype": "torch.long", "shape": "[seq_len]"},
                    "hidden_states": {
                        "dtype": f"list[{kind}]",
                        "shape": f"list of [seq_len, {width}]",
                        "num_tensors": slots,
                    },
                    "loss_mask": {"dtype": "torch.long", "shape": "[seq_len]"},
                },
            },
        }
        if ids := layer_ids(self.layout):
            config["hidden_states"] = {"layer_ids": list(ids), "description": DESCRIPTION}
        return config


def layer_ids(layout: Layout) -> tuple[int, ...]:
    """The ids of every state, the last one's included: layer outputs, so boundary k is id k - 1.

    Empty where a boundary is not known, and with boundary 0, which has no such id.
    """
    boundaries = (*layout.boundaries, layout.num_layers)
    return tuple(b - 1 for b in boundaries) if layout.boundaries and min(boundaries) > 0 else ()


WRITER = Writer("speculators-v1", "speculators v1 (0.3, 0.4)", False, SpeculatorsV1Sink)
