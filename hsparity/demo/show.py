"""Compares the demo's captures and writes its reports; where the captures came from makes no difference."""

from __future__ import annotations

import shutil
import zipfile
from pathlib import Path

from ..errors import HsparityError
from ..model import Comparison
from .plan import SCENES, Scene

RECORDED = Path(__file__).parent / "recorded.zip"
CAPTURES = "captures"
MARKER = ".hsparity-demo"  # names the captures that a demo made, hence may replace


def unpack(folder: Path) -> None:
    """Put the captures that ship with hsparity into `folder`/captures. Raises E106: not writable."""
    for scene in SCENES:
        for take in scene.takes:
            make_way(folder, take.name)
    try:
        with zipfile.ZipFile(RECORDED) as recorded:
            recorded.extractall(folder / CAPTURES)
    except OSError as error:
        raise _unwritable(folder, error) from error


def make_way(folder: Path, name: str) -> None:
    """Remove the capture `name` of an earlier demo and note that the next one is ours too.

    Raises E106 for a folder that is in the way and that no demo made: it is left alone.
    """
    captures = folder / CAPTURES
    try:
        captures.mkdir(parents=True, exist_ok=True)
        ours = captures / MARKER
        made = ours.read_text().split() if ours.exists() else []
        if (captures / name).exists():
            if name not in made:
                raise HsparityError(
                    "E106", f"{captures / name} is not of the demo", help="name another folder with -o"
                )
            shutil.rmtree(captures / name)
        ours.write_text("\n".join(sorted({*made, name})) + "\n")
    except OSError as error:
        raise _unwritable(folder, error) from error


def _unwritable(folder: Path, error: OSError) -> HsparityError:
    return HsparityError("E106", f"cannot write {folder}", (str(error),), "name another with -o")


def compare_scene(scene: Scene, folder: Path) -> Comparison:
    """The scene's comparison, of the captures in `folder`/captures."""
    from ..capture.read import open_source
    from ..compare import Query, compare

    ref, cand, *floors = (
        open_source(folder / CAPTURES / name) for name in (scene.ref, scene.cand, *scene.floors)
    )
    return compare(ref, cand, floors, Query())
