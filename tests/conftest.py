"""How tests share a machine."""

from __future__ import annotations

import pytest

# Tests of one group run in one worker, one after the other: two engines at once are what two cores bear. The rest runs
# behind them, in whichever worker is free.
SECOND = {"test_sglang", "test_audit", "test_demo", "test_selfcheck", "test_install"}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Engine tests in two groups, so that no third engine is ever started beside them."""
    for item in items:
        if item.get_closest_marker("engine"):
            second = item.path.stem in SECOND
            item.add_marker(pytest.mark.xdist_group("engines-2" if second else "engines-1"))
