"""Digests of shards, computed in the background while the caller does something else."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Sequence
from pathlib import Path

from hsparity.capture.shards import HELP
from hsparity.errors import HsparityError

CHUNK = 1 << 20


class Digests:
    """Hashes files in order in one daemon thread: hashlib releases the interpreter lock, so importing torch
    overlaps it."""

    def __init__(self, files: Sequence[tuple[Path, str]]) -> None:
        self._files = files
        self._error: HsparityError | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="hsparity-verify", daemon=True)
        self._thread.start()

    def join(self) -> None:
        """Wait for the last digest. Raises E206 for the first file that is not what the manifest says."""
        self._thread.join()
        if self._error:
            raise self._error

    def close(self) -> None:
        """Stop after the chunk at hand."""
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        buffer = bytearray(CHUNK)
        try:
            for path, wanted in self._files:
                found = self._digest(path, buffer)
                if found is None:
                    return
                if found != wanted:
                    notes = (f"manifest  {wanted}", f"file      {found}")
                    self._error = HsparityError(
                        "E206", f"shard does not match its sha256: {path}", notes, HELP
                    )
                    return
        except OSError as error:
            self._error = HsparityError("E206", f"shard cannot be read: {error}", help=HELP)

    def _digest(self, path: Path, buffer: bytearray) -> str | None:
        digest = hashlib.sha256()
        view = memoryview(buffer)
        with path.open("rb", buffering=0) as file:
            while count := file.readinto(buffer):
                if self._stop.is_set():
                    return None
                digest.update(view[:count])
        return digest.hexdigest()
