"""Crash-safe capture folders: shards committed one prompt at a time, a journal, the manifest last.

spec.json            what was asked for; another spec in the same folder is refused
shards/00007.safetensors      one prompt (00007.g0, 00007.g1, … where its sites exceed SHARD_BYTES)
journal.jsonl        one line per committed prompt: its Prompt, its ShardEntry records, its self-check figures
manifest.json        its presence means complete
"""

from __future__ import annotations

import ctypes
import errno
import hashlib
import json
import os
import shutil
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, BinaryIO

import torch

from . import spool
from .protocol import ProbeError
from .schema import SCHEMA, CaptureManifest, CaptureSpec, Prompt, ShardEntry

SHARD_BYTES = 512 * 2**20
ROW_KEYS = ("token_ids", "positions", "steps")  # in every shard of a prompt
REFUSED = (errno.EROFS, errno.EACCES, errno.EPERM, errno.ENOTDIR, errno.EEXIST)
DTYPE_NAMES = {
    torch.bfloat16: "BF16",
    torch.float16: "F16",
    torch.float32: "F32",
    torch.float64: "F64",
    torch.int32: "I32",
    torch.int64: "I64",
    torch.uint8: "U8",
    torch.bool: "BOOL",
    torch.float8_e4m3fn: "F8_E4M3",
    torch.float8_e5m2: "F8_E5M2",
}


@dataclass(frozen=True)
class Committed:
    """A prompt whose shards are on disk. `figures` are the self-check's numbers for it."""

    prompt: Prompt
    shards: tuple[ShardEntry, ...]
    figures: dict[str, Any]


class CaptureWriter:
    """The only writer of a capture folder. Opening one resumes: `done` holds what is already committed."""

    def __init__(self, out: Path, spec: CaptureSpec) -> None:
        """Open or create `out`. Raises ProbeError E204 (another spec), E206 (damaged journal), E106, E205."""
        self.out, self.spec = out, spec
        self.shards = out / "shards"
        self.journal = out / "journal.jsonl"
        with coded(out):
            self.shards.mkdir(parents=True, exist_ok=True)
            self._claim()
            for leftover in (*self.shards.glob("*.tmp"), *out.glob("*.tmp")):
                leftover.unlink()
            shutil.rmtree(out / spool.FOLDER, ignore_errors=True)
            (out / spool.FOLDER).mkdir()
            self.done = {c.prompt.id: c for c in self._committed()}

    @property
    def complete(self) -> CaptureManifest | None:
        """The manifest of a folder that needs nothing more, or None."""
        path = self.out / "manifest.json"
        return CaptureManifest.from_json(path.read_text()) if path.exists() else None

    def commit(
        self,
        index: int,
        prompt: Prompt,
        rows: Mapping[str, torch.Tensor],
        sites: Mapping[str, torch.Tensor],
        figures: dict[str, Any],
    ) -> tuple[ShardEntry, ...]:
        """Write one prompt's shards, then its journal line; after this returns a crash cannot lose it.

        `rows` holds token_ids [T], positions [R] and steps [R], all int32; `sites` the tensors by site key.
        Raises ProbeError E205 when the disk is full, E106 when the folder cannot be written.
        """
        with coded(self.out):
            groups = list(_groups(sites))
            entries = []
            for number, keys in enumerate(groups):
                name = (
                    f"{index:05d}.safetensors" if len(groups) == 1 else f"{index:05d}.g{number}.safetensors"
                )
                tensors = {**rows, **{key: sites[key] for key in keys}}
                metadata = {"schema": SCHEMA, "prompt": prompt.id}
                digest, size = write_safetensors(self.shards / name, tensors, metadata)
                named = tuple(k for k in keys if k != "prompt_logprob_ids")
                entries.append(ShardEntry(f"shards/{name}", prompt.id, named, prompt.tokens, size, digest))
            committed = Committed(prompt, tuple(entries), figures)
            self._append(json.dumps(asdict(committed), sort_keys=True))
            self.done[prompt.id] = committed
        return committed.shards

    def finish(self, manifest: CaptureManifest) -> None:
        """Write manifest.json, which declares the capture complete, and remove the spool."""
        with coded(self.out):
            write_text(self.out / "manifest.json", manifest.to_json())
            shutil.rmtree(self.out / spool.FOLDER, ignore_errors=True)

    def _claim(self) -> None:
        path = self.out / "spec.json"
        if not path.exists():
            if self.journal.exists():
                raise ProbeError(
                    "E204", f"{self.out} holds shards but no spec.json", "capture into another folder"
                )
            write_text(path, self.spec.to_json())
            return
        try:
            before = CaptureSpec.from_json(path.read_text())
        except (ValueError, KeyError, TypeError) as error:
            raise ProbeError(
                "E204", f"{path} is not a capture spec: {error}", "capture into another folder"
            ) from None
        if before.sha256() != self.spec.sha256():
            raise ProbeError(
                "E204",
                f"{self.out} was begun with another spec ({_changes(before, self.spec)})",
                "capture into another folder, or remove this one",
            )

    def _committed(self) -> Iterator[Committed]:
        raw = self.journal.read_bytes() if self.journal.exists() else b""
        whole = raw.rfind(b"\n") + 1
        if whole < len(raw):  # a torn last line would swallow the next one appended
            with self.journal.open("r+b") as file:
                file.truncate(whole)
                os.fsync(file.fileno())
        for number, line in enumerate(raw[:whole].splitlines(), 1):
            try:
                committed = _from_line(json.loads(line))
            except (ValueError, KeyError, TypeError) as error:
                message = f"line {number} of {self.journal} is damaged: {error}"
                raise ProbeError("E206", message, "capture into another folder") from None
            if all(_size(self.out / s.path) == s.bytes for s in committed.shards):
                yield committed

    def _append(self, line: str) -> None:
        descriptor = os.open(self.journal, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            payload = line.encode() + b"\n"
            if os.write(descriptor, payload) != len(payload):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        _sync_folder(self.out)


def write_safetensors(
    path: Path, tensors: Mapping[str, torch.Tensor], metadata: dict[str, str]
) -> tuple[str, int]:
    """Write `path` atomically and return its SHA-256 and size. Raises OSError.

    Not safetensors' own save_file: that leaves hidden temporary files when killed, hides the errno, and
    would have the file read again for its hash. The format is a length, a JSON header and the bytes.
    """
    header: dict[str, Any] = {"__metadata__": metadata}
    blocks, offset = [], 0
    # Widest element first keeps every tensor aligned to its element size, as save_file does.
    for key in sorted(tensors, key=lambda k: (-tensors[k].element_size(), k)):
        tensor = tensors[key].detach().cpu().contiguous()
        size = tensor.numel() * tensor.element_size()
        span = [offset, offset + size]
        header[key] = {"dtype": DTYPE_NAMES[tensor.dtype], "shape": list(tensor.shape), "data_offsets": span}
        blocks.append(tensor)
        offset += size
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    digest = hashlib.sha256()
    with _replacing(path) as file:
        for part in (len(text).to_bytes(8, "little"), text):
            _write_all(file.fileno(), memoryview(part))
            digest.update(part)
        for tensor in blocks:
            size = tensor.numel() * tensor.element_size()
            if not size:
                continue
            view = memoryview((ctypes.c_ubyte * size).from_address(tensor.data_ptr())).cast("B")
            _write_all(file.fileno(), view)
            digest.update(view)
    return digest.hexdigest(), 8 + len(text) + offset


def write_text(path: Path, text: str) -> None:
    """Write a small file atomically and durably. Raises OSError."""
    with _replacing(path) as file:
        _write_all(file.fileno(), memoryview(text.encode()))


@contextmanager
def _replacing(path: Path) -> Iterator[BinaryIO]:
    """An unbuffered temporary file that takes the place of `path` once it is whole and on the disk."""
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb", buffering=0) as file:
            yield file
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError:
        temporary.unlink(missing_ok=True)  # on a full disk, leave room to say so
        raise
    _sync_folder(path.parent)


def file_sha256(path: Path) -> str:
    """SHA-256 of a file's bytes. Raises OSError."""
    digest = hashlib.sha256()
    with path.open("rb", buffering=0) as file:
        while block := file.read(2**22):
            digest.update(block)
    return digest.hexdigest()


@contextmanager
def coded(out: Path) -> Iterator[None]:
    """Turns an OSError of writing under `out` into ProbeError E205 (disk full) or E106 (not writable)."""
    try:
        yield
    except OSError as error:
        if disk_full(error):
            raise ProbeError(
                "E205",
                f"the disk holding {out} is full",
                "free some space and run the same command again: finished prompts are kept",
            ) from error
        if error.errno in REFUSED:
            reason = f"{os.strerror(error.errno or 0)}: {error.filename or out}"
            raise ProbeError(
                "E106", f"{out} cannot be written ({reason})", "name another output folder"
            ) from error
        raise


def disk_full(error: BaseException | None) -> bool:
    """Whether an exception, or what caused it, is a full disk: engines pass an OSError on as text only."""
    while error is not None:
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
            return True
        if os.strerror(errno.ENOSPC) in str(error):
            return True
        error = error.__cause__ or error.__context__
    return False


def _groups(sites: Mapping[str, torch.Tensor]) -> Iterator[list[str]]:
    group: list[str] = []
    total = 0
    for key, tensor in sites.items():
        size = tensor.numel() * tensor.element_size()
        if group and total + size > SHARD_BYTES and key != "prompt_logprob_ids":
            yield group
            group, total = [], 0
        group.append(key)
        total += size
    yield group


def _from_line(raw: dict[str, Any]) -> Committed:
    prompt = {**raw["prompt"], "missing": tuple(map(tuple, raw["prompt"]["missing"]))}
    prompt["generated"] = tuple(prompt["generated"])
    shards = tuple(ShardEntry(**{**s, "sites": tuple(s["sites"])}) for s in raw["shards"])
    return Committed(Prompt(**prompt), shards, raw["figures"])


def _changes(before: CaptureSpec, after: CaptureSpec) -> str:
    old, new = asdict(before), asdict(after)
    return ", ".join(key for key in old if old[key] != new[key]) + " changed"


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return -1


def _write_all(descriptor: int, view: memoryview) -> None:
    while view.nbytes:
        view = view[os.write(descriptor, view[: 2**24]) :]


def _sync_folder(folder: Path) -> None:
    if sys.platform == "win32":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
