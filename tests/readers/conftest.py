"""What holds a test of hostile files in bounds: `bounded` ends one that hangs or takes memory without end."""

from __future__ import annotations

import resource
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

SECONDS, BYTES = 8, 3 << 30


@pytest.fixture
def bounded() -> Iterator[None]:
    """A time limit that no `except Exception` catches, and an address space of 3 GB more than there is now."""

    def stop(*_: Any) -> None:
        pytest.fail(f"it took more than {SECONDS} s")

    pages = int(Path("/proc/self/statm").read_text().split()[0])
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(SECONDS)
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + BYTES, hard))
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
