"""What the probe says while it works, as lines for stderr; and what an engine's log says when it died."""

from __future__ import annotations

import json
import re
import sys
import time
from pathlib import Path
from typing import Any

from ..engines.machine import gigabytes
from ..engines.progress import clock

EVERY = 10.0  # seconds between progress lines where stderr is not a terminal
_ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_NOISE = re.compile(
    r"^\s*$|\b(INFO|DEBUG|WARNING)\b|Warning:|warnings\.warn|^\s*warn\(|\d+%\||it/s\]|s/it\]|^\[Gloo\]|resource_tracker|^\s*[~^]+\s*$"
)
_RAISED = re.compile(
    r"^\W*(?:\([^)]*\)\s*)?(?:\S+\s+)*?([A-Za-z_][\w.]*(?:Error|Exception|Interrupt|Exit))\b"
)


class Relay:
    """Turns the probe's events into one progress line on a terminal, and a line now and then elsewhere."""

    def __init__(self, label: str, prompts: int) -> None:
        self.label, self.prompts = label, prompts
        self.started = self._shown = time.monotonic()
        self._first = -1
        self._bytes = 0
        self._live = sys.stderr.isatty()

    def say(self, text: str) -> None:
        """One lasting line."""
        sys.stderr.write(("\r\x1b[K" if self._live else "") + f"{self.label}: {text}\n")
        sys.stderr.flush()

    def event(self, line: str) -> bool:
        """Show a line of the probe's stdout if it is an event; False when it is the engine's own output."""
        if not line.startswith('{"event"'):
            return False
        try:
            said: dict[str, Any] = json.loads(line)
        except ValueError:
            return False
        kind = said["event"]
        if kind == "loading":
            self._first = said.get("done", 0)
            self.say(f"loading {said.get('model', '')}")
        elif kind == "loaded":
            shape = f"{said.get('layers')} layers, hidden size {said.get('hidden')}"
            self.say(f"loaded in {clock(said.get('seconds', 0))}: {shape}")
            self.started = time.monotonic()
        elif kind == "prompt":
            self._bytes += said.get("bytes", 0)
            self._prompt(said.get("done", 0), said.get("of", self.prompts))
        return True

    def _prompt(self, done: int, of: int) -> None:
        now = time.monotonic()
        if now - self._shown < (0.1 if self._live else EVERY) and done < of:
            return
        self._shown = now
        fresh = done - max(self._first, 0)
        left = (now - self.started) / fresh * (of - done) if fresh > 0 else 0.0
        text = f"prompt {done} of {of}"
        text += f", {gigabytes(self._bytes)}" if self._bytes else ""  # a measurement keeps no rows
        text += f", {clock(left)} left" if done < of else ""
        if self._live and done < of:
            sys.stderr.write(f"\r\x1b[K{self.label}: {text}")
            sys.stderr.flush()
        else:
            self.say(text)


def log_tail(file: Path, start: int = 0, lines: int = 8) -> tuple[str, ...]:
    """The last telling lines of an engine's log from byte `start` on: no progress bars, no info lines.

    The first exception raised comes before them when it is not among them: it is often the cause.
    """
    try:
        with file.open("rb") as log:
            log.seek(start)
            text = log.read().decode(errors="replace")
    except OSError:
        return ()
    clean = [_ANSI.sub("", line.rpartition("\r")[2]).rstrip() for line in text.splitlines()]
    telling = [line for line in clean if not _NOISE.search(line)]
    tail = (telling or [line for line in clean if line.strip()])[-lines:]
    raised = next((line for line in telling if _RAISED.match(line) and not line.startswith(" ")), None)
    if raised and raised not in tail:
        tail = [raised, "…", *tail[-(lines - 2) :]]
    return tuple(line[:300] for line in tail)
