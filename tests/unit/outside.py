"""Schemas of other people's formats, where a package of the dev extra carries them. None is copied into this repository."""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path

import pytest


def carried(package: str, file: str) -> Path:
    """A file that an installed package carries. Without it a test is skipped, and in CI it fails."""
    try:
        spec = find_spec(package)
    except ModuleNotFoundError:  # the package above it
        spec = None
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        if (Path(folder) / file).is_file():
            return Path(folder) / file
    if os.environ.get("CI"):
        pytest.fail(f"{package} with {file} is needed: install requirements/dev.lock")
    pytest.skip(f"{package} with {file} is not installed")
