"""A toy target, a head that is fitted to it, and healthy captures, made once."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from .costed import World, make_world


@pytest.fixture(autouse=True, scope="package")
def one_core() -> Iterator[None]:
    """A team of threads loses more than it gains on tensors this small, and beside other workers far more."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    return make_world(tmp_path_factory.mktemp("world"))
