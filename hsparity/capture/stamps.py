"""Telling a dataset that was made again from the one that was read before."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from hsparity.capture.readers.base import Dataset, Record


def stamp(dataset: Dataset, record: Record) -> str:
    """Size and time of a sample's files, and how they are read."""
    parts = [dataset.format, str(dataset.claimed or "")]
    for path in (record.path, record.side):
        if path is not None:
            try:
                said = path.stat()
            except OSError:
                return "gone"
            parts.append(f"{said.st_size}-{said.st_mtime_ns}")
    return " ".join(parts)


def stamps_sha256(dataset: Dataset, records: Sequence[Record]) -> str:
    """One digest of all ids and stamps, in order."""
    digest = hashlib.sha256()
    for record in records:
        digest.update(f"{record.id}\n{stamp(dataset, record)}\n".encode(errors="surrogatepass"))
    return digest.hexdigest()
