"""The live demo on the real engines, and that the recorded one says the same."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from hsparity.model import Comparison, Verdict, from_json

# One worker: what these tests share is made once, and nobody waits for it.
pytestmark = [pytest.mark.engine, pytest.mark.xdist_group("demo")]


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, subprocess.CompletedProcess[str]]:
    folder = tmp_path_factory.mktemp("live")
    command = [sys.executable, "-m", "hsparity", "demo", "--live", "-o", str(folder)]
    return folder, subprocess.run(command, capture_output=True, text=True, check=True)


def result(folder: Path, name: str) -> Comparison:
    return from_json((folder / f"{name}.json").read_text())


def test_the_engines_are_at_parity(live: tuple[Path, subprocess.CompletedProcess[str]]) -> None:
    """vLLM and SGLang hold the same states of a tiny DeepSeek-V3 at every boundary, by the bf16 floor."""
    found = result(live[0], "report")
    assert found.verdict is Verdict.PARITY
    assert {d.ref for d in found.deltas if d.ref.startswith("boundary")} == {
        f"boundary.{r:03d}" for r in range(9)
    }
    assert found.floor.kind == "bf16-reference"
    for delta in found.deltas[1:]:
        # Measured, not assumed: two bf16 engines are neither equal nor far apart.
        assert 1e-3 < delta.metrics["rel_l2"].p50 < 5e-2


def test_one_config_has_two_meanings(live: tuple[Path, subprocess.CompletedProcess[str]]) -> None:
    """Ids 2,4,6 are boundaries 2,4,6 in vLLM and 3,5,7 in SGLang's Llama, by the data."""
    found = result(live[0], "two-meanings")
    assert found.verdict is Verdict.DIVERGED
    assert "HS103" in {f.code for f in found.findings if not f.ruled_out}
    lies = {(s.side, s.cand): s.best for s in found.alignment.slots}
    assert [lies["cand", f"slot.{i:03d}"] for i in range(3)] == [3, 5, 7]
    assert [lies["ref self", f"slot.{i:03d}"] for i in range(3)] == [2, 4, 6]
    assert all(s.proved for s in found.alignment.slots)


def test_it_announces_its_steps(live: tuple[Path, subprocess.CompletedProcess[str]]) -> None:
    """stderr counts the steps and says how long is left; stdout holds the two reports and the audit alone."""
    _, done = live
    steps = re.findall(r"^\[(\d+)/(\d+)\] .*\(about .* left\)$", done.stderr, re.MULTILINE)
    assert [int(n) for n, _ in steps] == list(range(1, int(steps[0][1]) + 1))
    assert done.stdout.count("\n# ") + done.stdout.startswith("# ") == 3
    assert "left)" not in done.stdout


def test_the_recorded_demo_says_the_same(
    live: tuple[Path, subprocess.CompletedProcess[str]], tmp_path: Path
) -> None:
    """The captures that ship lead to the verdicts and findings of captures made now."""
    subprocess.run([sys.executable, "-m", "hsparity", "demo"], cwd=tmp_path, check=True, capture_output=True)
    for name in ("report", "two-meanings"):
        now, then = result(live[0], name), result(tmp_path / "hsparity-demo", name)
        assert then.verdict is now.verdict
        causes = [
            {f.code for f in r.findings if f.severity == "cause" and not f.ruled_out} for r in (now, then)
        ]
        assert causes[0] == causes[1]
