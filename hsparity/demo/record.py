"""Rebuilds the captures that ship with hsparity: python -m hsparity.demo.record [FOLDER]."""

from __future__ import annotations

import shutil
import sys
import tempfile
import zipfile
from dataclasses import replace
from pathlib import Path

from hsprobe.schema import CaptureManifest

from .live import capture_all
from .plan import SCENES
from .show import CAPTURES, RECORDED

LIMIT = 1_000_000  # bytes, all of them together
KEPT = ("journal.jsonl", "norm.safetensors", "shards")  # what reading a capture needs, besides its manifest


def record(made: str = "") -> int:
    """Capture, or take what `capture_all` left in a folder, and replace hsparity/demo/recorded.zip.

    Returns the bytes that ship.
    """
    with tempfile.TemporaryDirectory(prefix="hsparity-record-") as scratch:
        folder = Path(made) if made else Path(scratch)
        if not made:
            capture_all(folder, recorded=True)
        fresh = Path(scratch) / RECORDED.name
        with zipfile.ZipFile(fresh, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
            for scene in SCENES:
                for take in scene.takes:
                    _keep(folder / CAPTURES / take.name, scene.model, archive)
        size = fresh.stat().st_size
        if size > LIMIT:
            sys.exit(f"the captures are {size:,} bytes, more than {LIMIT:,}: shorten the prompts in plan.py")
        shutil.copy(fresh, RECORDED)
    return size


def _keep(source: Path, model: str, archive: zipfile.ZipFile) -> None:
    paths = [path for name in KEPT for path in ((source / name), *sorted((source / name).glob("*")))]
    held = {str(path.relative_to(source)): path.read_bytes() for path in paths if path.is_file()}
    manifest = CaptureManifest.from_json((source / "manifest.json").read_text())
    # Where the model lay and which kernel ran is of no use elsewhere; the bundled name serves everywhere.
    environment = {key: value for key, value in manifest.environment.items() if key != "platform"}
    text = replace(manifest, environment=environment).to_json().replace(manifest.model, model)
    held["manifest.json"] = f"{text}\n".encode()
    for name, data in held.items():
        # A fixed date: the same captures give the same archive.
        entry = zipfile.ZipInfo(f"{source.name}/{name}", date_time=(1980, 1, 1, 0, 0, 0))
        archive.writestr(entry, data, zipfile.ZIP_DEFLATED, compresslevel=9)


if __name__ == "__main__":
    sys.stdout.write(f"{record(*sys.argv[1:2]):,} bytes in {RECORDED}\n")
