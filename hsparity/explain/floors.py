"""E25x: noise floors. These exit 2."""

from __future__ import annotations

from .entry import entry

TEXTS = (
    entry(
        "E250",
        "no-floor-made",
        "`hsparity floor` could capture nothing that the capture's differences could be measured against.",
        "No engine that is needed runs here: Transformers for fp32 and bf16, the capture's own engine for the rest. Or "
        "the folder is a file of states, which no engine made here, or holds no prompt.",
        "The message has one line for each kind that was asked for. `hsparity engines list` shows what is installed; "
        "`pip install 'hsparity[hf]'` adds Transformers, which is enough for fp32 and bf16.",
    ),
    entry(
        "E251",
        "another-engine",
        "The capture's own engine is here in another release, or on another device, than the capture was made with.",
        "A repeat by another release would measure the difference of two releases and call it noise.",
        "Install that release, `hsparity engines install vllm==0.31.0`, or capture again with the one that is here. "
        "fp32 and bf16 by Transformers need no engine of the capture's: `--only fp32,bf16`.",
    ),
    entry(
        "E252",
        "unknown-floor",
        "--only names a kind of floor that there is none of.",
        "The kinds are fp32, bf16, repeat, batch, prefilled, decoded and chunked; prefill-decode stands for prefilled "
        "and decoded.",
        "Name some of them, separated by commas: `--only fp32,bf16,repeat`. Left out, every kind that applies is made.",
    ),
)
