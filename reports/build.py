"""Renders every specimen again from its report.json: python -m reports.build"""

from __future__ import annotations

from pathlib import Path

from hsparity.model import Comparison, from_json
from hsparity.report import Options, reporters

ROOT = Path(__file__).parent
OPTIONS = {"html": Options(), "terminal": Options(width=80), "markdown": Options()}


def specimens() -> list[Path]:
    """The folders that hold a result."""
    return sorted(path.parent for path in ROOT.glob("*/report.json") if (path.parent / "README.md").exists())


def render(folder: Path) -> dict[str, str]:
    """File names and texts of a specimen's reports."""
    result: Comparison = from_json((folder / "report.json").read_text(encoding="utf-8"))
    known = reporters()
    texts = {
        f"report{known[name].suffix}": known[name].render(result, options)
        for name, options in OPTIONS.items()
    }
    return {name: text.rstrip("\n") + "\n" for name, text in texts.items()}


def build() -> None:
    """Write them."""
    for folder in specimens():
        for name, text in render(folder).items():
            (folder / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    build()
