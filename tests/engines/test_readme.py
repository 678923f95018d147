"""README.md's commands that need engines."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.readme import ROOT, follow

pytestmark = pytest.mark.engine


def test_readme_engine_commands_run(tmp_path: Path) -> None:
    """Every command marked as needing engines does what the README says, in order, where the demo was run before."""
    subprocess.run([sys.executable, "-m", "hsparity", "demo"], cwd=tmp_path, check=True, capture_output=True)
    assert follow((ROOT / "README.md").read_text(), tmp_path, engines=True) >= 1
