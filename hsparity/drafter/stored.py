"""Values of the few tensors that a check reads, by numpy: the vocabulary maps whole, of an embedding or a head a sample of
rows."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hsparity.capture import checkpoint
from hsparity.capture.shards import read_header
from hsparity.drafter.draft import pickle_file
from hsparity.errors import HsparityError

if TYPE_CHECKING:
    from hsparity.drafter.checks.base import TargetModel
    from hsparity.drafter.draft import Draft

KINDS = {"I64": "<i8", "I32": "<i4", "BOOL": "?", "U8": "u1", "F32": "<f4", "F16": "<f2", "BF16": "<u2"}
ROWS = 64  # of an embedding or a head that are compared
# The names that a target's checkpoint may use.
EMBEDDINGS = (
    "model.embed_tokens.weight",
    "language_model.model.embed_tokens.weight",
    "model.language_model.embed_tokens.weight",
    "embed_tokens.weight",
)
LM_HEADS = ("lm_head.weight", "language_model.lm_head.weight", "model.lm_head.weight")


def whole(draft: Draft, name: str) -> NDArray[Any] | None:
    """A small tensor of the draft by its canonical name; None where its bytes are not here or of no known kind."""
    stored = draft.stored.get(name)
    if stored is None:
        return None
    if pickled := pickle_file(draft.folder):
        from hsparity.capture.readers import pickled as reader

        value = reader.load(pickled)[stored]
        return np.asarray(value.float().numpy() if value.is_floating_point() else value.numpy())
    file = _file_of(draft.folder, stored)
    return None if file is None else _rows(file, stored, None)


def sample(draft: Draft, name: str, rows: NDArray[np.int64]) -> NDArray[np.float32] | None:
    """Rows float32 [n, H] of a draft's tensor; None where they cannot be read."""
    if pickle_file(draft.folder):
        found = whole(draft, name)
        return None if found is None else np.asarray(found[rows], np.float32)
    stored = draft.stored.get(name, "")
    file = _file_of(draft.folder, stored)
    return None if file is None else _rows(file, stored, rows)


def target_sample(
    target: TargetModel, names: tuple[str, ...], rows: NDArray[np.int64]
) -> NDArray[np.float32] | None:
    """Rows float32 [n, H] of the first of these tensors that the target's checkpoint has; None without one."""
    for name in names:
        file = _file_of(target.folder, name)
        if file is not None:
            return _rows(file, name, rows)
    return None


def spread(rows: int, count: int = ROWS) -> NDArray[np.int64]:
    """Row numbers spread over a tensor."""
    return np.unique(np.linspace(0, rows - 1, min(count, rows)).astype(np.int64))


def distance(a_nh: NDArray[np.float32], b_nh: NDArray[np.float32]) -> float:
    """Relative L2 distance, from the differences."""
    norm = float(np.linalg.norm(b_nh))
    gap = float(np.linalg.norm(a_nh - b_nh))
    return gap / norm if norm else (0.0 if gap == 0 else math.inf)


def _file_of(folder: Path, stored: str) -> Path | None:
    try:
        return checkpoint.tensor_files(folder).get(stored)
    except HsparityError:
        return None


def _rows(file: Path, name: str, rows: NDArray[np.int64] | None) -> NDArray[Any] | None:
    try:
        entry = read_header(file).get(name)
    except HsparityError:
        return None
    if entry is None or entry.dtype not in KINDS:
        return None
    data = np.memmap(file, KINDS[entry.dtype], "r", entry.offset, entry.shape or (1,))
    taken = np.array(data if rows is None else data[rows])
    if entry.dtype == "BF16":
        return (taken.astype(np.uint32) << 16).view(np.float32)
    return taken if rows is None else taken.astype(np.float32)
