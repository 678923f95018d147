"""A comparison of real size, for tests and measurements of its page."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from hsparity.model import MAP_COLUMNS, Comparison, TokenMap

from .cases import CASES


def real_size() -> Comparison:
    """62 boundaries, 50 prompts of 8,192 tokens, as comparing keeps them."""
    rng, step = np.random.default_rng(1), -(-50 * 8192 // MAP_COLUMNS)
    width = -(-8192 // step)
    columns = 50 * width
    claimed = 2.0 - 0.02 * np.arange(62)[:, None] + 0.15 * rng.standard_normal((62, columns))
    undone = 0.12 + 0.05 * rng.standard_normal((62, columns)) + (rng.random((62, columns)) < 0.02)
    tokens = TokenMap(
        tuple(range(62)),
        step,
        tuple((f"p{i}", i * width, (i + 1) * width) for i in range(50)),
        (np.round(claimed * 64) / 64).astype(np.float16),
        (np.round(undone * 64) / 64).astype(np.float16),
        "floor",
        np.tile(np.arange(width, dtype=np.int32) * step, 50),
        rng.integers(0, 129280, columns).astype(np.int32),
        tuple(f" token{i % 977}" for i in range(columns)),
    )
    return replace(CASES["offset"](), map=tokens)
