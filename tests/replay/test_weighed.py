"""A replay as evidence of a comparison: HS307, and the hypotheses it settles."""

from __future__ import annotations

from pathlib import Path

import pytest

from hsparity.capture.read import open_source
from hsparity.compare import Query, compare
from hsparity.model import Comparison, Finding, Verdict
from hsparity.replay.replaying import replay
from tests.replay.makes import ROUTED, changed, taken
from tests.replay.test_replay import LAYER, scale


@pytest.fixture(scope="module")
def fp32(deepseek: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return taken(deepseek, tmp_path_factory.mktemp("fp32") / "capture", "float32", ROUTED)


def compared(
    healthy: Path, cand: Path, fp32: Path, model: Path, layers: tuple[int, ...] | None = None
) -> Comparison:
    """Against a healthy capture that is the bf16 half of the floor too; replayed on `model`'s weights in `layers`."""
    sources = [open_source(path) for path in (healthy, cand, fp32, healthy)]
    found = replay(sources[0], sources[1], cand_model=str(model), layers=layers) if layers else None
    return compare(sources[0], sources[1], sources[2:], Query(), replay=found)


def the(result: Comparison, code: str) -> Finding | None:
    return next((f for f in result.findings if f.code == code and not f.ruled_out), None)


@pytest.mark.parametrize("factor", [1.0, 1.3])
def test_a_layer_that_adds_error_is_a_finding(
    factor: float, deepseek: Path, healthy: Path, fp32: Path, tmp_path: Path
) -> None:
    """One expert scaled: HS307 with its layer and part, and DIVERGED even where the states lie within the floor; nothing
    of the kind for the same weights, nor without a replay."""
    weights = scale(LAYER + "mlp.experts.3.down_proj.weight", factor)
    cand = taken(changed(deepseek, tmp_path / "model", weights), tmp_path / "out", sites=ROUTED)
    assert the(compared(healthy, cand, fp32, deepseek), "HS307") is None
    result = compared(healthy, cand, fp32, deepseek, (1, 2))
    found = the(result, "HS307")
    if factor == 1.0:
        assert found is None
        assert result.verdict is Verdict.PARITY
        return
    assert found is not None
    assert result.verdict is Verdict.DIVERGED
    assert found.slots == ("boundary.003",)
    assert "the candidate adds error in layer 2, by its mlp" in found.headline
    assert "the reference does not" in found.headline


def test_choices_beyond_rounding_are_no_flips(
    deepseek: Path, healthy: Path, fp32: Path, tmp_path: Path
) -> None:
    """A dropped router bias sends tokens to other experts by wide margins: the router's weights, not a routing flip."""
    weights = scale(LAYER + "mlp.gate.e_score_correction_bias", 0.0)
    cand = taken(changed(deepseek, tmp_path / "model", weights), tmp_path / "out", sites=ROUTED)
    result = compared(healthy, cand, fp32, deepseek, (1, 2))
    assert the(result, "HS508") is None
    found = the(result, "HS516")
    assert found is not None
    assert found.headline == "the router's weights, bias or scoring are not the checkpoint's"
