"""Reads the part of GGUF version 3 that SmolLM2 uses: metadata, and F32, Q4_1 and Q8_0 tensors."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

_SCALARS = {
    0: "<B",
    1: "<b",
    2: "<H",
    3: "<h",
    4: "<I",
    5: "<i",
    6: "<f",
    7: "<?",
    10: "<Q",
    11: "<q",
    12: "<d",
}
_STRING, _ARRAY = 8, 9
_F32, _Q4_1, _Q8_0 = 0, 3, 8
_BLOCK = 32  # weights per quantised block
_BLOCK_BYTES = {_Q4_1: 20, _Q8_0: 34}


class GgufFile:
    """A GGUF file held in memory. Raises ValueError for anything it does not know."""

    def __init__(self, path: Path) -> None:
        self._data = path.read_bytes()
        self._at = 0
        magic, version, tensors, keys = struct.unpack("<4sIQQ", self._take(24))
        if magic != b"GGUF" or version != 3:
            raise ValueError(f"not a GGUF version 3 file: {path}")
        self.metadata: dict[str, Any] = {self._string(): self._value(self._scalar("<I")) for _ in range(keys)}
        self._tensors = {}
        for _ in range(tensors):
            name = self._string()
            shape = tuple(self._scalar("<Q") for _ in range(self._scalar("<I")))
            self._tensors[name] = (shape[::-1], self._scalar("<I"), self._scalar("<Q"))
        alignment = self.metadata.get("general.alignment", 32)
        self._start = -(-self._at // alignment) * alignment

    def names(self) -> list[str]:
        return list(self._tensors)

    def tensor(self, name: str) -> NDArray[np.float32]:
        """A tensor as float32, in row-major shape (out, in)."""
        shape, kind, offset = self._tensors[name]
        count = int(np.prod(shape))
        start = self._start + offset
        if kind == _F32:
            return np.frombuffer(self._data, "<f4", count, start).reshape(shape).astype(np.float32)
        if kind not in _BLOCK_BYTES:
            raise ValueError(f"{name} has ggml type {kind}, which is not read here")
        size = _BLOCK_BYTES[kind]
        blocks = np.frombuffer(self._data, np.uint8, count // _BLOCK * size, start).reshape(-1, size)
        return (_q4_1(blocks) if kind == _Q4_1 else _q8_0(blocks)).reshape(shape)

    def _take(self, count: int) -> bytes:
        self._at += count
        return self._data[self._at - count : self._at]

    def _scalar(self, form: str) -> Any:
        return struct.unpack(form, self._take(struct.calcsize(form)))[0]

    def _string(self) -> str:
        return self._take(self._scalar("<Q")).decode("utf-8")

    def _value(self, kind: int) -> Any:
        if kind == _STRING:
            return self._string()
        if kind == _ARRAY:
            inner, count = self._scalar("<I"), self._scalar("<Q")
            return [self._value(inner) for _ in range(count)]
        return self._scalar(_SCALARS[kind])


def _half(blocks: NDArray[np.uint8], start: int) -> NDArray[np.float32]:
    return blocks[:, start : start + 2].copy().view("<f2").astype(np.float32)


def _q4_1(blocks: NDArray[np.uint8]) -> NDArray[np.float32]:
    """Scale, minimum, then 32 nibbles: the low ones first."""
    nibbles = np.concatenate([blocks[:, 4:] & 15, blocks[:, 4:] >> 4], axis=1).astype(np.float32)
    return nibbles * _half(blocks, 0) + _half(blocks, 2)


def _q8_0(blocks: NDArray[np.uint8]) -> NDArray[np.float32]:
    """Scale, then 32 signed bytes."""
    return blocks[:, 2:].view(np.int8).astype(np.float32) * _half(blocks, 0)
