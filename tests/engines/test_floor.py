"""What the real vLLM differs by from itself. 4 engine starts beside the captures that other tests share."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from hsparity.capture.read import open_source
from hsparity.compare import Query, compare
from hsparity.floors import kinds, making, measuring
from hsparity.floors.base import open_base
from hsparity.floors.result import FloorReport
from hsparity.model import Verdict

from .conftest import Capture
from .test_vllm import PART_SITES, PROMPTS

# One worker: what these tests share is made once, and nobody waits for it.
pytestmark = [pytest.mark.engine, pytest.mark.xdist_group("floor")]

OWN = ("repeat", "batch", "prefilled", "chunked")


@pytest.fixture(scope="module")
def base(capture: Capture, tiny_llama: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A capture whose prompts ran one by one, whole, with three decoded rows each."""
    made = capture(
        "vllm", model=tiny_llama, prompts=PROMPTS, mechanism="both", native_ids=(2, 4, 6), generate=4
    )
    return Path(shutil.copytree(made, tmp_path_factory.mktemp("floor") / "vllm"))


@pytest.fixture(scope="module")
def report(base: Path) -> FloorReport:
    opened = open_base(base)
    made = making.make(opened, making.plan(opened, OWN), lambda _: None)
    return measuring.report(opened, made, lambda _: None)


def test_all_are_made(report: FloorReport) -> None:
    """Nothing is ignored: prompts share passes in the batch, and are prefilled in several passes in chunks."""
    assert {p.kind: (p.state, p.reason) for p in report.parts} == dict.fromkeys(OWN, ("made", ""))


def test_a_repeat_is_equal_in_every_bit(report: FloorReport) -> None:
    assert report.of("repeat")
    assert [n for n in report.of("repeat") if n.bit_equal != n.tokens] == []


@pytest.mark.parametrize("kind", ["batch", "prefilled", "chunked"])
def test_one_thing_changed_is_rounding(report: FloorReport, kind: str) -> None:
    """At the last boundary medians stay below 4 sqrt(9) half-ulps, what rounding is at eight layers."""
    last = [n for n in report.of(kind) if n.site == "boundary.008"]
    assert last
    assert max(n.median for n in last) < 12 * 2.0**-9


def test_decode_rows_against_prefill_rows(base: Path, report: FloorReport) -> None:
    """The same engine on the same tokens, decoded here and prefilled there: three rows of each prompt changed phase."""
    changed = [n for n in report.of("prefilled") if n.rows == "decode as prefill"]
    assert {n.tokens for n in changed} == {3 * len(PROMPTS)}
    path = next(p.path for p in report.parts if p.kind == "prefilled")
    repeat = next(p.path for p in report.parts if p.kind == "repeat")
    result = compare(open_source(base), open_source(path), [open_source(repeat)], Query())
    assert result.verdict is not Verdict.DIVERGED
    assert "prefill against decode of the candidate" in result.floor.source


def test_a_chunk_size_that_vllm_ignores_is_no_floor(
    capture: Capture, tiny_deepseek: Path, base: Path
) -> None:
    """MLA on a CPU prefills whole whatever it is asked: that is said, with what was asked and applied."""
    whole = capture(
        "vllm", model=tiny_deepseek, prompts=PROMPTS, mechanism="both", native_ids=(1, 3, 5), generate=4
    )
    asked = capture(
        "vllm",
        model=tiny_deepseek,
        prompts=PROMPTS,
        sites=("boundary.*", "final_norm", *PART_SITES, "prompt_logprobs"),
        mechanism="both",
        native_ids=(2, 4, 6),
        generate=4,
        batch=4,
        engine_args={"max_num_batched_tokens": 16, "block_size": 32, "enable_chunked_prefill": True},
    )
    reason = kinds.ignored("chunked", open_base(whole), open_source(asked))
    assert reason.startswith("vLLM did not chunk: every prompt ran in as many passes as before")
    assert "enable_chunked_prefill: asked True, applied False" in reason
