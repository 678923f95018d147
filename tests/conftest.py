"""How tests share a machine."""

from __future__ import annotations

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Engine tests come first: they take longest, and both workers wait for captures that they share."""
    items.sort(key=lambda item: item.get_closest_marker("engine") is None)
