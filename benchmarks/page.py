"""docs/benchmarks.md: each benchmark rewrites the part between its own markers."""

from __future__ import annotations

import os
import platform
import sys
from pathlib import Path


def write_section(path: Path, name: str, text: str) -> None:
    """Replace what lies between <!-- name --> and <!-- /name -->."""
    start, end = f"<!-- {name} -->\n", f"<!-- /{name} -->\n"
    old = path.read_text()
    if start not in old or end not in old:
        sys.exit(f"{path} has no {name} section")
    head, _, rest = old.partition(start)
    path.write_text(head + start + "\n" + text.rstrip() + "\n\n" + end + rest.partition(end)[2])


def machine() -> str:
    """Cores, processor and the load that the figures were taken under."""
    return f"{os.cpu_count()} cores, {_processor()}, Python {platform.python_version()}, load {os.getloadavg()[0]:.1f} at the end"


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next(
        (line.partition(":")[2].strip() for line in lines if line.startswith("model name")),
        platform.machine(),
    )
