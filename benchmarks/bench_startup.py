"""How long a command takes to start: `hsparity --help`, and the smallest comparison, as whole processes.

    python benchmarks/bench_startup.py [--repeats 15] [--write docs/benchmarks.md]

The parts that are not ours, an empty Python and `import torch`, are timed in turn with them.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from page import machine, write_section

GOALS = {"hsparity --help": 0.2, "smallest compare": 1.5}  # seconds, on an idle machine


def commands(folder: Path) -> dict[str, list[str]]:
    hsparity = [sys.executable, "-m", "hsparity"]
    subprocess.run([*hsparity, "demo", "-o", "."], cwd=folder, check=True, capture_output=True)
    return {
        "python": [sys.executable, "-c", "pass"],
        "import torch": [sys.executable, "-c", "import torch"],
        "hsparity --help": [*hsparity, "--help"],
        "smallest compare": [
            *hsparity,
            "compare",
            "captures/vllm",
            "captures/sglang",
            "--boundaries",
            "2,4,6",
        ],
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--write", type=Path, metavar="FILE", help="put the table into this Markdown file")
    options = parser.parse_args()
    repeats = options.repeats
    with tempfile.TemporaryDirectory(prefix="hsparity-bench-") as folder:
        timed: dict[str, list[float]] = {}
        known = commands(Path(folder))
        for _ in range(repeats):
            for name, command in known.items():
                begun = time.perf_counter()
                subprocess.run(command, cwd=folder, capture_output=True, check=False)
                timed.setdefault(name, []).append(time.perf_counter() - begun)
    lines = [f"{machine()}.", "", "| | median | fastest | | goal |", "|---|--:|--:|--:|--:|"]
    for name, seconds in timed.items():
        ratio = statistics.median(s / e for s, e in zip(seconds, timed["python"], strict=True))
        goal = f"{GOALS[name]} s" if name in GOALS else ""
        lines.append(
            f"| {name} | {statistics.median(seconds):.3f} s | {min(seconds):.3f} s | {ratio:.1f}× python | {goal} |"
        )
    print("\n".join(lines))
    if options.write:
        write_section(options.write, "startup", "\n".join(lines))


if __name__ == "__main__":
    main()
