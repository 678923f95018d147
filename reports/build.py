"""Renders every specimen again from its report.json: python -m reports.build"""

from __future__ import annotations

from pathlib import Path

from hsparity.cli import drafter_page
from hsparity.drafter.result import SCHEMA, DraftCost
from hsparity.model import Comparison, from_json
from hsparity.report import Options, cost_page, reporters

ROOT = Path(__file__).parent
OPTIONS = {"html": Options(), "terminal": Options(width=80), "markdown": Options()}


def specimens() -> list[Path]:
    """The folders that hold a result."""
    return sorted(path.parent for path in ROOT.glob("*/report.json") if (path.parent / "README.md").exists())


def render(folder: Path) -> dict[str, str]:
    """File names and texts of a specimen's reports."""
    saved = (folder / "report.json").read_text(encoding="utf-8")
    texts = _cost(saved) if f'"{SCHEMA}"' in saved else _comparison(saved)
    return {name: text.rstrip("\n") + "\n" for name, text in texts.items()}


def _comparison(saved: str) -> dict[str, str]:
    result: Comparison = from_json(saved)
    known = reporters()
    return {
        f"report{known[name].suffix}": known[name].render(result, options)
        for name, options in OPTIONS.items()
    }


def _cost(saved: str) -> dict[str, str]:
    cost = DraftCost.from_json(saved)
    return {
        "report.html": cost_page.render(cost),
        "report.txt": drafter_page.render(cost, OPTIONS["terminal"]),
    }


def build() -> None:
    """Write them."""
    for folder in specimens():
        for name, text in render(folder).items():
            (folder / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    build()
