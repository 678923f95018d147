"""Transformers' knobs. Argument names were read in 5.17 to 5.24."""

from __future__ import annotations

from .knob import Knob, Value
from .knobs_common import batch, decode, dtype, weights

KNOBS = (
    Knob(
        "hf",
        "mask",
        "mask-differs",
        "the attention mask",
        "engine_args",
        proof="argument",
        args=("mask_token_id",),
        values=(Value("full mask"),),
        likely=1.0,
    ),
    weights("hf", ("quantization_config",)),
    dtype("hf"),
    Knob(
        "hf",
        "attention-backend",
        "attention-backend",
        "the attention kernels",
        "engine_args",
        proof="setting",
        setting="attention_backend",
        args=("attn_implementation",),
        values=(
            Value("sdpa", {"attn_implementation": "sdpa"}),
            Value("eager", {"attn_implementation": "eager"}),
            Value("flash_attention_2", {"attn_implementation": "flash_attention_2"}, needs=("gpu",)),
        ),
        likely=0.8,
    ),
    Knob(
        "hf",
        "experts",
        "dtype-rounding",
        "how the experts of a layer are multiplied, and so the order of their sums",
        "engine_args",
        proof="setting",
        setting="experts_implementation",
        args=("experts_implementation",),
        values=(
            Value("eager", {"experts_implementation": "eager"}),
            Value("batched_mm", {"experts_implementation": "batched_mm"}),
            Value("grouped_mm", {"experts_implementation": "grouped_mm"}),
        ),
        needs=("moe",),
        versions=("5.0", ""),
        likely=0.5,
    ),
    decode("hf"),
    # Never turned, only noticed: it runs one prompt at a time whatever is asked.
    batch("hf", (), likely=0.1),
)
