"""One tiny DeepSeek-V3 and its healthy captures, shared by the tests of replay."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.replay.makes import ROUTED, save_deepseek, taken


@pytest.fixture(scope="session", autouse=True)
def offline() -> Iterator[None]:
    """Nothing here may reach a hub."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HF_HUB_OFFLINE", "1")
        yield


@pytest.fixture(scope="session")
def deepseek(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_deepseek(tmp_path_factory.mktemp("deepseek") / "model")


@pytest.fixture(scope="session")
def healthy(deepseek: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """In bfloat16, with every site that a replay reads."""
    return taken(deepseek, tmp_path_factory.mktemp("healthy") / "capture", sites=ROUTED)
