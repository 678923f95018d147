"""Rows as float32 tensors, and errors between them."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

HALF_STEP = 2.0**-9  # half a unit in the last place of bf16, relative: no stored row is known better

Rows = Any  # a float tensor or array [n, H]


def float_rows(rows: Rows) -> Tensor:
    """Rows as float32 [n, H]; numpy arrays are shared where their dtype allows."""
    return torch.as_tensor(rows).float()


def unit(rows_nh: Tensor) -> Tensor:
    """Rows scaled to length 1; a row of zeros stays zero."""
    return rows_nh / rows_nh.norm(dim=-1, keepdim=True).clamp_min(1e-30)


def row_errors(ref_nh: Tensor, cand_nh: Tensor) -> Tensor:
    """|c - r| / |r| of each row, float32 [n], from the differences."""
    return (cand_nh - ref_nh).norm(dim=-1) / ref_nh.norm(dim=-1).clamp_min(1e-30)


def middle(values: Tensor) -> float:
    """The median over all finite values; NaN when there is none."""
    kept = values[torch.isfinite(values)]
    return kept.median().item() if kept.numel() else float("nan")


def spread(values: Tensor) -> float:
    """Standard deviation estimated from the median absolute deviation: outlying tokens do not count."""
    kept = values[torch.isfinite(values)]
    return 1.4826 * (kept - kept.median()).abs().median().item() if kept.numel() else float("nan")
