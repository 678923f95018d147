"""Two healthy engines and the floor between them, written once."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
import torch

from hsparity.capture.read import open_source
from hsparity.capture.source import Source
from tests.causes.streams import Capture, capture, floors


@pytest.fixture(autouse=True, scope="package")
def one_core() -> Iterator[None]:
    """Two workers, each with a team of threads on two cores, would wait for each other at every small
    operation. Other tests keep theirs: a capture records its number."""
    before = torch.get_num_threads()
    if "PYTEST_XDIST_WORKER" in os.environ:
        torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def floor(tmp_path_factory: pytest.TempPathFactory) -> list[Source]:
    return floors(tmp_path_factory.mktemp("floor"))


@pytest.fixture(scope="session")
def ref(tmp_path_factory: pytest.TempPathFactory) -> Source:
    return open_source(capture(1).write(tmp_path_factory.mktemp("sides") / "ref"))


@pytest.fixture(scope="session")
def clean() -> Capture:
    return capture(2, engine="sglang", version="0.5.23")
