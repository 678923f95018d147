"""What numerical faults do to a stream: states that are wrong in their values, and in nothing else.

Every function takes the true boundaries [L + 1, T, H] of one prompt and a generator, and gives the wrong ones. What
a layer makes wrong is kept by all later boundaries, unless the fault is in the storing of each.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from tests.causes.streams import Capture, Model, States, edited

Stream = np.ndarray  # float64 [L + 1, T, H]
Distortion = Callable[[Stream, np.random.Generator], Stream]

GROUP, INT4 = 32, 7.0


def noise(size: float, stream: Stream, rng: np.random.Generator) -> Stream:
    """Every state off by `size` of its norm, in a direction of its own."""
    return stream + size * length(stream) * units(rng, stream.shape)


def growing(size: float, stream: Stream, rng: np.random.Generator) -> Stream:
    """Every update off by `size` of its norm: the error grows with depth."""
    return after(stream, updates(stream) + size * length(updates(stream)) * units(rng, updates(stream).shape))


def one_direction(size: float, stream: Stream, rng: np.random.Generator) -> Stream:
    """Every state off along the same direction, by an amount of its own."""
    amounts = rng.standard_normal((1, stream.shape[1], 1))
    return stream + size * length(stream) * amounts * units(rng, (1, 1, stream.shape[2]))


def wrong_rope(size: float, stream: Stream, rng: np.random.Generator) -> Stream:
    """The first token is exact, and every update of a later one is off by its position."""
    places = np.arange(stream.shape[1])[None, :, None] / max(stream.shape[1] - 1, 1)
    moved = updates(stream)
    return after(stream, moved + size * places * length(moved) * units(rng, moved.shape))


def dropped_expert(share: float, stream: Stream, rng: np.random.Generator) -> Stream:
    """A share of rows gets another token's update in every layer but the first."""
    moved = updates(stream)
    for k in range(1, len(moved)):
        hit = rng.random(moved.shape[1]) < share
        moved[k][hit] = updates(stream)[k][rng.permutation(moved.shape[1])][hit]
    return after(stream, moved)


def unrelated_branch(share: float, stream: Stream, rng: np.random.Generator) -> Stream:
    """A share of rows gets an unrelated branch of the same size in every layer but the first."""
    moved = updates(stream)
    for k in range(1, len(moved)):
        hit = rng.random(moved.shape[1]) < share
        moved[k][hit] = (length(moved[k]) * units(rng, moved[k].shape))[hit]
    return after(stream, moved)


def int4(scale: float, stream: Stream, rng: np.random.Generator) -> Stream:
    """Every update in 15 levels per group of 32 channels, `scale` times the finest steps that hold it."""
    moved = updates(stream)
    grouped = moved.reshape(*moved.shape[:2], -1, GROUP)
    step = scale * np.maximum(np.abs(grouped).max(-1, keepdims=True), 1e-30) / INT4
    return after(stream, (np.clip(np.round(grouped / step), -INT4, INT4) * step).reshape(moved.shape))


def bias(size: float, stream: Stream, rng: np.random.Generator) -> Stream:
    """The same vector on every row of every boundary, `size` of the boundary's median norm."""
    sizes = np.median(length(stream), axis=1, keepdims=True)
    return stream + size * sizes * units(rng, (1, 1, stream.shape[2]))


def bias_of_layers(size: float, stream: Stream, rng: np.random.Generator) -> Stream:
    """Every layer adds a vector of its own to all rows, `size` of its update's median norm."""
    moved = updates(stream)
    sizes = np.median(length(moved), axis=1, keepdims=True)
    return after(stream, moved + size * sizes * units(rng, (len(moved), 1, stream.shape[2])))


def updates(stream: Stream) -> Stream:
    return np.diff(stream, axis=0)


def after(stream: Stream, moved: Stream) -> Stream:
    """The stream that starts as `stream` does and takes these updates."""
    return np.cumsum(np.concatenate((stream[:1], moved)), axis=0)


def length(values: np.ndarray) -> np.ndarray:
    return np.linalg.norm(values, axis=-1, keepdims=True)


def units(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    draw = rng.standard_normal(shape)
    return draw / length(draw)


DISTORTIONS: dict[str, Distortion] = {
    **{f"noise {s:g}": partial(noise, s) for s in (0.01, 0.03, 0.1, 0.3)},
    **{f"growing noise {s:g}": partial(growing, s) for s in (0.03, 0.1, 0.3, 1.0)},
    **{f"one direction {s:g}": partial(one_direction, s) for s in (0.03, 0.1, 0.3)},
    **{f"wrong rope {s:g}": partial(wrong_rope, s) for s in (0.05, 0.3, 1.0)},
    **{f"dropped expert {s:g}": partial(dropped_expert, s) for s in (0.05, 0.2, 0.5)},
    **{f"unrelated branch {s:g}": partial(unrelated_branch, s) for s in (0.05, 0.2, 0.5)},
    **{f"int4 {s:g}": partial(int4, s) for s in (1.0, 2.0)},
    **{f"bias {s:g}": partial(bias, s) for s in (0.01, 0.1, 0.5)},
    **{f"bias of layers {s:g}": partial(bias_of_layers, s) for s in (0.1, 0.5)},
}


def distorted(made: Capture, name: str, seed: int = 17) -> Capture:
    """The capture with its boundaries distorted, its final norm that of what is then last; no branches."""
    rngs = {prompt: np.random.default_rng((seed, i)) for i, prompt in enumerate(made.states)}
    # What is one for the whole model is drawn from the same seed for every prompt.
    shared = name.startswith(("one direction", "bias"))

    def change(prompt: str, states: States) -> States:
        keys = sorted(k for k in states if k.startswith("boundary"))
        rng = np.random.default_rng(seed) if shared else rngs[prompt]
        stream = DISTORTIONS[name](np.stack([states[k] for k in keys]), rng)
        found = dict(zip(keys, stream, strict=True))
        return {**found, "final_norm": final_norm(stream[-1], made.model)}

    return edited(made, change)


def final_norm(last: np.ndarray, model: Model) -> np.ndarray:
    root = np.sqrt((last**2).mean(1, keepdims=True) + model.eps)
    return last / root * (model.norm.astype(np.float64) + model.plus_one)
