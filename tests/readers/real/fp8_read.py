"""What hs_connectors' own reader gives back for the FP8 files: runs in the environment of speculators."""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path

import torch
from hs_connectors.transfer import FP8Transfer


def main() -> None:
    job = json.loads(Path(sys.argv[1]).read_text())
    folder = Path(job["states"])
    reader, said = FP8Transfer(folder), {}
    for index in range(len(list(folder.glob("hs_*.safetensors")))):
        read = reader.get_cached(index)
        states = read["hidden_states"]
        bits = states.contiguous().view(torch.uint8).numpy().tobytes()
        said[f"hs_{index}"] = {
            "keys": sorted(read),
            "dtype": str(states.dtype),
            "shape": list(states.shape),
            "sha256": hashlib.sha256(bits).hexdigest(),
        }
    print(json.dumps(said, indent=1))


main()
