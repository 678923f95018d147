"""The probe in an environment that holds torch, safetensors and nothing else of ours."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
import sysconfig
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[2]
PROBES = ROOT / "probes"


def needed(*names: str) -> set[str]:
    """Distributions that `names` need, themselves included, without extras."""
    found: set[str] = set()
    todo = list(names)
    while todo:
        name = todo.pop()
        if name in found:
            continue
        found.add(name)
        for line in metadata.requires(name) or ():
            requirement = Requirement(line)
            if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
                todo.append(requirement.name)
    return found


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Python with torch, safetensors and what those two need; numpy is not among it."""
    folder = tmp_path_factory.mktemp("bare")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder / "env"], check=True)
    library = folder / "library"
    library.mkdir()
    source = Path(sysconfig.get_path("purelib"))
    for name in needed("torch", "safetensors"):
        for file in metadata.files(name) or ():
            top = file.parts[0]
            if top not in ("..", "__pycache__") and not (library / top).exists():
                (library / top).symlink_to(source / top)
    (site,) = (folder / "env").glob("lib/python*/site-packages")
    (site / "library.pth").write_text(f"{library}\n")
    return folder / "env" / "bin" / "python"


def run(python: Path, *arguments: str, path: Path = PROBES) -> subprocess.CompletedProcess[str]:
    env = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")} | {"PYTHONPATH": str(path)}
    return subprocess.run(
        [str(python), *arguments], cwd=python.parent, env=env, capture_output=True, text=True, check=False
    )


def test_every_probe_module_imports(bare: Path) -> None:
    """Each module imports where there is no click, rich, jinja2, numpy, transformers or hsparity."""
    names = [
        ".".join(p.relative_to(PROBES).with_suffix("").parts) for p in sorted(PROBES.glob("hsprobe/**/*.py"))
    ]
    names = [n.removesuffix(".__init__") for n in names if not n.endswith("__main__")]
    assert len(names) > 10
    code = (
        "import importlib, sys\n"
        f"for name in {names!r}: importlib.import_module(name)\n"
        "for name in ('click', 'rich', 'numpy', 'transformers', 'hsparity', 'pytest'):\n"
        "    try: importlib.import_module(name)\n"
        "    except ModuleNotFoundError: continue\n"
        "    sys.exit(name + ' is there: this environment proves nothing')\n"
    )
    done = run(bare, "-c", code)
    assert done.returncode == 0, done.stderr


def test_the_staged_probe_is_the_probe(bare: Path, tmp_path: Path) -> None:
    """The staged folder imports by itself, and both engines' plugin loaders would find it."""
    staged = tmp_path / "staged"
    done = run(bare, "-c", f"import pathlib, hsprobe.stage as s; s.stage(pathlib.Path({str(staged)!r}))")
    assert done.returncode == 0, done.stderr
    code = (
        "import hsprobe\n"
        "from importlib.metadata import entry_points\n"
        "groups = ('vllm.general_plugins', 'sglang.srt.plugins')\n"
        "print(hsprobe.__file__); print(sorted({e.group for g in groups for e in entry_points(group=g)}))\n"
    )
    shown = run(bare, "-c", code, path=staged)
    assert shown.returncode == 0, shown.stderr
    where, groups = shown.stdout.splitlines()
    assert Path(where).is_relative_to(staged)
    assert groups == "['sglang.srt.plugins', 'vllm.general_plugins']"


def test_without_a_spec_it_says_how(bare: Path) -> None:
    """`python -m hsprobe` with nothing asked prints its usage and fails, with no traceback."""
    done = run(bare, "-m", "hsprobe")
    assert done.returncode != 0
    assert "usage" in (done.stdout + done.stderr).lower()
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("package", ["hsparity", "probes/hsprobe"])
def test_sources_parse_as_python_310(package: str) -> None:
    """No syntax newer than the oldest Python that is promised."""
    for path in (ROOT / package).rglob("*.py"):
        ast.parse(path.read_text(), filename=str(path), feature_version=(3, 10))
