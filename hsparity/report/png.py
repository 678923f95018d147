"""Palette PNGs in memory: one byte a cell, repeated so that no viewer blurs it."""

from __future__ import annotations

import base64
import struct
import zlib
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

WIDEST = 1200  # pixels a small map is repeated up to
REPEAT = 6


def encode(index_hw: NDArray[np.uint8], palette: Sequence[tuple[int, int, int]]) -> bytes:
    """PNG bytes of a [height, width] array of palette indices."""
    height, width = index_hw.shape
    rows = np.zeros((height, width + 1), np.uint8)  # filter type 0 in front of each row
    rows[:, 1:] = index_hw
    colors = bytes(v for color in palette for v in color)
    return (
        b"\x89PNG\r\n\x1a\n"
        + _chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0))
        + _chunk(b"PLTE", colors)
        + _chunk(b"IDAT", zlib.compress(rows.tobytes(), 9))
        + _chunk(b"IEND", b"")
    )


def data_uri(index_hw: NDArray[np.uint8], palette: Sequence[tuple[int, int, int]]) -> str:
    """A data URI; cells are repeated, because `image-rendering: pixelated` is ignored in PDF export."""
    height, width = index_hw.shape
    across = max(1, min(REPEAT, WIDEST // max(width, 1)))
    down = max(1, min(REPEAT, WIDEST // max(height, 1)))
    large = index_hw.repeat(down, axis=0).repeat(across, axis=1)
    return "data:image/png;base64," + base64.b64encode(encode(large, palette)).decode()


def _chunk(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
