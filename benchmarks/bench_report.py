"""How large the HTML page is, how long it takes to write, and how long a browser takes to open it.

    python benchmarks/bench_report.py [--repeats 7] [--write docs/benchmarks.md]

Loading is from the start of navigation to the end of the load event, as the page's own clock tells; an empty page is opened in
turn with it. Needs Chromium.
"""

from __future__ import annotations

import argparse
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from page import machine, write_section

sys.path.insert(0, str(Path(__file__).parents[1]))

from hsparity.report import Options, reporters
from tests.browser import FLAGS, find_chromium
from tests.golden.cases import CASES
from tests.golden.sizes import real_size

PROBE = (
    "<script>addEventListener('load',function(){setTimeout(function(){var t=performance.getEntriesByType('navigation')[0];"
    "document.documentElement.setAttribute('data-ms',t.loadEventEnd)},0)})</script></body>"
)
EMPTY = "<!doctype html><html><body><p>empty</p></body></html>"


def opened(program: str, page: Path, folder: Path) -> float:
    """Milliseconds until the page has loaded, in a browser of its own."""
    flags = [f for f in FLAGS if not f.startswith("--virtual-time")]  # that clock is not the wall's
    done = subprocess.run(
        [
            program,
            *flags,
            f"--user-data-dir={folder / 'profile'}",
            "--timeout=4000",
            "--dump-dom",
            page.as_uri(),
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    found = re.search(r'data-ms="([\d.]+)"', done.stdout)
    if found is None:
        raise SystemExit(f"{page.name} did not say when it had loaded")
    return float(found[1])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--write", type=Path, metavar="FILE", help="put the table into this Markdown file")
    options = parser.parse_args()
    program, html = find_chromium(), reporters()["html"]
    made = {
        "62 boundaries x 96 tokens": CASES["offset"](),
        "62 boundaries x 50 prompts of 8,192 tokens": real_size(),
    }
    with tempfile.TemporaryDirectory(prefix="hsparity-bench-") as name:
        folder = Path(name)
        (folder / "empty.html").write_text(EMPTY.replace("</body>", PROBE))
        sizes, written = {"empty": len(EMPTY)}, {}
        for title, result in made.items():
            begun = time.perf_counter()
            text = html.render(result, Options())
            written[title], sizes[title] = time.perf_counter() - begun, len(text.encode())
            (folder / f"{title}.html").write_text(text.replace("</body>", PROBE), encoding="utf-8")
        timed: dict[str, list[float]] = {}
        for _ in range(options.repeats):
            for title in sizes:
                timed.setdefault(title, []).append(opened(program, folder / f"{title}.html", folder))
    lines = [
        f"{machine()}.",
        "",
        "| page | size | written in | opens in (median, slowest) | over an empty page |",
    ]
    lines.append("|---|--:|--:|--:|--:|")
    for title, took in timed.items():
        over = statistics.median(a / b for a, b in zip(took, timed["empty"], strict=True))
        wrote = f"{written[title]:.2f} s" if title in written else ""
        lines.append(
            f"| {title} | {sizes[title] / 1e6:.2f} MB | {wrote} | {statistics.median(took):.0f} ms, {max(took):.0f} ms "
            f"| {over:.1f}x |"
        )
    lines += ["", "Goals: a page of real size opens in less than a second and is smaller than 3 MB."]
    text = "\n".join(lines)
    print(text)
    if options.write:
        write_section(options.write, "report", text)


if __name__ == "__main__":
    main()
