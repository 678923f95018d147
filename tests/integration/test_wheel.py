"""The built wheel, installed: what it holds, and what it does where torch is absent."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def run(*command: str | Path, cwd: Path, code: int = 0, **env: str) -> subprocess.CompletedProcess[str]:
    """Run a command outside the checkout; its exit code must be `code`."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "VIRTUAL_ENV"))}
    done = subprocess.run(
        [str(c) for c in command], cwd=cwd, env=clean | env, capture_output=True, text=True, check=False
    )
    assert done.returncode == code, f"{done.stdout}\n{done.stderr}"
    return done


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel that `python -m build` makes."""
    out = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--wheel", "--outdir", out, ROOT, cwd=out)
    (built,) = out.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def laptop(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with the wheel and what the reports need: no torch, no safetensors."""
    folder = tmp_path_factory.mktemp("laptop") / "env"
    run(sys.executable, "-m", "venv", folder, cwd=folder.parent)
    pip = [folder / "bin" / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    run(*pip, "click", "rich", "jinja2", "numpy", cwd=folder.parent)
    run(*pip, "--no-deps", wheel, cwd=folder.parent)
    return folder / "bin"


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The reports of `hsparity demo`, made by the development environment."""
    folder = tmp_path_factory.mktemp("demo")
    run(sys.executable, "-m", "hsparity", "demo", cwd=folder)
    return folder / "hsparity-demo"


def test_wheel_holds_everything(wheel: Path) -> None:
    """Both packages whole: locks, templates, prompts, the stub and the recorded captures included."""
    held = set(zipfile.ZipFile(wheel).namelist())
    for package, folder in {"hsparity": ROOT / "hsparity", "hsprobe": ROOT / "probes" / "hsprobe"}.items():
        for path in folder.rglob("*"):
            if path.is_file() and "__pycache__" not in path.parts:
                assert f"{package}/{path.relative_to(folder)}" in held
    for name in ("engines/locks/sglang.txt", "engines/libcuda_stub.c", "report/templates/report.html.j2"):
        assert f"hsparity/{name}" in held
    assert "hsparity/data/prompts.jsonl" in held
    assert "hsparity/demo/recorded.zip" in held
    assert any(name.endswith("licenses/LICENSE") for name in held)
    assert {name.split("/")[0] for name in held if "dist-info" not in name} == {"hsparity", "hsprobe"}


def test_wheel_is_small(wheel: Path) -> None:
    """Two and a half megabytes are enough for all of it, of which the recorded captures are less than one."""
    assert (ROOT / "hsparity/demo/recorded.zip").stat().st_size < 1_000_000
    assert wheel.stat().st_size < 2_500_000


@pytest.mark.parametrize(
    "arguments", [["--help"], ["--version"], ["compare", "--help"], ["explain", "HS101"], ["explain", "E203"]]
)
def test_a_laptop_reads_help(laptop: Path, arguments: list[str], tmp_path: Path) -> None:
    """Help and explanations work without torch."""
    assert run(laptop / "hsparity", *arguments, cwd=tmp_path).stdout.strip()


@pytest.mark.parametrize("stem", ["report", "two-meanings"])
def test_a_laptop_renders_reports(laptop: Path, demo: Path, stem: str, tmp_path: Path) -> None:
    """A result renders without torch, to the same bytes as where it was made."""
    run(laptop / "python", "-c", "import torch", cwd=tmp_path, code=1)
    files = ["--html", "out.html", "--markdown", "out.md", "--json", "out.json"]
    shown = run(laptop / "hsparity", "report", demo / f"{stem}.json", *files, cwd=tmp_path).stdout
    assert (tmp_path / "out.html").read_bytes() == (demo / f"{stem}.html").read_bytes()
    assert (tmp_path / "out.json").read_bytes() == (demo / f"{stem}.json").read_bytes()
    assert (tmp_path / "out.md").stat().st_size > 0
    assert "hsparity-demo/captures" in shown


def test_a_laptop_names_what_is_missing(laptop: Path, demo: Path, tmp_path: Path) -> None:
    """Comparing needs torch; without it the answer is not a verdict."""
    sides = [demo / "captures" / side for side in ("vllm", "sglang")]
    done = subprocess.run(
        [laptop / "hsparity", "compare", *sides], cwd=tmp_path, capture_output=True, check=False
    )
    assert done.returncode not in (0, 1, 3)
    assert b"torch" in done.stderr


def test_the_installed_demo_runs(wheel: Path, tmp_path: Path) -> None:
    """The wheel alone, with its dependencies beside it, shows the demo: nothing is read from the checkout."""
    env = tmp_path / "env"
    run(sys.executable, "-m", "venv", "--without-pip", env, cwd=tmp_path)
    (site,) = env.glob("lib/python*/site-packages")
    zipfile.ZipFile(wheel).extractall(site)
    # A path in a .pth file brings the dependencies, not their .pth files: hsparity stays the wheel's.
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    python = env / "bin" / "python"
    where = run(
        python, "-c", "import hsparity, hsprobe; print(hsparity.__file__, hsprobe.__file__)", cwd=tmp_path
    )
    assert all(Path(p).is_relative_to(site) for p in where.stdout.split())
    shown = run(python, "-m", "hsparity", "demo", cwd=tmp_path).stdout
    assert "two meanings" in shown
    assert (tmp_path / "hsparity-demo" / "report.html").stat().st_size > 10_000
