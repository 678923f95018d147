"""Integers packed into int32 words, as checkpoints store them."""

from __future__ import annotations

import torch

WORD = 32
AWQ_ORDER = (0, 2, 4, 6, 1, 3, 5, 7)  # AutoAWQ's gemm layout: place in the word -> column


def unpack_columns(packed_rw: torch.Tensor, bits: int, columns: int) -> torch.Tensor:
    """Unsigned values [r, columns] of words int32 [r, w], the lowest bits first."""
    shifts = torch.arange(0, WORD - bits + 1, bits, dtype=torch.int32, device=packed_rw.device)
    values = (packed_rw.unsqueeze(-1) >> shifts) & ((1 << bits) - 1)
    return values.reshape(packed_rw.shape[0], -1)[:, :columns]


def unpack_rows(packed_wc: torch.Tensor, bits: int, rows: int) -> torch.Tensor:
    """Unsigned values [rows, c] of words int32 [w, c], the lowest bits first."""
    return unpack_columns(packed_wc.t(), bits, rows).t()


def awq_columns(packed_rw: torch.Tensor, columns: int) -> torch.Tensor:
    """Unsigned 4-bit values [r, columns] of words in AutoAWQ's order."""
    stored = unpack_columns(packed_rw, 4, columns).view(packed_rw.shape[0], -1, len(AWQ_ORDER))
    back = torch.tensor(AWQ_ORDER, device=packed_rw.device).argsort()
    return stored[..., back].reshape(packed_rw.shape[0], columns)
