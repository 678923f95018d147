"""Reads a capture folder back: are the bytes those that were written, and did it pass its own self-check."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from .protocol import ProbeError
from .schema import SCHEMA, CaptureManifest
from .writer import file_sha256


def verify(folder: Path) -> Iterator[str]:
    """Yield one line per verified fact.

    Raises ProbeError E202 (no capture), E207 (incomplete), E201 (another schema), E206 (changed or missing
    bytes) and E305 (a recorded check that failed).
    """
    manifest = read_manifest(folder)
    files = [(shard.path, shard.sha256) for shard in manifest.shards]
    if manifest.norm is not None:
        files.append((manifest.norm.file, manifest.norm.sha256))
    total = 0
    for name, expected in files:
        path = folder / name
        try:
            found = file_sha256(path)
        except OSError as error:
            raise ProbeError("E206", f"{path} cannot be read: {error.strerror}", "capture again") from None
        if found != expected:
            raise ProbeError(
                "E206", f"{path} is not what was written: SHA-256 {found[:12]}…, {expected[:12]}… was"
            )
        total += path.stat().st_size
    yield f"{len(files)} files, {total} bytes: every SHA-256 as written"
    for check in manifest.checks:
        if not check.passed:
            raise ProbeError("E305", f"{check.name}: {check.detail}")
        yield f"{check.name}: {check.detail} (measured {check.value:.3g}, limit {check.limit:.3g})"
    for warning in manifest.warnings:
        yield f"warning: {warning}"


def read_manifest(folder: Path) -> CaptureManifest:
    """The manifest of a complete capture. Raises ProbeError E201, E202, E206 or E207."""
    path = folder / "manifest.json"
    if not path.exists():
        journal = folder / "journal.jsonl"
        if not journal.exists() and not (folder / "spec.json").exists():
            raise ProbeError("E202", f"{folder} is not a capture: it has no manifest.json")
        done = journal.read_bytes().count(b"\n") if journal.exists() else 0
        raise ProbeError(
            "E207", f"{folder} is incomplete: {done} prompts are finished", "run its capture again"
        )
    try:
        manifest = CaptureManifest.from_json(path.read_text())
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ProbeError("E206", f"{path} cannot be read: {error}") from None
    if manifest.schema != SCHEMA:
        raise ProbeError("E201", f"{folder} has schema {manifest.schema}, this probe reads {SCHEMA}")
    return manifest
