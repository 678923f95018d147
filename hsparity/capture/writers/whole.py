"""Files that are whole or absent, whenever the program is stopped."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

TEMPORARY = ".tmp"


@contextmanager
def replacing(path: Path) -> Iterator[IO[bytes]]:
    """A temporary file that takes the place of `path` once it is whole and on the disk. Raises OSError."""
    temporary = path.with_name(f"{path.name}.{os.getpid()}{TEMPORARY}")
    try:
        with temporary.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
        sync(path.parent)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def save_torch(path: Path, content: Any) -> None:
    """`torch.save`, atomically. Raises OSError."""
    import torch

    # Into an open file: by name torch hides the error of a full disk in a message of its own.
    with replacing(path) as file:
        torch.save(content, file)


def sync(folder: Path) -> None:
    """Return once the names in a folder are on the disk. Raises OSError."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sweep(folder: Path) -> None:
    """Remove what a stopped export left half written."""
    for leftover in folder.rglob(f"*{TEMPORARY}"):
        leftover.unlink(missing_ok=True)
