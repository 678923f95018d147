"""Other tokens, other weights, another configuration: what no state has to be read for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from tests.causes.faults.base import fault, v, with_facts
from tests.causes.real import SMOL, TINY
from tests.causes.streams import Capture, States, edited

T, S = (TINY,), (SMOL,)
BOS, TEMPLATE = 1, (4, 9, 17, 6)


def retokenised(
    made: Capture, function: Callable[[Sequence[int]], tuple[list[int], list[int]]], spared: int
) -> Capture:
    """Prompts after the first `spared` are fed `function(ids)`: their new ids, and of which token each row is."""
    pairs = {n: function(ids) for i, (n, ids) in enumerate(made.ids.items()) if i >= spared}

    def change(name: str, states: States) -> States:
        return {k: x[pairs[name][1]] for k, x in states.items()} if name in pairs else states

    ids = {n: pairs[n][0] if n in pairs else i for n, i in made.ids.items()}
    prefill = {n: max(made.prefill[n] + len(ids[n]) - len(i), 1) for n, i in made.ids.items()}
    return replace(edited(made, change), ids=ids, prefill=prefill)


@fault(
    "tokens-differ",
    v("one more BOS", how="bos", models=T),
    v("one more BOS, SGLang, no floor", how="bos", spared=1, cand="sglang", floor=False),
    v("the first token lost", how="shift", spared=1),
    v("cut to 5 tokens", how="cut", spared=0),
    v("a chat template before it", how="template", spared=1, cand="sglang"),
    v("one token another in the middle, three slots", how="other", spared=0, shape="three"),
)
def tokens_differ(made: Capture, how: str, spared: int = 0) -> Capture:
    """The candidate was fed other token ids."""

    def function(ids: Sequence[int]) -> tuple[list[int], list[int]]:
        own, rows = list(ids), list(range(len(ids)))
        if how == "bos":
            return [BOS, *own], [0, *rows]
        if how == "shift":
            return own[1:], rows[1:]
        if how == "cut":
            return own[:5], rows[:5]
        if how == "template":
            return [*TEMPLATE, *own], [0] * len(TEMPLATE) + rows
        middle = len(own) // 2
        return [*own[:middle], own[middle] + 1, *own[middle + 1 :]], rows

    return retokenised(made, function, spared)


def perturbed(made: Capture, size: float, by_position: bool = False) -> Capture:
    """Boundaries off by `size` of their norm, growing from none at the first, and with `by_position` at token 0."""
    rng = np.random.default_rng(17)

    def change(_: str, states: States) -> States:
        for k in sorted(k for k in states if k.startswith("boundary"))[1:]:
            x = states[k]
            noise = (
                rng.standard_normal(x.shape) * np.linalg.norm(x, axis=1, keepdims=True) / x.shape[1] ** 0.5
            )
            ramp = np.arange(len(x))[:, None] / len(x) if by_position else 1.0
            states[k] = x + size * np.sqrt(int(k[-3:])) * ramp * noise
        return states

    return edited(made, change) if size else made


@fault(
    "weights-differ",
    v("the digest alone", size=0.0),
    v("weights a little apart", size=0.02, cand="sglang"),
    v("weights far apart, no floor", size=0.3, floor=False),
    v("weights a little apart, three slots", size=0.02, shape="three"),
)
def weights_differ(made: Capture, size: float) -> Capture:
    """The candidate ran other weights: its digest says so, and perhaps its states."""
    return replace(perturbed(made, size), weights_sha256="0" * 64)


@fault(
    "config-differs",
    v("norm epsilon", name="rms_norm_eps", value=1e-3),
    v("rope base", name="rope_theta", value=500000.0, size=0.05, cand="sglang"),
    v("rope scaling", name="factor", value=8.0, size=0.05, models=T),
    v(
        "routed_scaling_factor, no floor",
        name="routed_scaling_factor",
        value=2.5,
        size=0.1,
        models=T,
        floor=False,
    ),
    v("rope base, three slots", name="rope_theta", value=500000.0, size=0.05, shape="three"),
)
def config_differs(made: Capture, name: str, value: float, size: float = 0.0) -> Capture:
    """The candidate's model was configured otherwise: norm epsilon, rope, routed scaling."""
    rope = made.model.config.get("rope_parameters") or {}
    changed = {"rope_parameters": {**rope, name: value}} if name in rope else {name: value}
    return with_facts(perturbed(made, size, by_position=True), **changed)
