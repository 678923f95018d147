"""What `import hsparity` promises."""

from __future__ import annotations

import subprocess
import sys

import pytest

import hsparity


def test_all_is_sorted_and_complete() -> None:
    """__all__ lists the lazily loaded names, in order, and each of them loads."""
    assert list(hsparity.__all__) == sorted(hsparity.__all__)
    assert set(hsparity.__all__) == set(hsparity._HOMES)
    for name in hsparity.__all__:
        assert getattr(hsparity, name) is not None


def test_unknown_names_raise_attribute_error() -> None:
    """A misspelt name fails as on any module."""
    with pytest.raises(AttributeError, match="no attribute 'compere'"):
        _ = hsparity.compere


def test_import_is_cheap() -> None:
    """`import hsparity` loads nothing outside the standard library."""
    code = (
        "import sys; before = set(sys.modules); import hsparity\n"
        "new = {m.split('.')[0] for m in set(sys.modules) - before} - set(sys.stdlib_module_names)\n"
        "assert new == {'hsparity'}, new"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_version_is_the_distribution_version() -> None:
    """The version in the code is the one that is installed."""
    from importlib.metadata import version

    assert hsparity.__version__ == version("hsparity")
