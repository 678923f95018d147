"""A checkpoint's twin: the same weights dequantised and rounded to bfloat16, as an unquantised checkpoint.

The error of a quantised checkpoint on an engine is the error of its weights plus that of its kernels; the twin has the
first and not the second.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from hsparity.capture.checkpoint import INDEX
from hsparity.capture.shards import Tensor
from hsparity.errors import HsparityError
from hsparity.weights.checkpoint import Checkpoint

SHARD_BYTES = 2 << 30
NOTE = "hsparity-twin.json"
QUANTISED_KEYS = ("quantization_config", "compression_config")
WEIGHTS = (".safetensors", ".bin", ".pt", ".pth", ".gguf", ".index.json")

Progress = Callable[[float, float, str], None]


def twin(model: Path, out: Path, progress: Progress | None = None, shard_bytes: int = SHARD_BYTES) -> Path:
    """Write the bfloat16 twin of a checkpoint folder to `out`, a shard of at most `shard_bytes` (or one weight) at a
    time, and return `out`.

    Weights that are not quantised keep their dtype; tokenizer and other small files are copied. A twin that is there
    is kept, one that was interrupted goes on after its last whole shard: config.json is written last. Raises E235 when
    `out` holds anything else, and what `Checkpoint` raises.
    """
    checkpoint = Checkpoint(model)
    stamp = _stamp(checkpoint, shard_bytes)
    if _started(out, stamp) and (out / "config.json").is_file():
        return out
    out.mkdir(parents=True, exist_ok=True)
    _write_json(out / NOTE, stamp)
    plan = list(_shards(checkpoint, shard_bytes))
    placed: dict[str, str] = {}
    for number, names in enumerate(plan, 1):
        file = f"model-{number:05d}-of-{len(plan):05d}.safetensors"
        placed |= dict.fromkeys(names, file)
        if progress is not None:
            progress(number - 1, len(plan), file)
        if not (out / file).is_file():
            _write_shard(checkpoint, names, out / file)
    _write_json(out / INDEX, {"metadata": {}, "weight_map": placed})
    for beside in sorted(model.iterdir()):
        if beside.is_file() and beside.name != "config.json" and not beside.name.endswith(WEIGHTS):
            shutil.copyfile(beside, out / beside.name)
    _write_json(out / "config.json", _unquantised(json.loads((model / "config.json").read_text())))
    return out


def _stamp(checkpoint: Checkpoint, shard_bytes: int) -> dict[str, Any]:
    """What decides a twin's content: the source's files by size and time."""
    files = sorted(set(checkpoint.files.values()) | {checkpoint.folder / "config.json"})
    states = {f.name: [(s := f.stat()).st_size, s.st_mtime_ns] for f in files}
    return {"source": str(checkpoint.folder), "files": states, "shard_bytes": shard_bytes}


def _started(out: Path, stamp: dict[str, Any]) -> bool:
    """Whether `out` is this twin, begun or whole. Raises E235 for a folder of anything else."""
    if not out.exists() or not any(out.iterdir()):
        return False
    try:
        found = json.loads((out / NOTE).read_text())
    except (OSError, ValueError):
        found = {}
    if found != stamp:
        was = f"a twin of {found['source']}" if "source" in found else "no twin of ours"
        raise HsparityError(
            "E235", f"{out} holds {was}", (f"asked for: {stamp['source']}",), "name another folder"
        )
    return True


def _shards(checkpoint: Checkpoint, most: int) -> Iterator[list[str]]:
    names: list[str] = []
    used = 0
    for name in sorted(checkpoint.names()):
        size = _bytes(checkpoint, name)
        if names and used + size > most:
            yield names
            names, used = [], 0
        names.append(name)
        used += size
    if names:
        yield names


def _bytes(checkpoint: Checkpoint, name: str) -> int:
    """About what a weight takes in bfloat16, from the headers alone."""
    stored = checkpoint.stored[name]
    main: Tensor = checkpoint.header(stored[0])
    count = 1
    for length in main.shape:
        count *= length
    if len(stored) > 1 and main.dtype == "I32":
        rule = checkpoint.scheme.rule(name.rpartition(".")[0])
        count *= 32 // (rule.bits if rule else 4)
    return count * (4 if main.dtype == "F32" else 2)


def _write_shard(checkpoint: Checkpoint, names: list[str], file: Path) -> None:
    tensors = {}
    for name in names:
        value = checkpoint.read(name)
        tensors[name] = (value.to(torch.bfloat16) if checkpoint.is_quantised(name) else value).contiguous()
    temporary = file.with_suffix(".tmp")
    save_file(tensors, temporary, metadata={"format": "pt"})
    os.replace(temporary, file)


def _unquantised(config: dict[str, Any]) -> dict[str, Any]:
    """The config without any mention of quantisation, at every depth."""
    kept = {k: v for k, v in config.items() if k not in QUANTISED_KEYS}
    return {k: _unquantised(v) if isinstance(v, dict) else v for k, v in kept.items()}


def _write_json(path: Path, value: Any) -> None:
    temporary = path.with_suffix(".json.tmp")
    temporary.write_text(json.dumps(value, indent=1, sort_keys=True) + "\n")
    os.replace(temporary, path)
