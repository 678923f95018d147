"""Recorded streams of real engines, as captures that a test can damage and write."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import torch

from hsparity.capture.read import open_source
from hsparity.capture.source import Source
from tests.causes.packing import FOLDER, Packed, unpack
from tests.causes.streams import Capture, Model

TINY, SMOL = "tiny-deepseek-v3", "smollm2"
NAMES = (TINY, SMOL)
ENGINES = ("hf-bf16", "hf-fp32", "vllm", "sglang")
BRANCHES = ("attn_out", "mlp_out")


@cache
def packed(model: str) -> Packed:
    return unpack((FOLDER / f"{model}.zip").read_bytes())


@cache
def load(model: str, name: str) -> Capture:
    """A recorded capture: states float64 [T, H] per prompt and site. To change it, copy it: `streams.edited`."""
    recorded = packed(model)
    facts = recorded.facts
    about = facts["captures"][name]
    shape = Model(
        layers=facts["num_layers"],
        width=facts["hidden_size"],
        norm=recorded.norm,
        eps=facts["norm"]["eps"],
        plus_one=facts["norm"]["plus_one"],
        name=facts["model"],
        architecture=about["architecture"],
        config=about["model_config"],
    )
    states, start = {}, 0
    for prompt in facts["prompts"]:
        stop = start + len(prompt["token_ids"])
        states[prompt["id"]] = {site: rows[start:stop] for site, rows in recorded.states[name].items()}
        start = stop
    return Capture(
        states,
        ids={p["id"]: p["token_ids"] for p in facts["prompts"]},
        engine=about["engine"],
        version=about["engine_version"],
        dtype=getattr(torch, about["dtype"]),
        settings=about["settings"],
        weights_sha256=about["weights_sha256"],
        prefill={p["id"]: p["prefill"] for p in facts["prompts"]},
        generated={p["id"]: p["generated"] for p in facts["prompts"]},
        real=shape,
    )


def floor(model: str, folder: Path) -> list[Source]:
    """The two Transformers captures that make the bf16 floor, written into `folder`."""
    return [open_source(load(model, name).write(folder / name)) for name in ("hf-fp32", "hf-bf16")]
