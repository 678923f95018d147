"""A dataset as speculators 0.4 files it, from states that are there: no engine and nothing of speculators runs.

The files are those of tests/readers/real/speculators-v1, which its own worker and script wrote; test_fixtures.py
holds the two against each other.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch

REAL = Path(__file__).parents[2] / "readers" / "real" / "speculators-v1"


def make_v1_dataset(
    out: Path,
    states: Sequence[Mapping[int, torch.Tensor]],
    token_ids: Sequence[Sequence[int]],
    ids: Sequence[int],
) -> Path:
    """Write data_<i>.pt, data_config.json, sample_lengths.json and token_freq.pt; returns `out`.

    `states` holds, for each sample, boundary -> [T, H], the last one before the final norm. Id i takes boundary
    i + 1, in ascending order of the ids, as 0.3 and 0.4 do. The loss mask is 0 over the first half of a sample.
    Raises KeyError for a boundary that a sample does not have.
    """
    out.mkdir(parents=True)
    masks = [torch.tensor([int(2 * k >= len(t)) for k in range(len(t))]) for t in token_ids]
    counted: Counter[int] = Counter()
    for index, (sample, given, mask) in enumerate(zip(states, token_ids, masks, strict=True)):
        tokens = torch.tensor(list(given), dtype=torch.long)
        slots = [sample[i + 1].to(torch.bfloat16).clone().contiguous() for i in sorted(set(ids))]
        torch.save({"input_ids": tokens, "hidden_states": slots, "loss_mask": mask}, out / f"data_{index}.pt")
        counted.update(tokens[mask.bool()].tolist())
    torch.save(dict(counted), out / "token_freq.pt")
    lengths = {str(i): len(t) for i, t in enumerate(token_ids)}
    (out / "sample_lengths.json").write_text(json.dumps(lengths, indent=2))
    width = next(iter(states[0].values())).shape[-1]
    (out / "data_config.json").write_text(json.dumps(_config(list(ids), width, len(states)), indent=2))
    return out


def _config(ids: list[int], width: int, samples: int) -> dict[str, object]:
    """The real config with what depends on the data changed."""
    config: dict[str, dict[str, object]] = json.loads((REAL / "data_config.json").read_text())
    was, now = " --layer-ids 2 4 5 7", f" --layer-ids {' '.join(map(str, ids))}"
    config["reproducibility"]["command"] = str(config["reproducibility"]["command"]).replace(was, now)
    config["model"]["hidden_size"] = width
    config["data"]["num_samples"] = samples
    config["hidden_states"]["layer_ids"] = ids
    schema: dict[str, dict[str, object]] = config["format"]["schema"]  # type: ignore[assignment]
    schema["hidden_states"] |= {
        "shape": f"list of [seq_len, {width}]",
        "num_tensors": len(ids),
        "description": f"Hidden states from {len(ids)} layers",
    }
    return dict(config)
