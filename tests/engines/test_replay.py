"""Decoder layers of the real engines replayed from the checkpoint. No engine starts that other tests do not make."""

from __future__ import annotations

from pathlib import Path

import pytest

from hsparity.capture.read import open_source
from hsparity.model import Verdict
from hsparity.replay.replaying import replay
from hsparity.replay.result import Replay

from .conftest import Capture
from .test_sglang import deepseek as sglang_deepseek  # noqa: F401
from .test_vllm import PROMPTS
from .test_vllm import deepseek as vllm_deepseek  # noqa: F401

pytestmark = pytest.mark.engine


def replayed(*folders: Path) -> Replay:
    sources = [open_source(folder) for folder in folders]
    try:
        return replay(*sources)
    finally:
        for source in sources:
            source.close()


@pytest.fixture(scope="module")
def both(request: pytest.FixtureRequest) -> Replay:
    """The tiny DeepSeek with every site, by vLLM and by SGLang."""
    return replayed(*(request.getfixturevalue(name) for name in ("vllm_deepseek", "sglang_deepseek")))


def test_healthy_engines_add_no_error_in_any_part(both: Replay) -> None:
    """MLA, dense and expert MLPs and routers of both engines, prefilled and decoded, at 0.7 to 1.4 times what bfloat16
    costs in Transformers."""
    assert both.verdict is Verdict.PARITY, both.headline
    for side in ("ref", "cand"):
        parts = {part: both.of(side, part) for part in ("layer", "attention", "mlp", "router")}
        assert [len(found) for found in parts.values()] == [8, 8, 8, 7]
        assert all(0.6 < a.ratio < 1.5 for found in parts.values() for a in found), side


def test_the_experts_that_differ_are_near_ties(both: Replay) -> None:
    """The jumps of single tokens between the engines are expert flips: some tokens of each side choose other experts
    than float32 does, all of them by margins that bfloat16 moves the scores by."""
    for side in ("ref", "cand"):
        routers = both.of(side, "router")
        assert sum(a.experts_differ for a in routers) > 0, side
        assert all(a.experts_wide == 0 for a in routers)
        assert max(a.margin.worst for a in routers if a.margin is not None) < 2


def test_the_replay_is_transformers(capture: Capture, tiny_deepseek: Path) -> None:
    """Transformers in float32: every layer to 1e-5 of what it adds."""
    folder = capture("hf", model=tiny_deepseek, prompts=PROMPTS, dtype="float32", generate=4)
    result = replayed(folder)
    assert len(result.of("ref")) == 8
    assert max(a.error.worst for a in result.of("ref")) < 1e-5
