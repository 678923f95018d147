"""Models whose state between layers is not one residual stream, and how to tell them: by name, by config, by shape.

Nothing but the standard library: the probe reads it inside engines, the comparison beside captures.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Family:
    """One way to keep several streams. A count above 1, or a set flag, in the config says it; so does a name."""

    what: str  # as it is said to the user
    names: tuple[str, ...]  # parts of class names and model types, lower case, without separators
    counts: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()


# From the model files of vLLM 0.32, SGLang 0.5.23 and Transformers 5.24.
FAMILIES = (
    Family(
        "hyper-connections: every layer reads and writes a mix of several streams",
        ("deepseekv4", "glm5next", "hyv4", "hunyuanv4", "qwen4exp"),
        counts=("hc_mult", "hc_count"),
        flags=("mhc",),
    ),
    Family(
        "attention residuals: a layer reads a mix of states saved layers ago",
        ("kimik3",),
        flags=("attn_res_block_size",),
    ),
    Family("AltUp: every layer updates one of several streams", ("gemma3n",), counts=("altup_num_inputs",)),
)
KEYS = tuple(key for family in FAMILIES for key in (*family.counts, *family.flags))
NESTED = ("text_config", "llm_config")


def several_streams(architecture: str, config: Mapping[str, Any]) -> str:
    """Why this model has no single residual stream, naming what says so; empty when it has one.

    `config` is a config.json, or as much of it as is known.
    """
    parts = [config, *(inner for key in NESTED if isinstance(inner := config.get(key), Mapping))]
    for part in parts:
        for family in FAMILIES:
            for key in family.counts:
                if isinstance(value := part.get(key), (int, float)) and value > 1:
                    return f"{family.what} (config.{key} = {value})"
            for key in family.flags:
                if value := part.get(key):
                    return f"{family.what} (config.{key} = {value})"
    names = [architecture]
    for part in parts:
        listed = part.get("architectures")
        names += [
            str(part.get("model_type") or ""),
            *map(str, listed if isinstance(listed, Sequence) else ()),
        ]
    for name in names:
        plain = "".join(c for c in name.lower() if c.isalnum())
        for family in FAMILIES:
            if any(known in plain for known in family.names):
                return f"{family.what} ({name})"
    return ""


def odd_output(tensors: Iterable[Any]) -> str:
    """Why what a layer handed on, floating tensors in order, is not hidden or hidden and residual, [n, H] each;
    empty when it is."""
    shapes = [tuple(t.shape) for t in tensors]
    listed = ", ".join(str(list(shape)) for shape in shapes)
    if len(shapes) > 2:
        return f"a layer hands on {len(shapes)} states, {listed}"
    if any(len(shape) != 2 for shape in shapes):
        return f"a layer hands on states of another form than [tokens, hidden size]: {listed}"
    if len(set(shapes)) > 1:
        return f"a layer hands on a hidden state and a residual of different shapes: {listed}"
    return ""
