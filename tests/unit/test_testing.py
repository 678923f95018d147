"""assert_parity: the comparison as an assertion, on the captures that ship with the demo."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hsparity
from hsparity.demo import show
from hsparity.errors import HsparityError
from hsparity.model import Comparison, Verdict
from hsparity.report import Options, reporters
from hsparity.testing import assert_parity
from tests.golden.cases import CASES

FLOOR = ("captures/hf-fp32", "captures/hf-bf16")


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that `hsparity demo` leaves its captures in."""
    folder = tmp_path_factory.mktemp("demo")
    show.unpack(folder)
    return folder


@pytest.fixture
def home(demo: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(demo)
    return demo


@pytest.mark.usefixtures("home")
def test_parity_passes(capsys: pytest.CaptureFixture[str]) -> None:
    """Two healthy engines within their floor; the comparison is handed back, nothing is printed."""
    found = assert_parity(Path("captures/vllm"), "captures/sglang", layers=[1, 3, 5], floor=FLOOR)
    assert found.verdict is Verdict.PARITY
    assert found.request.layers == (1, 3, 5)
    assert capsys.readouterr() == ("", "")


@pytest.mark.usefixtures("home")
def test_a_divergence_fails_with_the_report_and_the_fix() -> None:
    """The text is the first reason, then the terminal report at 80 columns without colour, then every reason."""
    with pytest.raises(AssertionError) as caught:
        assert_parity("captures/vllm-draft", "captures/sglang-draft")
    text = str(caught.value)
    assert "DIVERGED" in text
    assert "HS103 native-ids" in text
    assert "fix  a draft needs the boundaries it was trained on" in text
    assert text.splitlines()[-1].startswith("gate: failed, verdict diverged: ")
    assert "\x1b" not in text
    assert max(map(len, text.splitlines()[1:-1])) <= 80


@pytest.mark.usefixtures("home")
def test_inconclusive_fails_unless_it_is_allowed(capsys: pytest.CaptureFixture[str]) -> None:
    """Without a floor nothing is known; to let that pass is said on stderr."""
    with pytest.raises(AssertionError, match="gate: failed, verdict inconclusive"):
        assert_parity("captures/vllm", "captures/sglang", layers=5)
    assert_parity("captures/vllm", "captures/sglang", layers=5, fail_on="diverged", max_rel_l2=0.5)
    assert "gate: passed, verdict inconclusive is not in fail_on" in capsys.readouterr().err


def test_a_comparison_is_judged_as_it_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """One that was loaded or made before; its limits may be given, its layers no more."""
    monkeypatch.chdir(tmp_path)
    found = CASES["parity"]()
    assert assert_parity(found) is found
    with pytest.raises(AssertionError, match=r"max_ratio allows 0\.5"):
        assert_parity(found, max_ratio={"58": 0.5})
    with pytest.raises(AssertionError, match=r"max_ratio allows 0\.5"):
        assert_parity(
            found, max_ratio={np.int64(2): np.float32(9), 58: np.float32(0.5)}, min_tokens=np.int64(1)
        )
    page = reporters()["terminal"].render(CASES["offset"](), Options()).rstrip()
    with pytest.raises(AssertionError) as caught:
        assert_parity(CASES["offset"](), fail_on=["HS101"])
    first, rest = str(caught.value).split("\n", 1)
    assert first.startswith("gate: failed, HS101 layer-offset")
    assert rest.startswith(f"{page}\n{first}")
    with pytest.raises(TypeError, match="layers cannot be changed"):
        assert_parity(found, layers="2")
    with pytest.raises(TypeError, match="or two captures"):
        assert_parity("captures/vllm")


def test_the_gate_of_the_folder_holds(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A test and the command judge by one [gate]; an argument takes the place of its key."""
    monkeypatch.chdir(tmp_path)
    Path("hsparity.toml").write_text("[gate]\nmin_tokens = 97\n")
    found: Comparison = CASES["parity"]()
    with pytest.raises(AssertionError, match="min_tokens is 97"):
        assert_parity(found)
    assert_parity(found, min_tokens=96)


@pytest.mark.parametrize(
    ("keys", "code"),
    [
        ({"max_ratio": -1}, "E104"),
        ({"max_ratio": {4: 1.0, "04": 9.0}}, "E104"),
        ({"max_ratio": {True: 1.0}}, "E104"),
        ({"max_ratio": 10**400}, "E104"),
        ({"max_rel_l2": {"x y": 1.0}}, "E104"),
        ({"fail_on": "divergd"}, "E107"),
        ({"fail_on": [101]}, "E107"),
        ({"fail_on": []}, "E107"),
        ({"fail_on": ()}, "E107"),
        ({"fail_on": {}}, "E107"),
        ({"fail_on": ""}, "E107"),
        ({"fail_on": False}, "E107"),
    ],
)
def test_a_bad_argument_is_refused_before_anything_is_read(keys: dict[str, float], code: str) -> None:
    with pytest.raises(HsparityError) as caught:
        assert_parity("nowhere", "neither", **keys)
    assert caught.value.code == code


def test_a_folder_is_a_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A name such as vllm starts no engine, and a folder that is not there is named."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(HsparityError, match="no such capture: vllm") as caught:
        assert_parity("vllm", "sglang")
    assert caught.value.code == "E202"


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"max_ration": 2.0}, "no argument max_ration: did you mean max_ratio"),
        ({"layer": "2"}, "no argument layer: did you mean layers"),
        ({"zzz": 1}, "no argument zzz: it has layers, boundaries"),
    ],
)
def test_a_mistyped_argument_names_the_nearest(given: dict[str, Any], words: str) -> None:
    """Of this function's and of the comparison's; before anything is read, and for a Comparison too."""
    for sides in (("captures/none", "captures/none"), (CASES["parity"](),)):
        with pytest.raises(TypeError, match=words):
            assert_parity(*sides, **given)


def test_pytest_shows_the_reason_and_the_callers_line(tmp_path: Path) -> None:
    """The summary line holds the gate's reason; no frame of hsparity's is in the traceback, whatever is wrong."""
    (tmp_path / "test_it.py").write_text(
        "from hsparity.testing import assert_parity\nfrom tests.golden.cases import CASES\n"
        "def test_far(): assert_parity(CASES['offset'](), fail_on='HS101')\n"
        "def test_typo(): assert_parity(CASES['offset'](), max_ration=1)\n"
        "def test_none(): assert_parity('captures/none', 'captures/none')\n"
    )
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-p",
            "no:cacheprovider",
            "-n",
            "0",
            "-c",
            "/dev/null",
            "test_it.py",
        ],
        check=False,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "COLUMNS": "120"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert "FAILED test_it.py::test_far - AssertionError: gate: failed, HS101" in done.stdout
    assert "FAILED test_it.py::test_typo - TypeError: assert_parity has no argument" in done.stdout
    assert "FAILED test_it.py::test_none - hsparity.errors.HsparityError" in done.stdout
    assert str(Path(hsparity.__file__).parent) not in done.stdout
    assert "hsparity/testing.py" not in done.stdout
