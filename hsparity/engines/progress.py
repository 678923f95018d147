"""What an installation is doing and how long is left, on stderr."""

from __future__ import annotations

import sys
import time

EVERY = 15.0  # seconds between lines where stderr is not a terminal


class InstallProgress:
    """One rewritten line on a terminal, a line every 15 seconds elsewhere. `typical`: its usual seconds."""

    def __init__(self, title: str, typical: float) -> None:
        self.title, self.typical = title, typical
        self.started = time.monotonic()
        self._shown = 0.0
        self._live = sys.stderr.isatty()

    def say(self, text: str) -> None:
        """One lasting line."""
        self._write(("\r\x1b[K" if self._live else "") + f"{self.title}: {text}\n")

    def __call__(self, doing: str, share: float) -> None:
        """Show what is being done; `share` of the whole is finished, 0 to 1."""
        now = time.monotonic()
        if now - self._shown < (0.2 if self._live else EVERY):
            return
        self._shown = now
        elapsed = now - self.started
        line = (
            f"{self.title}: {doing}, {clock(elapsed)} elapsed, about {clock(self.left(share, elapsed))} left"
        )
        self._write(f"\r\x1b[K{line}" if self._live else f"{line}\n")

    def left(self, share: float, elapsed: float) -> float:
        """Seconds left: the typical time at first, this run's own pace once a fifth is done."""
        pace = elapsed / share if share > 0.05 else 0.0
        total = pace if share > 0.2 else max(self.typical, pace)
        return max(total - elapsed, (1 - share) * 5.0)

    def clear(self) -> None:
        if self._live:
            self._write("\r\x1b[K")

    @staticmethod
    def _write(text: str) -> None:
        sys.stderr.write(text)
        sys.stderr.flush()


def clock(seconds: float) -> str:
    """`45 s`, `2 min 30 s`."""
    whole = max(int(seconds + 0.5), 0)
    return f"{whole} s" if whole < 60 else f"{whole // 60} min {whole % 60} s"
