"""The command line under odd streams and odd arguments: an exit code that says what happened, no traceback."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.causes.streams import capture

NINES = "9" * 5000


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with two captures, `a` and a bytewise name that is not UTF-8, of the same states."""
    folder = tmp_path_factory.mktemp("robust")
    made = capture(1, count=1, length=8)
    for name in ("a", os.fsdecode(b"b\xff")):
        made.write(folder / name)
    return folder


def run(folder: Path, arguments: str, redirect: str = "") -> tuple[int, str, str]:
    command = f"{shlex.quote(sys.executable)} -m hsparity compare {arguments} {redirect}"
    done = subprocess.run(
        ["bash", "-c", command],
        check=False,
        cwd=folder,
        capture_output=True,
        text=True,
        errors="surrogateescape",
        timeout=60,
    )
    assert "Traceback" not in done.stderr
    assert "Exception ignored" not in done.stderr
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ("a a --tol nan", "E102"),
        ("a a --tol inf", "E100 E102"),
        ("a a --layers 0-9999999999", "E102"),
        (f"a a --layers {NINES}", "E102"),
        (f"a a --boundaries 0-{NINES}", "E102"),
        (f"a a --layers 0-3:{NINES},{NINES}", "E102"),
        (f"a a --tokens {NINES}:", "E102"),
        ("a a --json f --html ./f", "E103"),
        ("a a --json - --html -", "E103"),
        ("a a --tol 0.1 --floor a --floor a", "E103"),
        ("'' a", "E101"),
        ("a ''", "E101"),
    ],
)
def test_an_argument_that_nothing_can_be_made_of(pair: Path, arguments: str, code: str) -> None:
    status, out, err = run(pair, arguments)
    assert (status, out) == (2, "")
    assert err[6:10] in code
    assert max(map(len, err.splitlines())) < 200


@pytest.mark.parametrize(
    ("redirect", "status"),
    [
        (">&-", 2),
        (">/dev/full", 2),
        (">/dev/full 2>/dev/full", 2),
        (">&- 2>&-", 2),
        ("2>&-", 0),
        ("2>/dev/full --html page.html", 0),
        ("--json /dev/full", 2),
        ("<&- >&- 2>&-", 2),
    ],
)
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_stream_that_takes_nothing(pair: Path, redirect: str, status: int) -> None:
    """A lost result is E106; lost messages change nothing."""
    found, _, err = run(pair, "a a", redirect)
    assert found == status
    assert status == 0 or "2>" in redirect or err.startswith("error[E106]")


@pytest.mark.parametrize("encoding", ["utf-8", "ascii", "latin-1"])
def test_a_name_that_is_not_text(pair: Path, encoding: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reports are written whatever the bytes of a path; JSON keeps them."""
    monkeypatch.setenv("PYTHONIOENCODING", encoding)
    name = os.fsdecode(b"b\xff")
    status, out, _ = run(pair, f"a {name}", "--json r.json --html r.html --markdown r.md")
    assert status == 0
    assert "PARITY" in out
    assert json.loads((pair / "r.json").read_text())["cand"]["path"] == name
