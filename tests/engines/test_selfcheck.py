"""The self-check on captures by the real engines: right ones pass, wrong ones fail by name. 2 engine starts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from hsparity.capture.read import open_source
from hsparity.selfcheck.checking import check
from hsparity.selfcheck.result import SelfCheck, Verdict
from hsprobe.stack import rms_norm
from tests.unit.test_selfcheck import Rows, rewritten

from .conftest import Capture, english_prompts, manifest

pytestmark = pytest.mark.engine

LAST, EARLY = "boundary.030", "boundary.029"


@pytest.fixture(scope="module", params=["vllm", "sglang"])
def right(capture: Capture, smollm2: Path, request: pytest.FixtureRequest) -> Path:
    """The last two boundaries, final_norm and the engine's own log-probabilities of SmolLM2."""
    sites = (EARLY, LAST, "final_norm", "prompt_logprobs")
    return capture(request.param, model=smollm2, prompts=english_prompts(smollm2), sites=sites)


@pytest.fixture(scope="module")
def norm(smollm2: Path) -> Callable[[torch.Tensor], torch.Tensor]:
    weight_h = load_file(smollm2 / "model.safetensors")["model.norm.weight"]
    return lambda x_nh: rms_norm(x_nh, weight_h, 1e-5, False).to(x_nh.dtype)


def checked(folder: Path) -> SelfCheck:
    source = open_source(folder)
    try:
        return check(source)
    finally:
        source.close()


def test_a_right_capture_passes(right: Path) -> None:
    """The error of both claims is what rounding costs, every rival's at least 20 times that."""
    found = checked(right)
    assert found.verdict is Verdict.PASSED, found.headline
    assert {c.site for c in found.claims} == {LAST, "final_norm"}
    for claim in found.claims:
        assert claim.claimed.ratio < 1.5, (manifest(right).engine, claim)
        assert claim.claimed.error < 0.03
        assert claim.margin > 20


def test_one_boundary_early_fails(right: Path, tmp_path: Path) -> None:
    """Boundary L-1 in the place of L."""
    found = checked(rewritten(right, tmp_path / "early", lambda rows: {**rows, LAST: rows[EARLY]}))
    assert found.verdict is Verdict.FAILED
    assert (found.claims[0].site, found.claims[0].repeats) == (LAST, EARLY)
    assert found.claims[0].claimed.error > 0.3


@pytest.mark.parametrize(("times", "reading"), [(1, "normed"), (2, "normed-twice")])
def test_a_normed_last_state_is_named(
    right: Path, norm: Callable[[torch.Tensor], torch.Tensor], tmp_path: Path, times: int, reading: str
) -> None:
    """Boundary L behind one norm and behind two."""

    def change(rows: Rows) -> Rows:
        state = norm(rows[LAST])
        return {**rows, LAST: state if times == 1 else norm(state)}

    found = checked(rewritten(right, tmp_path / "normed", change))
    assert (found.verdict, found.claims[0].holds) == (Verdict.FAILED, reading)


def test_a_raw_final_norm_is_named(right: Path, tmp_path: Path) -> None:
    """final_norm that holds the norm's input: the norm is missing."""
    wrong = rewritten(right, tmp_path / "raw", lambda rows: {**rows, "final_norm": rows[LAST]})
    claim = checked(wrong).claims[1]
    assert (claim.verdict, claim.holds) == (Verdict.FAILED, "raw")
