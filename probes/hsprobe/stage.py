"""Puts the probe on another interpreter's PYTHONPATH: a copy of this package and its entry points."""

from __future__ import annotations

import ast
import hashlib
import shutil
from pathlib import Path

from . import __version__

PACKAGE = Path(__file__).parent


def stage(folder: Path) -> Path:
    """Copy the package and a .dist-info into `folder` and return it, the PYTHONPATH entry. Raises OSError.

    The .dist-info names each engine's plugin under its PLUGIN_GROUP; nothing is installed in the engine's
    environment.
    """
    for source in _sources():
        target = folder / PACKAGE.name / source.relative_to(PACKAGE)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, target)
    info = folder / f"{PACKAGE.name}-{__version__}.dist-info"
    info.mkdir(parents=True, exist_ok=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {PACKAGE.name}\nVersion: {__version__}\n")
    (info / "entry_points.txt").write_text(entry_points())
    return folder


def digest() -> str:
    """SHA-256 over this package's file names and bytes: which probe made a capture."""
    total = hashlib.sha256()
    for source in _sources():
        total.update(f"{source.relative_to(PACKAGE).as_posix()}\0{source.stat().st_size}\0".encode())
        total.update(source.read_bytes())
    return total.hexdigest()


def engines() -> tuple[str, ...]:
    """The engines that have a file here."""
    return tuple(sorted(path.stem.removesuffix("_engine") for path in PACKAGE.glob("engines/*_engine.py")))


def entry_points() -> str:
    """The text of entry_points.txt: one group per engine that loads plugins."""
    lines = []
    for name in engines():
        if group := plugin_group(PACKAGE / "engines" / f"{name}_engine.py"):
            lines += [f"[{group}]", f"{PACKAGE.name} = {PACKAGE.name}.engines.{name}_engine:plugin", ""]
    return "\n".join(lines)


def plugin_group(path: Path) -> str | None:
    """PLUGIN_GROUP of an engine file, read without importing it: staging needs no torch."""
    for node in ast.parse(path.read_text()).body:
        if not isinstance(node, (ast.Assign, ast.AnnAssign)) or node.value is None:
            continue
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        if any(isinstance(target, ast.Name) and target.id == "PLUGIN_GROUP" for target in targets):
            group: str | None = ast.literal_eval(node.value)
            return group
    return None


def _sources() -> list[Path]:
    return sorted(path for path in PACKAGE.rglob("*.py") if "__pycache__" not in path.parts)
