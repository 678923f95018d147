"""Child processes: what of our environment they get, and that they never outlive us."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence

# Asks the kernel to kill this process when its parent dies, then becomes the command.
_TIED = """
import ctypes, os, sys
try:
    ctypes.CDLL(None).prctl(1, 9)
except (OSError, AttributeError):
    pass
if os.getppid() != int(sys.argv[1]):
    sys.exit(137)
os.execv(sys.argv[2], sys.argv[2:])
"""


def tied(command: Sequence[str]) -> list[str]:
    """`command`, to be killed when this process dies, even by kill -9. Its first word is an absolute path.

    An orphan would go on writing beside the run that takes up its work.
    """
    return [sys.executable, "-c", _TIED, str(os.getpid()), *command]


def clean_environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """The user's environment without what binds a child to our own interpreter, then `extra`."""
    bound = ("PYTHONHOME", "VIRTUAL_ENV", "__PYVENV_LAUNCHER__")
    env = {k: v for k, v in os.environ.items() if k not in bound}
    # A file called vllm.py in the working folder would shadow the engine.
    env["PYTHONSAFEPATH"] = "1"
    return {**env, **(extra or {})}
