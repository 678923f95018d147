"""States whose numbers were spoilt by how they are stored."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import torch

from tests.causes.faults.base import each, fault, v
from tests.causes.real import SMOL, TINY, load
from tests.causes.streams import Capture, States, edited

T, S = (TINY,), (SMOL,)
FP8 = {"e4m3": (torch.float8_e4m3fn, 448.0), "e5m2": (torch.float8_e5m2, 57344.0)}
FP16_MOST, FP16_LEAST = 65504.0, 2.0**-14  # largest, and smallest that is not subnormal


def truncated(state: np.ndarray) -> np.ndarray:
    """bf16 by cutting the lower half of float32 off: always toward zero."""
    return (state.astype("<f4").view("<u4") & np.uint32(0xFFFF0000)).view("<f4").astype(np.float64)


# Once truncated, a state leans by half an ulp, which only the fp32 capture shows: engines that round well lean as
# much against each other (vLLM by 0.56 ulp at SmolLM2's boundary 15).
@fault(
    "truncated-rounding",
    v("stored by truncation", adds=0, models=T),
    v("one addition a layer", adds=1, cand="sglang"),
    v("one addition a layer, no floor", adds=1, floor=False),
    v("two additions a layer", adds=2, cand="sglang"),
    v("two additions a layer, three slots", adds=2, shape="three"),
)
def truncated_rounding(made: Capture, adds: int) -> Capture:
    """The fp32 stream, truncated to bf16 where it is stored, or after every addition so that the loss adds up."""
    exact = load(_recorded(made), "hf-fp32").states

    def change(name: str, states: States) -> States:
        keys = [k for k in states if k.startswith("boundary")]
        true = {k: exact[name][k] for k in keys}
        held = truncated(true[keys[0]])
        found = {keys[0]: held}
        for before, after in pairwise(keys):
            for _ in range(adds):
                held = truncated(held + (true[after] - true[before]) / adds)
            found[after] = held if adds else truncated(true[after])
        return {**states, **found}

    return edited(made, change)


def _recorded(made: Capture) -> str:
    return made.model.name.replace(":", "-")


def fp8(state: np.ndarray, form: str, scaled: str) -> np.ndarray:
    """[T, H] states through fp8 and back, scaled to its largest number per "tensor", per "token", or "not"."""
    kind, most = FP8[form]
    x = torch.from_numpy(state)
    sizes = {"tensor": x.abs().max(), "token": x.abs().amax(1, keepdim=True), "not": torch.tensor(most)}
    scale = sizes[scaled].double() / most
    found: np.ndarray = ((x / scale).float().to(kind).double() * scale).numpy()
    return found


@fault(
    "stored-fp8",
    v("e4m3, a scale per tensor", form="e4m3", scaled="tensor"),
    v("e4m3, a scale per token", form="e4m3", scaled="token", cand="sglang"),
    v("e5m2, no scale", form="e5m2", scaled="not"),
    v("e4m3, a scale per token, three slots", form="e4m3", scaled="token", shape="three"),
    v("e5m2, no scale, no floor", form="e5m2", scaled="not", floor=False, cand="sglang"),
    v("e4m3, a scale per token, the last state alone", form="e4m3", scaled="token", shape="last"),
)
def stored_fp8(made: Capture, form: str, scaled: str) -> Capture:
    """States were computed well and kept in eight bits."""
    return each(made, "every", lambda x: fp8(x, form, scaled))


def to_fp16(state: np.ndarray) -> np.ndarray:
    """[T, H] states through fp16, subnormals flushed: inf beyond its range, zero below."""
    small = np.abs(state) < FP16_LEAST
    with np.errstate(over="ignore"):
        return np.where(small, 0.0, state.astype(np.float16).astype(np.float64))


# The units of the stream are those of a model whose massive channels reach beyond fp16, or below it.
LARGE = {TINY: 2.0**13, SMOL: 2.0**3}
SMALL = 2.0**-10


@fault(
    "stored-fp16",
    v("inf beyond 65504", how="inf", unit=LARGE[TINY], models=T),
    v("inf beyond 65504", how="inf", unit=LARGE[SMOL], models=S, cand="sglang"),
    v("held at 65504", how="clamped", unit=LARGE[TINY], models=T, cand="sglang"),
    v("held at 65504, no floor", how="clamped", unit=LARGE[SMOL], models=S, floor=False),
    v("subnormals flushed", how="flushed", unit=SMALL),
    v("a float16 file", how="file", unit=LARGE[TINY], models=T),
)
def stored_fp16(made: Capture, how: str) -> Capture:
    """States passed through fp16: beyond 65504 they are inf or held there, below 2 ** -14 they are zero."""
    if how == "clamped":
        return each(made, "every", lambda x: np.clip(x, -FP16_MOST, FP16_MOST))
    changed = each(made, "every", to_fp16)
    return replace(changed, dtype=torch.float16) if how == "file" else changed


@fault(
    "nonfinite",
    v("NaN rows from a layer on", how="rows"),
    v("inf in one channel", how="channel", cand="sglang"),
    v("a slot of NaN", how="slot", shape="three"),
    v("one NaN, no floor", how="one", floor=False),
)
def nonfinite(made: Capture, how: str) -> Capture:
    """NaN or inf: in rows from a layer on, in one channel, in a whole slot, or once."""
    middle = {8: 4, 30: 15}[made.model.layers]
    first = next(iter(made.states))

    def change(name: str, states: States) -> States:
        for k in sorted(k for k in states if k.startswith("boundary")):
            after = int(k[-3:]) - middle
            if how == "rows" and name == first and after >= 0:
                states[k][3:5] = np.nan
            if how == "channel" and after >= 0:
                states[k][-1, 7] = np.inf
            if how == "slot" and after == 0:
                states[k][:] = np.nan
            if how == "one" and name == first and after == 0:
                states[k][2, 5] = np.nan
        return states

    return edited(made, change)
