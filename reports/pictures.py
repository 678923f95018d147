"""Takes a picture of every specimen's page, and of one at several widths for docs: python -m reports.pictures [NAME...]

Needs Chromium; $CHROME names another one.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from tests.browser import FLAGS, find_chromium

from .build import ROOT, specimens

DOCS = ROOT.parent / "docs" / "pictures"
LEAST = 500  # pixels: Chromium's own window is no narrower
HEIGHT = 900
SHOWN = "which-tensor"  # the specimen that docs show
LIGHT, DARK = "1", "0"


@dataclass(frozen=True)
class Picture:
    """The top of a page, `width` by `height` pixels."""

    page: Path
    out: Path
    width: int = 1180
    height: int = HEIGHT
    scheme: str = LIGHT


def pictures(names: tuple[str, ...] = ()) -> list[Picture]:
    """One per specimen (or of those named), and those of docs."""
    found = [
        Picture(folder / "report.html", folder / "report.png")
        for folder in specimens()
        if not names or folder.name in names
    ]
    if names and SHOWN not in names:
        return found
    page = ROOT / SHOWN / "report.html"
    widths = [Picture(page, DOCS / f"{SHOWN}-{width}.png", width) for width in (420, 760, 1180)]
    return [*found, *widths, Picture(page, DOCS / f"{SHOWN}-760-dark.png", 760, scheme=DARK)]


def take(picture: Picture, chromium: str, scratch: Path) -> None:
    """Write the picture. A page narrower than Chromium's window stands in the middle of it, on grey."""
    page, window = picture.page, max(picture.width, LEAST)
    if picture.width < LEAST:
        page = scratch / "frame.html"
        page.write_text(
            f'<!doctype html><body style="margin:0;background:#888;text-align:center"><iframe src='
            f'"{picture.page.as_uri()}" style="border:0;width:{picture.width}px;height:{picture.height}px"></iframe>',
            encoding="utf-8",
        )
    picture.out.parent.mkdir(exist_ok=True)
    command = [chromium, *FLAGS, "--allow-file-access-from-files", f"--user-data-dir={scratch / 'profile'}"]
    command += [f"--screenshot={picture.out}"]
    command += [f"--blink-settings=preferredColorScheme={picture.scheme}"]
    command += [f"--window-size={window},{picture.height}", page.as_uri()]
    subprocess.run(command, check=True, capture_output=True, timeout=120)


def main(names: tuple[str, ...]) -> None:
    """Take them all and say how large they are."""
    chromium = find_chromium()
    with tempfile.TemporaryDirectory(prefix="hsparity-pictures-") as scratch:
        for picture in pictures(names):
            take(picture, chromium, Path(scratch))
            size = picture.out.stat().st_size
            sys.stdout.write(f"{size // 1000:4} kB  {picture.out.relative_to(ROOT.parent)}\n")


if __name__ == "__main__":
    main(tuple(sys.argv[1:]))
