"""Runs of the tiny models that several tests compare with, made once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from hsparity.capture.read import open_source
from hsparity.capture.source import Source
from hsparity.compare import Query, compare
from hsparity.model import Comparison
from hsparity.replay.result import Replay
from tests.causes.streams import Capture
from tests.diagnose.runs import Setup, run

MODELS = ("tiny:llama", "tiny:deepseek-v3")
Judge = Callable[..., Comparison]


@pytest.fixture(autouse=True, scope="package")
def one_core() -> Iterator[None]:
    """A team of threads would wait for each other at every small operation."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def healthy(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Source, list[Source]]]:
    """Per model the reference, Transformers bf16, and the floor of fp32 and bf16."""
    found = {}
    for model in MODELS:
        folder = tmp_path_factory.mktemp("healthy")
        bf16 = run(Setup(model, branches=True), settings={"mode": "eager"}).write(folder / "bf16")
        fp32 = run(Setup(model, dtype=torch.float32)).write(folder / "fp32")
        found[model] = open_source(bf16), [open_source(fp32), open_source(bf16)]
    return found


@pytest.fixture
def judged(healthy: dict[str, tuple[Source, list[Source]]], tmp_path: Path) -> Judge:
    """Compares a run with the healthy reference of its model."""

    def judge(
        made: Capture, *, replay: Replay | None = None, floor: bool = True, ref: Capture | None = None
    ) -> Comparison:
        source, floors = healthy[made.model.name]
        if ref is not None:
            source = open_source(ref.write(tmp_path / "ref"))
        cand = open_source(made.write(tmp_path / "cand"))
        return compare(source, cand, floors if floor else [], Query(), replay=replay)

    return judge
