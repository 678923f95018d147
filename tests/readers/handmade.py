"""Hand-built files in the layouts that vLLM's hidden-state extraction leaves, and the Arrow dataset beside them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow
import torch
from safetensors.torch import save_file

from tests.readers import asserts

SLOTS, WIDTH = 4, 8


def ids_of(number: int, tokens: int = 5) -> list[int]:
    return [100 * number + k for k in range(tokens)]


def extracted(number: int = 0, tokens: int = 5) -> dict[str, torch.Tensor]:
    """What ExampleHiddenStatesConnector saves."""
    states = asserts.random_states(tokens, SLOTS, WIDTH, seed=number)
    return {"hidden_states": states, "token_ids": torch.tensor(ids_of(number, tokens))}


def quantised(number: int = 0, tokens: int = 5) -> dict[str, torch.Tensor]:
    """What FP8HiddenStatesConnector saves: one scale per token (hs_connectors.fp8_utils.quantize_tensor_to_fp8)."""
    whole = extracted(number, tokens)
    wide = whole["hidden_states"].float()
    scale = (wide.abs().amax(dim=(1, 2), keepdim=True) / 448.0).clamp(min=1e-12)
    whole["hidden_states"] = (wide / scale).to(torch.float8_e4m3fn)
    return whole | {"hidden_states_scales": scale}


def write(path: Path, content: dict[str, torch.Tensor]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    save_file(content, path)
    return path


def mask_of(ids: Sequence[int]) -> list[int]:
    return [k % 2 for k in range(len(ids))]


def arrow(folder: Path, rows: Sequence[Sequence[int]], files: int = 1, state: Any = None) -> None:
    """Rows as `datasets` saves them: Arrow streams and a state.json that lists them."""
    folder.mkdir(parents=True, exist_ok=True)
    names = [f"data-{k:05d}-of-{files:05d}.arrow" for k in range(files)]
    per_file = -(-len(rows) // files)
    for k, name in enumerate(names):
        some = rows[k * per_file : (k + 1) * per_file]
        columns = {"input_ids": list(map(list, some)), "loss_mask": [mask_of(r) for r in some]}
        table = pyarrow.table(columns | {"seq_len": [len(r) for r in some]})
        with (
            pyarrow.OSFile(str(folder / name), "wb") as out,
            pyarrow.ipc.new_stream(out, table.schema) as into,
        ):
            into.write_table(table, max_chunksize=2)
    listed = [{"filename": name} for name in names]
    (folder / "state.json").write_text(json.dumps(state or {"_data_files": listed, "_split": None}))
    (folder / "dataset_info.json").write_text("{}")
