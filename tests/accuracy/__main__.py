"""How often the diagnosis is right, measured on real engines: `python -m tests.accuracy docs/accuracy.md`.

Makes the corpus (corpus.py, planted.py), lets `compare` and `bisect` judge every case, and writes the page. Captures are
kept in --home: a second run makes only what is missing.
"""

from __future__ import annotations

import argparse
import datetime
import json
import platform
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hsparity import engines
from hsparity.model import Verdict

from . import bisected, corpus, page, planted
from .bisected import Answer
from .prose import BISECT, COMPARE, CUTS, DISTANCES, FLIPS, INTRODUCTION, LIMITS, PLANTED
from .score import Score, board, score


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("output", type=Path, help="Markdown file to write")
    parser.add_argument("--home", type=Path, default=Path("captures/accuracy"), help="folder of the corpus")
    parser.add_argument("--made", action="store_true", help="judge what is there; keep its sweep")
    chosen = parser.parse_args()
    failed = [] if chosen.made else _make(chosen.home)
    records = json.loads((chosen.home / "cases.json").read_text())
    real = [r for r in records if not r.get("planted")]
    bisected.lend(chosen.home / "captures", chosen.home / "bisect")
    answers = [_told(bisected.ask(record, chosen.home / "bisect")) for record in real]
    sweep = _sweep(chosen.home / "planted", again=not chosen.made)
    chosen.output.write_text(render(chosen.home, records, answers, sweep, failed))


def _make(home: Path) -> list[tuple[str, str]]:
    """Capture what is missing; the cases that could not be captured, with the reason."""
    _, failed = corpus.make(home)
    folder = home / "planted"
    planted.make(folder)
    seen = [p for p in planted.plantings(folder) if p.clear or p.comparison.verdict is not Verdict.PARITY]
    planted.enlist([*planted.healthy(folder), *(p.record() for p in seen)], home / "cases.json")
    return failed


def _sweep(folder: Path, again: bool) -> str:
    """The table of the weakest faults found; the longest part of a run, so that it is kept beside the captures."""
    kept = folder / "table.md"
    if again or not kept.exists() or not kept.stat().st_size:
        kept.write_text(planted.rows(folder))
    return kept.read_text()


def render(
    home: Path,
    records: Sequence[dict[str, Any]],
    answers: Sequence[Answer],
    sweep: str,
    failed: Sequence[tuple[str, str]],
) -> str:
    """The page."""
    real = [r for r in records if not r.get("planted")]
    faults = [r for r in records if r.get("planted")]
    versions = ", ".join(f"{name} {engines.resolve(name).version}" for name in ("hf", "vllm", "sglang"))
    lines = [
        "# How often the diagnosis is right",
        "",
        f"{datetime.date.today()}, {versions}, Python {platform.python_version()}, CPU ({page.cpu()}).",
        INTRODUCTION,
        f"\n## `hsparity compare` on real divergences\n\n{COMPARE}\n",
        board(_scores(real)),
        f"## `hsparity bisect` on the same\n\n{BISECT}\n",
        *page.bisected(answers),
        f"\n## Planted faults\n\n{PLANTED}\n",
        board(_scores(faults)),
        sweep,
        f"## How far apart the sides lie\n\n{DISTANCES}\n",
        *page.distances(real),
        f"\n## The jumps of a mixture of experts\n\n{FLIPS}\n",
        *page.flips(home / "captures"),
        f"\n## Kernels that cut instead of rounding\n\n{CUTS}\n",
        *page.gains(real),
        f"\n## What this does not show\n\n{LIMITS}",
    ]
    if failed:
        lines += ["", "Not captured in this run:", "", *(f"- {name}: {why}" for name, why in failed)]
    return "\n".join(lines) + "\n"


def _scores(records: Sequence[dict[str, Any]]) -> list[Score]:
    found = []
    for record in records:
        found.append(score(record))
        sys.stderr.write(f"{found[-1].outcome:<12} {record['name']}\n")
    return found


def _told(answer: Answer) -> Answer:
    sys.stderr.write(f"bisect {answer.grade:<12} {answer.name}: {answer.said}\n")
    return answer


if __name__ == "__main__":
    main()
