"""Ctrl-C that ends a command between two steps of Python, never amid the import of a compiled library."""

from __future__ import annotations

import os
import signal
import threading
from types import FrameType

_AGAIN = 0.05  # seconds until it is looked again whether the import is over


def install() -> None:
    """Take over SIGINT from Python's own handler; where somebody else has it, or ignores it, nothing changes."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _interrupt)


def _interrupt(number: int, frame: FrameType | None) -> None:
    """Raise KeyboardInterrupt, after the import that is under way: an exception within torch's own start-up code aborts
    the process, with a message about C++."""
    if not _importing(frame):
        raise KeyboardInterrupt
    later = threading.Timer(_AGAIN, os.kill, (os.getpid(), number))
    later.daemon = True
    later.start()


def _importing(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            return True
        frame = frame.f_back
    return False
