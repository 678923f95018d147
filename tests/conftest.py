"""How tests share a machine."""

from __future__ import annotations

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Engine tests in one worker, the others beside them: two engines at once, each with a team of threads on two cores,
    take as long as one after the other. They come first, because their chain is the longest."""
    for item in items:
        if item.get_closest_marker("engine"):
            item.add_marker(pytest.mark.xdist_group("engines"))
    items.sort(key=lambda item: item.get_closest_marker("engine") is None)
