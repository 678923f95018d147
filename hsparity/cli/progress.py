"""One progress line on stderr, on a terminal only."""

from __future__ import annotations

import sys
import time
from types import TracebackType


class Progress:
    """Call it with (done, of, note); it shows a share and the time left, and clears itself at the end."""

    def __init__(self, label: str) -> None:
        self.label = label
        self.started = self._shown = time.monotonic()
        self.live = sys.stderr.isatty()

    def __enter__(self) -> Progress:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.live:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()

    def __call__(self, done: float, of: float, note: str = "") -> None:
        now = time.monotonic()
        # Nothing is shown for work that ends within half a second, and at most ten times a second after that.
        if not self.live or not of or now - self.started < 0.5 or (now - self._shown < 0.1 and done < of):
            return
        self._shown = now
        left = (now - self.started) * (of - done) / done if done else 0.0
        sys.stderr.write(f"\r\x1b[K{self.label} {done / of:4.0%}  {left:.0f} s left  {note}")
        sys.stderr.flush()
