"""What the writers share: a sample's tokens and mask as the trainers store them, and how often each token is learnt."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from hsparity.capture.readers.base import Sample

if TYPE_CHECKING:
    import torch


def tokens(sample: Sample) -> tuple[torch.Tensor, torch.Tensor]:
    """`input_ids` and `loss_mask`, int64 [T]; a sample without a mask is learnt from whole."""
    import torch

    assert sample.token_ids is not None
    ids = torch.from_numpy(sample.token_ids.astype(np.int64))
    mask = sample.loss_mask
    return ids, torch.ones_like(ids) if mask is None else torch.from_numpy(mask.astype(np.int64))


def own(state: torch.Tensor) -> torch.Tensor:
    """A state in memory of its own: torch.save stores the whole of what a view looks into."""
    import torch

    return state.clone(memory_format=torch.contiguous_format)


def learnt(samples: Iterable[tuple[NDArray[np.int64], NDArray[np.int64]]]) -> dict[int, int]:
    """Token id -> how often it is learnt from: speculators' token_freq.pt (train/vocab_mapping.py).

    Takes (input_ids [T], loss_mask [T]) of every sample.
    """
    counts: Counter[int] = Counter()
    for ids, mask in samples:
        found, times = np.unique(ids[mask == 1], return_counts=True)
        counts.update(dict(zip(found.tolist(), times.tolist(), strict=True)))
    return dict(counts)
