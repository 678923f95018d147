"""The demo on recorded captures."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from hsparity.capture.read import open_source
from hsparity.demo.plan import SCENES, Scene
from hsparity.demo.show import RECORDED
from hsparity.model import Verdict, from_json


def demo(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "hsparity", "demo", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, subprocess.CompletedProcess[str]]:
    folder = tmp_path_factory.mktemp("demo")
    return folder, demo(folder)


def test_recorded_captures_are_small() -> None:
    """What ships is under one megabyte."""
    assert RECORDED.stat().st_size < 1_000_000


def test_the_demo_reports(shown: tuple[Path, subprocess.CompletedProcess[str]]) -> None:
    """Parity on one model, two meanings of one draft config on the other, and exit 0 all the same."""
    folder, done = shown
    assert done.returncode == 0, done.stderr
    reports = {
        s.report: from_json((folder / "hsparity-demo" / f"{s.report}.json").read_text()) for s in SCENES
    }
    assert reports["report"].verdict is Verdict.PARITY
    assert reports["two-meanings"].verdict is Verdict.DIVERGED
    assert reports["two-meanings"].findings[0].code == "HS103"
    assert "PARITY" in done.stdout
    assert "ids 2, 4, 6 are boundaries" in " ".join(done.stdout.split())
    for scene in SCENES:
        assert (folder / "hsparity-demo" / f"{scene.report}.html").read_text().startswith("<!doctype html>")


@pytest.mark.parametrize("scene", SCENES, ids=lambda s: s.report)
def test_recorded_captures_are_captures(
    scene: Scene, shown: tuple[Path, subprocess.CompletedProcess[str]]
) -> None:
    """Each passes its checks, verifies by hash, holds the plan's tokens, and names no machine's folder."""
    for take in scene.takes:
        source = open_source(shown[0] / "hsparity-demo" / "captures" / take.name)
        source.verify()
        manifest = source.manifest
        assert all(check.passed for check in manifest.checks)
        assert (manifest.engine, manifest.model) == (take.engine, scene.model)
        wanted = scene.spec(take, scene.model, recorded=True).prompts
        for prompt in wanted:
            assert tuple(source.token_ids(prompt.id).tolist()) == prompt.token_ids
        assert "/root" not in manifest.to_json()
        assert "/home" not in manifest.to_json()


def test_the_printed_command_works(shown: tuple[Path, subprocess.CompletedProcess[str]]) -> None:
    """The captures stay where the reports say, for `hsparity compare` to be tried on."""
    sides = [f"hsparity-demo/captures/{name}" for name in ("vllm-draft", "sglang-draft")]
    command = [sys.executable, "-m", "hsparity", "compare", *sides, "-q"]
    done = subprocess.run(command, cwd=shown[0], capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stderr
    assert "DIVERGED" in done.stdout


def test_a_second_run_replaces_the_first(tmp_path: Path) -> None:
    """Running it again in the same folder gives the same bytes."""
    before = []
    for _ in range(2):
        assert demo(tmp_path, "-o", "out").returncode == 0
        before.append({p.name: p.read_bytes() for p in (tmp_path / "out").glob("*.*")})
    assert before[0] == before[1]


@pytest.mark.parametrize("file", ["notes.txt", "manifest.json"])
def test_a_folder_of_the_users_is_not_removed(file: str, tmp_path: Path) -> None:
    """A folder that no demo made, be it a capture, is refused with E106 and kept."""
    mine = tmp_path / "out" / "captures" / "vllm"
    mine.mkdir(parents=True)
    (mine / file).write_text("mine")
    done = demo(tmp_path, "-o", "out")
    assert done.returncode == 2
    assert "error[E106]" in done.stderr
    assert (mine / file).read_text() == "mine"
