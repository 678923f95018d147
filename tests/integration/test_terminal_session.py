"""hsparity in a terminal: width, colour, progress, Ctrl-C, a reader that goes away."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path

import pytest

from hsparity.cli import output
from hsparity.model import to_json
from hsparity.report import Options, reporters
from tests.causes.streams import capture
from tests.golden.cases import CASES

RUN = "import hsparity.cli.main as main; print('ready', flush=True); main.run()"


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with two captures that take more than a second to compare."""
    folder = tmp_path_factory.mktemp("session")
    for seed, name in enumerate(("a", "b"), 1):
        capture(seed, count=40, length=256).write(folder / name)
    return folder


def terminal(folder: Path, *arguments: str, columns: int = 80, code: str = "", **environ: str) -> str:
    """What a command writes to a terminal of that width, both streams."""
    main, end = pty.openpty()
    fcntl.ioctl(end, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    command = [sys.executable, "-c", code] if code else [sys.executable, "-m", "hsparity", *arguments]
    kept = {k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "COLUMNS")}
    child = subprocess.Popen(command, cwd=folder, stdout=end, stderr=end, env={**kept, **environ})
    os.close(end)
    seen = b""
    try:
        while chunk := os.read(main, 65536):
            seen += chunk
    except OSError:  # the last one closed the terminal
        pass
    finally:
        os.close(main)
        child.wait(timeout=60)
    return seen.decode().replace("\r\n", "\n")


@pytest.mark.parametrize("columns", [60, 80, 120])
def test_a_report_fills_the_terminal_it_is_in(columns: int, tmp_path: Path) -> None:
    """The page is that of the width, in colour; NO_COLOR takes the colour and nothing else; -q is one line of it."""
    found = CASES["several"]()
    (tmp_path / "r.json").write_text(to_json(found))
    made = reporters()["terminal"]
    environ = {"PYTHONIOENCODING": "utf-8"}
    colored = terminal(tmp_path, "report", "r.json", columns=columns, **environ)
    assert colored == made.render(found, Options(width=columns, color=True)) + "\n"
    if columns == 80:
        plain = terminal(tmp_path, "report", "r.json", columns=columns, NO_COLOR="1", **environ)
        assert plain == re.sub(r"\x1b\[[0-9;]*m", "", colored)
        quiet = terminal(tmp_path, "report", "r.json", "-q", NO_COLOR="1", PYTHONIOENCODING="ascii")
        assert quiet == made.render(found, Options(quiet=True, unicode=False)) + "\n"


def test_long_work_shows_its_share_and_the_time_left() -> None:
    """On a terminal, on one line that is gone at the end; elsewhere not a byte."""
    code = (
        "import time\nfrom hsparity.cli.progress import Progress\n"
        "with Progress('working') as step:\n"
        "    for i in range(9):\n        time.sleep(0.1)\n        step(i + 1, 9, f'part {i + 1}')\n"
    )
    shown = terminal(Path.cwd(), code=code)
    assert re.search(r"\r\x1b\[Kworking  56%  0 s left  part 5", shown)
    assert "\n" not in shown
    assert shown.endswith("\r\x1b[K")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    assert done.stdout + done.stderr == b""


@pytest.mark.parametrize("delay", [0.05, 0.4, 0.9])
def test_ctrl_c_ends_a_comparison(delay: float, pair: Path) -> None:
    """Before and while libraries are loaded, and behind it: exit 130, one word, and no half of a report; a report of an
    earlier run is still whole."""
    (pair / "old.html").write_text("an earlier page")
    child = subprocess.Popen(
        [sys.executable, "-c", RUN, "compare", "a", "b", "--html", "old.html", "--json", "new.json"],
        cwd=pair,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert child.stdout is not None
    assert child.stdout.readline() == "ready\n"
    time.sleep(delay)
    child.send_signal(signal.SIGINT)
    out, err = child.communicate(timeout=60)
    assert (child.returncode, out, err.split()) == (130, "", ["interrupted"])
    assert (pair / "old.html").read_text() == "an earlier page"
    assert sorted(p.name for p in pair.iterdir()) == ["a", "b", "old.html"]


def test_ctrl_c_waits_for_an_import(tmp_path: Path) -> None:
    """Within an import it comes when the import is over: torch's own code does not bear an exception."""
    (tmp_path / "slow.py").write_text(
        "import os, signal, time\nos.kill(os.getpid(), signal.SIGINT)\ntime.sleep(0.2)\nprint('imported')\n"
    )
    code = (
        "import time\nfrom hsparity.cli import interrupts\ninterrupts.install()\n"
        "try:\n    import slow\n    time.sleep(5)\nexcept KeyboardInterrupt:\n    print('interrupted')\n"
    )
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environ, timeout=30
    )
    assert done.stdout.split() == ["imported", "interrupted"]


@pytest.mark.parametrize("arguments", [["--json", "-"], ["-v"]])
def test_a_reader_that_goes_away(arguments: list[str], tmp_path: Path) -> None:
    """Exit 141 and not a word, as every filter does."""
    read, write = os.pipe()
    os.close(read)
    (tmp_path / "r.json").write_text(to_json(CASES["offset"]()))
    command = [sys.executable, "-m", "hsparity", "report", "r.json", *arguments]
    done = subprocess.run(
        command, cwd=tmp_path, stdout=write, stderr=subprocess.PIPE, check=False, timeout=60
    )
    os.close(write)
    assert (done.returncode, done.stderr) == (141, b"")


def test_a_report_is_written_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Interrupted between its bytes the old one stays; a link keeps its target, a file its mode, a device is written to."""
    page, link = tmp_path / "page.html", tmp_path / "link.html"
    page.write_text("old")
    page.chmod(0o640)
    link.symlink_to(page)
    output.write_file(str(link), "new\udcff")
    assert (page.read_text(), page.stat().st_mode & 0o777, link.is_symlink()) == ("new\\udcff", 0o640, True)
    output.write_file("/dev/null", "nothing")

    def stopped(*_: object) -> None:
        raise KeyboardInterrupt

    # Behind the last byte of the new file, before it takes the old one's place.
    monkeypatch.setattr("shutil.copymode", stopped)
    with pytest.raises(KeyboardInterrupt):
        output.write_file(str(page), "newer")
    assert page.read_text() == "new\\udcff"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["link.html", "page.html"]


def test_a_name_cannot_steer_the_terminal_through_a_message(tmp_path: Path) -> None:
    """An error spells out what a path holds."""
    done = subprocess.run(
        [sys.executable, "-m", "hsparity", "report", "\x1b[31mred\u202e.json"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert done.stderr.startswith("error[E213]: cannot read \\x1b[31mred\\u202e.json\n")
