"""The server's capture and the floor, written once."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from tests.audit import bench
from tests.causes import real


@pytest.fixture(autouse=True, scope="package")
def one_core() -> Iterator[None]:
    """Two workers, each with a team of threads on two cores, would wait for each other at every small operation."""
    before = torch.get_num_threads()
    if "PYTEST_XDIST_WORKER" in os.environ:
        torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """SGLang, its native path handing over boundaries 2, 4, 5 for ids 2, 4, 5."""
    return bench.served(tmp_path_factory.mktemp("audit") / "sglang")


@pytest.fixture(scope="session")
def hooks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """SGLang without its native path: nothing says what it feeds."""
    return bench.served(tmp_path_factory.mktemp("audit") / "hooks", ())


@pytest.fixture(scope="session")
def floor(tmp_path_factory: pytest.TempPathFactory) -> bench.Floor:
    folder = tmp_path_factory.mktemp("audit-floor")
    return bench.Floor(tuple(str(source.folder) for source in real.floor(real.TINY, folder)))
