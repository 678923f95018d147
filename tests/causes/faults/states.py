"""States that are another function of the stream: normed, a branch, a sum left open, scaled, in another basis."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from tests.causes.faults.base import each, fault, key, random_rotation, streams_of, v
from tests.causes.real import SMOL, TINY
from tests.causes.streams import Capture, Model, States, edited

T, S = (TINY,), (SMOL,)
LAYERS_WITH_BRANCHES = range(1, 7)  # of the tiny model


def normed(model: Model, state: np.ndarray, plus_one: bool = False) -> np.ndarray:
    """The final RMSNorm of [T, H] states, or the form that scales by 1 + weight."""
    weight = model.norm.astype(np.float64) + plus_one
    return state / np.sqrt((state**2).mean(1, keepdims=True) + model.eps) * weight


@fault(
    "final-norm-applied",
    v("last boundary", which="last"),
    v("last boundary, SGLang, no floor", which="last", cand="sglang", floor=False),
    v("last of three slots", which="last", shape="three-last"),
    v("the last state alone", which="last", shape="last", cand="sglang"),
    v("every boundary", which="every"),
    v("every one of three slots", which="every", shape="three", cand="sglang"),
    v("last boundary, as Gemma does", which="last", plus_one=True),
    v("the last state alone, as Gemma does", which="last", plus_one=True, shape="last", floor=False),
    v("every boundary, as Gemma does", which="every", plus_one=True, models=T, cand="sglang"),
)
def final_norm_applied(made: Capture, which: str, plus_one: bool = False) -> Capture:
    """A slot said to be a raw boundary went through the final norm, in the model's form or with 1 + weight."""
    return each(made, which, lambda x: normed(made.model, x, plus_one))


@fault(
    "final-norm-applied",
    v("last boundary of the reference"),
    v("the same, SGLang", cand="sglang"),
    side="ref",
)
def reference_normed(made: Capture) -> Capture:
    """The reference's last boundary went through the final norm: Transformers' hidden_states[-1]."""
    return each(made, "last", lambda x: normed(made.model, x))


def _last(states: States) -> str:
    return max(k for k in states if k.startswith("boundary"))


@fault(
    "final-norm-missing",
    v("vLLM"),
    v("SGLang", cand="sglang"),
    v("SGLang against vLLM", ref="vllm", cand="sglang"),
    v("no floor", floor=False),
)
def final_norm_missing(made: Capture) -> Capture:
    """What is said to be final_norm is the raw last boundary."""
    return edited(made, lambda _, states: {**states, "final_norm": states[_last(states)]})


@fault(
    "final-norm-twice",
    v("final_norm", site="final_norm"),
    v("final_norm, SGLang, no floor", site="final_norm", cand="sglang", floor=False),
    v("last boundary", site="last"),
    v("last of three slots", site="last", shape="three-last", cand="sglang"),
    v("the last state alone", site="last", shape="last"),
)
def final_norm_twice(made: Capture, site: str) -> Capture:
    """final_norm, or a slot said to be the raw last boundary, went through the final norm twice."""

    def change(_: str, states: States) -> States:
        twice = normed(made.model, normed(made.model, states[_last(states)]))
        return {**states, (_last(states) if site == "last" else site): twice}

    return edited(made, change)


def from_layer(made: Capture, which: Sequence[int], function: Callable[[States, int], np.ndarray]) -> Capture:
    """Boundary k + 1 is replaced by `function(states, k)` for every layer k of `which`."""
    return edited(made, lambda _, states: {**states, **{key(k + 1): function(states, k) for k in which}})


def update(states: States, k: int) -> np.ndarray:
    return states[key(k + 1)] - states[key(k)]


def attention(states: States, k: int) -> np.ndarray:
    return states[f"attn_out.{k:03d}"]


def mlp(states: States, k: int) -> np.ndarray:
    return states[f"mlp_out.{k:03d}"]


def between(states: States, k: int) -> np.ndarray:
    """The residual between layer k's attention and its MLP."""
    return states[key(k)] + attention(states, k)


@fault(
    "residual-missing",
    v("MLP branch, boundaries 2 to 7", branch="mlp", models=T),
    v("MLP branch, three slots", branch="mlp", models=T, shape="three"),
    v("MLP branch, one slot, no floor", branch="mlp", models=T, layers=(3,), shape="three", floor=False),
    v("whole update, every boundary", branch="update"),
    v("whole update, three slots", branch="update", shape="three", cand="sglang"),
    v("whole update, the last state alone", branch="update", shape="last"),
    v("whole update, unlabelled list", branch="update", shape="native", cand="sglang"),
)
def residual_missing(made: Capture, branch: str, layers: Sequence[int] = ()) -> Capture:
    """A slot holds what its layer adds, the MLP's part or all of it, without the residual."""
    if branch == "mlp":
        return from_layer(made, layers or LAYERS_WITH_BRANCHES, mlp)
    return from_layer(made, range(made.model.layers), update)


@fault(
    "branch-only",
    v("boundaries 2 to 7", models=T),
    v("three slots", models=T, shape="three"),
    v("one of three slots, no floor", models=T, layers=(3,), shape="three", floor=False),
    v("unlabelled list", models=T, layers=(2, 4), shape="native"),
)
def branch_only(made: Capture, layers: Sequence[int] = LAYERS_WITH_BRANCHES) -> Capture:
    """A slot holds the attention output of its layer alone."""
    return from_layer(made, layers, attention)


@fault(
    "mid-layer",
    v("boundaries 2 to 7", models=T),
    v("three slots", models=T, shape="three"),
    v("one of three slots, no floor", models=T, layers=(3,), shape="three", floor=False),
)
def mid_layer(made: Capture, layers: Sequence[int] = LAYERS_WITH_BRANCHES) -> Capture:
    """A slot said to be boundary k + 1 holds b_k + attn_out.k: its layer's MLP is not added yet."""
    return from_layer(made, layers, between)


@fault(
    "aliased-capture",
    v("boundaries 1 to 6", models=T),
    v("three slots", models=T, shape="three"),
    v("one of three slots, no floor", models=T, layers=(4,), shape="three", floor=False),
)
def aliased_capture(made: Capture, layers: Sequence[int] = LAYERS_WITH_BRANCHES) -> Capture:
    """A slot said to be boundary k holds b_k + attn_out.k: the next layer added to it in place."""
    return edited(made, lambda _, states: {**states, **{key(k): between(states, k) for k in layers}})


@fault(
    "partial-sum",
    v("half of the MLP, boundaries 2 to 7", share=1 / 2, models=T),
    v("a quarter of the MLP, three slots", share=1 / 4, models=T, shape="three"),
    v("half of the update, every boundary", share=1 / 2, whole=True),
    v("a quarter of the update, three slots", share=1 / 4, whole=True, shape="three", cand="sglang"),
)
def partial_sum(made: Capture, share: float, whole: bool = False) -> Capture:
    """A slot's last branch counts 1/n: not reduced over n ranks whose shares are alike."""
    if whole:
        return from_layer(made, range(made.model.layers), lambda s, k: s[key(k)] + share * update(s, k))
    return from_layer(made, LAYERS_WITH_BRANCHES, lambda s, k: between(s, k) + share * mlp(s, k))


@fault(
    "partial-sum",
    v("residual on both ranks", both=True, models=T, shape="made"),
    v("residual on rank 0", both=False, models=T, shape="made"),
    v("residual on both ranks, no floor", both=True, models=T, shape="made", floor=False),
)
def two_ranks(made: Capture, both: bool) -> Capture:
    """An unlabelled list holds boundaries 2, 4 and 6 twice, one slot a rank, each with its share of the MLP."""
    mix = random_rotation(made.model.width, seed=5)

    def change(_: str, states: States) -> States:
        found: States = {}
        for i, k in enumerate((1, 3, 5)):
            # The shares of a matrix product split along its inner axis: half of the sum, and as much unrelated.
            own = 0.5 * mlp(states, k) @ mix
            found[f"slot.{2 * i:03d}"] = between(states, k) + mlp(states, k) / 2 + own
            found[f"slot.{2 * i + 1:03d}"] = both * between(states, k) + mlp(states, k) / 2 - own
        return found

    return edited(made, change)


@fault(
    "double-reduce",
    v("MLP twice, boundaries 2 to 7", times=2, models=T),
    v("MLP four times, three slots", times=4, models=T, shape="three"),
    v("MLP eight times, no floor", times=8, models=T, floor=False),
    v("update twice, three slots", times=2, whole=True, shape="three", cand="sglang"),
    v("update four times, every boundary", times=4, whole=True),
)
def double_reduce(made: Capture, times: int, whole: bool = False) -> Capture:
    """A slot's last branch counts n times: reduced again over n ranks."""
    return partial_sum(made, times, whole)


@fault(
    "gain",
    v("half", factor=0.5),
    v("twice, SGLang, no floor", factor=2.0, cand="sglang", floor=False),
    v("a quarter, three slots", factor=0.25, shape="three"),
    v("routed_scaling_factor", factor=2.5, facts={"routed_scaling_factor": 2.5}, models=T, cand="sglang"),
    v("sqrt(H), three slots", root=True, shape="three"),
    v("sqrt(H), unlabelled list", root=True, shape="native", cand="sglang"),
    v("half, the last state alone", factor=0.5, shape="last"),
)
def gain(made: Capture, factor: float = 1.0, root: bool = False) -> Capture:
    """Every state times a constant."""
    return each(made, "every", lambda x: x * (made.model.width**0.5 if root else factor))


@fault(
    "gain",
    v("routed branch, boundaries 2 to 7", models=T, facts={"routed_scaling_factor": 2.5}),
    v("routed branch, three slots", models=T, shape="three", facts={"routed_scaling_factor": 2.5}),
    v("routed branch missing it", models=T, inverse=True, facts={"routed_scaling_factor": 2.5}),
)
def routed_gain(made: Capture, inverse: bool = False) -> Capture:
    """The MLP branch is off by the model's routed_scaling_factor: applied once more, or never."""
    factor = float(made.model.config["routed_scaling_factor"])
    return partial_sum(made, 1 / factor if inverse else factor)


def hadamard(width: int, seed: int = 3) -> np.ndarray:
    """Block-diagonal Hadamard matrices with random signs, orthogonal [H, H]."""
    size = width & -width  # the largest power of two that divides H
    block = np.ones((1, 1))
    while len(block) < size:
        block = np.block([[block, block], [block, -block]])
    signs = np.random.default_rng(seed).choice([-1.0, 1.0], width)
    return signs[:, None] * np.kron(np.eye(width // size), block / np.sqrt(size))


@fault(
    "rotated-basis",
    v("random, every boundary", how="random"),
    v("Hadamard, SGLang", how="hadamard", cand="sglang"),
    v("random, three slots, no floor", how="random", shape="three", floor=False),
    v("Hadamard, the last state alone", how="hadamard", shape="last", models=T),
)
def rotated_basis(made: Capture, how: str) -> Capture:
    """The stream is held in another orthogonal basis."""
    matrix = hadamard(made.model.width) if how == "hadamard" else random_rotation(made.model.width)
    return in_basis(made, lambda x: x @ matrix)


@fault(
    "channels-permuted",
    v("at random, every boundary", how="random"),
    v("interleaved halves, SGLang", how="halves", cand="sglang"),
    v("rank slices in the wrong order, three slots", how="slices", shape="three"),
    v("at random, the last state alone, no floor", how="random", shape="last", floor=False),
)
def channels_permuted(made: Capture, how: str) -> Capture:
    """The channels lie in another order."""
    width = made.model.width
    order = {
        "random": np.random.default_rng(7).permutation(width),
        "halves": np.arange(width).reshape(2, -1).T.ravel(),
        "slices": np.arange(width).reshape(4, -1)[[1, 0, 3, 2]].ravel(),
    }[how]
    return in_basis(made, lambda x: x[:, order])


def in_basis(made: Capture, function: Callable[[np.ndarray], np.ndarray]) -> Capture:
    """`function` on every state of the stream and on final_norm."""

    def change(_: str, states: States) -> States:
        held = [*streams_of(states), *(k for k in states if k == "final_norm")]
        return {**states, **{k: function(states[k]) for k in held}}

    return edited(made, change)


@fault(
    "unknown-stream",
    v("0.6 of it and 0.4 of two layers before", weights=(0.6, 0.0, 0.4)),
    v("the same, three slots, SGLang", weights=(0.6, 0.0, 0.4), shape="three", cand="sglang"),
    v("three layers mixed", weights=(0.5, 0.3, 0.2)),
    v("three layers mixed, no floor", weights=(0.4, -0.3, 0.9), floor=False, cand="sglang"),
)
def unknown_stream(made: Capture, weights: Sequence[float]) -> Capture:
    """A slot holds a mixture of boundary k and earlier ones, as in a model of several streams."""

    def mixture(states: States, k: int) -> np.ndarray:
        held = [states[key(max(k + 1 - back, 0))] for back in range(len(weights))]
        return np.tensordot(weights, held, 1)

    return from_layer(made, range(1, made.model.layers), mixture)
