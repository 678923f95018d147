"""README.md's commands, run; those that need engines are in tests/engines."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.readme import ELSEWHERE, ROOT, Command, blocks, follow, run

README = (ROOT / "README.md").read_text()
SAMPLE = """
<!-- file: hsparity.toml -->
```toml
[ref]
```
```console
$ hsparity --version
hsparity, version 0.1.0
$ hsparity compare a \\
    b  # exits 2
```
<!-- engines -->
```sh
# a remark
hsparity engines list
```
```python
hsparity.compare()
```
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where a reader stands after the demo: its captures also lie in captures/."""
    home = tmp_path_factory.mktemp("reader")
    subprocess.run([sys.executable, "-m", "hsparity", "demo"], cwd=home, check=True, capture_output=True)
    shutil.copytree(home / "hsparity-demo" / "captures", home / "captures")
    return home


def test_blocks_are_read() -> None:
    """Commands, continuation lines, exit codes, expected output, file blocks and notes are told apart."""
    file, console, sh = blocks(SAMPLE)
    assert (file.file, file.body) == ("hsparity.toml", "[ref]\n")
    assert [(c.line, c.exits) for c in console.commands()] == [
        ("hsparity --version", 0),
        ("hsparity compare a b", 2),
    ]
    assert console.commands()[0].prints == ["hsparity, version 0.1.0"]
    assert sh.engines
    assert [c.line for c in sh.commands()] == ["hsparity engines list"]
    assert not sh.commands()[0].prints


@pytest.mark.parametrize(
    "command",
    [
        Command("hsparity --version", 1),
        Command("hsparity --version", 0, ["hsparity, version 9"]),
        Command("hsparity --version", 0, ["…", "version 0.1.0", "…", "hsparity"]),
    ],
)
def test_a_wrong_readme_is_seen(command: Command, tmp_path: Path) -> None:
    """Another exit code, other output, and the right output in the wrong order all fail."""
    with pytest.raises(AssertionError):
        run(command, tmp_path)


def test_every_command_is_known() -> None:
    """Nothing in a command block escapes the tests: it is hsparity's, Python's, or listed as not run."""
    programs = [c.program for block in blocks(README) if not block.file for c in block.commands()]
    assert set(programs) <= {"hsparity", "python"} | ELSEWHERE
    assert programs.count("hsparity") >= 3


def test_readme_commands_run(folder: Path) -> None:
    """Every command that needs no engine does what the README says."""
    assert follow(README, folder, engines=False) >= 2
