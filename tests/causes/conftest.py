"""Two healthy engines and the floor between them, written once."""

from __future__ import annotations

import os

import pytest
import torch

from hsparity.capture.read import open_source
from hsparity.capture.source import Source
from tests.causes.streams import Capture, capture, floors

if "PYTEST_XDIST_WORKER" in os.environ:
    # Two workers, each with a team of threads on two cores, would wait for each other at every small operation.
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def floor(tmp_path_factory: pytest.TempPathFactory) -> list[Source]:
    return floors(tmp_path_factory.mktemp("floor"))


@pytest.fixture(scope="session")
def ref(tmp_path_factory: pytest.TempPathFactory) -> Source:
    return open_source(capture(1).write(tmp_path_factory.mktemp("sides") / "ref"))


@pytest.fixture(scope="session")
def clean() -> Capture:
    return capture(2, engine="sglang", version="0.5.23")
