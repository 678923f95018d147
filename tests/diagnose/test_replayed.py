"""What a replay settles, what it leaves open, and whom it must not accuse: recorded replays of planted faults."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hsparity.capture.read import open_source
from hsparity.capture.source import Source
from hsparity.compare import Query, study
from hsparity.diagnose.diagnosis import Diagnosis, diagnosis
from hsparity.evidence import Evidence
from hsparity.model import Quantiles, Verdict
from hsparity.replay.result import SCHEMA, Added, Replay
from tests.diagnose.test_planted import CASES, W4

LAYERS = 8
EVERYWHERE = set(range(LAYERS))
Weigh = Callable[..., Diagnosis]


def added(
    layer: int, part: str, verdict: Verdict, weights: str = "own", error: float = 0.01, **more: Any
) -> Added:
    ratio = 8.0 if verdict is Verdict.DIVERGED else 1.0
    known, floor = Quantiles(*[error] * 5), Quantiles(*[0.01] * 5)
    made = Added(
        "cand", weights, layer, "dense", part, 200, known, error, floor, ratio, ratio, ratio, 1.0, verdict, ""
    )
    return replace(made, **more)


def entries(beyond: dict[str, set[int]], weights: str = "own", **more: Any) -> tuple[Added, ...]:
    """Parts, and the layers that add error in them."""
    return tuple(
        added(k, part, Verdict.DIVERGED if k in layers else Verdict.PARITY, weights, **more)
        for part, layers in beyond.items()
        for k in range(LAYERS)
    )


def replay(*made: tuple[Added, ...]) -> Replay:
    return Replay(SCHEMA, "", "ref", "cand", "m", "m", tuple(a for part in made for a in part))


def both(own: float, other: float) -> Replay:
    """Attention and MLP of every layer are beyond on both checkpoints, by these errors."""
    parts = dict.fromkeys(("layer", "attention", "mlp"), EVERYWHERE)
    return replay(entries(parts, error=own), entries(parts, "other", error=other))


ATTENTION = replay(entries({"layer": EVERYWHERE, "attention": EVERYWHERE, "mlp": set()}))
OWN_NOT_OTHER = replay(entries({"layer": set()}), entries({"layer": EVERYWHERE}, "other"))


@pytest.fixture(scope="module")
def weigh(healthy: dict[str, tuple[Source, list[Source]]], tmp_path_factory: pytest.TempPathFactory) -> Weigh:
    """Weighs a replay, and what the manifests say, on a planted fault that was compared once."""
    kept: dict[str, Evidence] = {}

    def weighed(
        name: str,
        found: Replay,
        configs: tuple[dict[str, Any], dict[str, Any]] | None = None,
        weights: str = "",
    ) -> Diagnosis:
        if name not in kept:
            made = CASES[name].made()
            folder: Path = tmp_path_factory.mktemp("cand") / "capture"
            ref, floors = healthy[made.model.name]
            kept[name] = study(ref, open_source(made.write(folder)), floors, Query())[1]
        evidence = replace(kept[name], replay=found, diagnosis=None)
        for side, config in zip(("ref", "cand"), configs or (), strict=False):
            source = copy(evidence.side(side))
            about = replace(source.manifest, model_config={**source.manifest.model_config, **config})
            source.manifest = replace(about, weights_sha256=weights or about.weights_sha256)
            evidence = replace(evidence, ref=source) if side == "ref" else replace(evidence, cand=source)
            weights = ""  # the reference's alone are others
        return diagnosis(evidence)

    return weighed


def words(found: Diagnosis) -> list[tuple[str, str]]:
    return [(h.name, h.confidence) for h in found.found]


def ruled_out(found: Diagnosis) -> set[str]:
    return {h.name for h in found.out}


def rope(theta: float) -> dict[str, Any]:
    return {"rope_theta": theta, "rope_parameters": {"rope_theta": theta, "rope_type": "default"}}


def test_attention_alone_settles_no_cause_among_several(weigh: Weigh) -> None:
    """Attention adds error in every layer: rope, a scale and a kernel do that, so rope stays as likely as position makes
    it, and the next experiment is named."""
    found = weigh("theta", ATTENTION)
    assert words(found)[0] == ("rope", "likely")
    assert found.found[0].next[0].startswith("hsparity bisect ")


def test_attention_settles_the_one_cause_that_is_left(weigh: Weigh) -> None:
    """A narrow cache, position 0 off, attention alone beyond: nothing that acts through scores is left."""
    assert words(weigh("fp8 cache", ATTENTION)) == [("quantised-kv", "settled")]


def test_one_layer_beyond_settles_that_layer(weigh: Weigh) -> None:
    """One layer adds error on its captured input and the others do not."""
    assert words(weigh("layer 3", replay(entries({"layer": {3}}))))[0] == ("layer-weights", "settled")


def test_a_replay_parts_weights_from_activations(weigh: Weigh) -> None:
    """Layers at the floor on their own weights and beyond with the other side's: it is the weights."""
    assert words(weigh("w8a8", OWN_NOT_OTHER))[0] == ("quantised-weights", "settled")


def test_a_scheme_that_leaves_activations_alone_is_not_blamed_for_them(weigh: Weigh) -> None:
    """Weights alone are quantised and their kernel is beyond its floor as well: all but a percent of the error is the
    weights'."""
    found = weigh("w8a8", both(0.02, 0.2), ({}, W4))
    assert words(found)[0] == ("quantised-weights", "settled")
    assert "99% of the squared error is gone" in found.found[0].reasons[-1]
    assert "quantised-activations" in ruled_out(found)
    # With most of it left on the side's own weights it is the kernel that is at fault, which no cause here is.
    for own in (0.14, 0.2):
        found = weigh("w8a8", both(own, 0.2), ({}, W4))
        assert "settled" not in [word for _, word in words(found)]
        assert "quantised-activations" in ruled_out(found)
    assert "quantised-weights" in ruled_out(found)


@pytest.mark.parametrize(
    ("own", "first", "word"),
    [
        (0.02, "quantised-weights", "settled"),
        (0.2, "quantised-activations", "settled"),
        (0.14, "quantised-activations", "inconclusive"),
    ],
)
def test_both_checkpoints_weigh_the_two_parts_of_a_scheme(
    own: float, first: str, word: str, weigh: Weigh
) -> None:
    """W8A8: what is left on the side's own weights is the activations', what goes with them the weights'."""
    found = words(weigh("w8a8", both(own, 0.2)))
    assert (first, word) in found
    assert [w for _, w in found].count(word) == (1 if word == "settled" else 2)


def test_errors_everywhere_without_a_scheme_settle_nothing(weigh: Weigh) -> None:
    """Attention and MLP beyond on weights that nobody calls quantised: a norm, or not the weights of the file."""
    found = words(weigh("int4 undeclared", both(0.2, 0.2)))
    assert found
    assert "settled" not in [word for _, word in found]


def test_another_config_is_not_other_weights(weigh: Weigh) -> None:
    """Layers do what their own checkpoint says and not what the other's does; the weights are equal and the base in the
    configs is not: it is the rope. A second value that differs, or other weights, leave it open."""
    found = weigh("theta", OWN_NOT_OTHER, (rope(1e4), rope(1.5e4)))
    assert words(found) == [("rope", "settled")]
    assert {"quantised-weights", "layer-weights", "attention-semantics"} <= ruled_out(found)
    eps = {"rms_norm_eps": 1e-3}
    for found in (
        weigh("theta", OWN_NOT_OTHER, (rope(1e4), {**rope(1.5e4), **eps})),
        weigh("theta", OWN_NOT_OTHER, (rope(1e4), rope(1.5e4)), "b" * 64),
    ):
        assert words(found)[0] == ("rope", "likely")
        assert {"quantised-weights", "layer-weights"}.isdisjoint(h.name for h in found.found)


def test_equal_weights_are_not_blamed_when_nothing_is_said_to_differ(weigh: Weigh) -> None:
    """The other checkpoint gives other layers, though weights and stated configs are equal: the weights are not it."""
    found = weigh("theta", OWN_NOT_OTHER)
    assert {"quantised-weights", "layer-weights"} <= ruled_out(found)
    assert "settled" not in [word for _, word in words(found)]


def test_experts_off_on_the_same_choice_are_no_flip(weigh: Weigh) -> None:
    """An MLP that is beyond on tokens whose captured experts are the replay's is not off by routing."""
    parts = {"layer": {1, 2, 3}, "attention": set(), "mlp": {1, 2, 3}}
    found = weigh("router bias", replay(entries(parts, kind="moe", experts_differ=0)))
    assert "moe-routing-flip" in ruled_out(found)


def test_a_router_on_equal_files_is_not_told_to_load_its_weights_again(weigh: Weigh) -> None:
    """Choices beyond rounding on equal weight files: what is left is what the engine made of them, by name."""
    parts = {"layer": {1, 2, 3}, "router": {1, 2, 3}}
    wide = replay(entries(parts, kind="moe", experts_differ=40, experts_wide=30))
    found = weigh("router bias", wide)
    assert words(found)[0] == ("layer-weights", "settled")
    assert "the weight files are equal" in found.found[0].headline
    assert "e_score_correction_bias" in found.found[0].reasons[-1]
    other = weigh("router bias", wide, ({}, {}), "b" * 64).found[0]
    assert other.headline == "the router's weights, bias or scoring are not the checkpoint's"
