"""One pass over every sample of a dataset, without an engine; what was seen is kept, so a stopped pass goes on."""

from __future__ import annotations

import hashlib
import io
import json
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, TextIO

import numpy as np
import torch

from hsparity.capture.readers.base import Dataset, Record, Sample, read_sample
from hsparity.capture.stamps import stamp
from hsparity.errors import HsparityError

Progress = Callable[[float, float, str], None]
AT_ONCE = 32  # samples handed to the threads together
JOURNAL = "scan.jsonl"


@dataclass(frozen=True, slots=True)
class Facts:
    """What one sample shows. `stamp`: size and time of its files and how they were read, so that a changed one is read
    again."""

    id: str
    stamp: str
    code: str = ""  # of the error, where it could not be read
    message: str = ""
    tokens: int = 0
    rows: int = 0
    slots: int = 0
    width: int = 0
    dtype: str = ""
    masked: int = -1  # tokens that the loss mask keeps; -1 without a mask
    nonfinite: int = 0  # rows with a NaN or Inf in any slot
    zero: int = 0  # rows that are all zero in any slot
    repeated: int = 0  # rows that equal the row before them bit for bit, in the last slot
    ids_digest: str = ""
    states_digest: str = ""
    norms: tuple[float, ...] = ()  # per slot: median over rows of log10 of a row's RMS
    warnings: tuple[str, ...] = ()


def scan(
    dataset: Dataset, records: Sequence[Record], work: Path, progress: Progress | None = None
) -> list[Facts]:
    """Facts of every record, in order. Memory is bounded by a few samples; `work` keeps a line for each."""
    journal = work / JOURNAL
    known = _known(journal)
    found: list[Facts] = []
    with _appending(journal) as lines, ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        for start in range(0, len(records), AT_ONCE):
            batch = records[start : start + AT_ONCE]
            stamps = [stamp(dataset, r) for r in batch]
            fresh = [(r, s) for r, s in zip(batch, stamps, strict=True) if not _holds(known.get(r.id), s)]
            # Samples of one file share what the reader keeps open, so they are read in their order.
            shared = len({r.path for r, _ in fresh}) < len(fresh)
            measured = (
                map(_measured, *_columns(dataset, fresh))
                if shared
                else pool.map(_measured, *_columns(dataset, fresh))
            )
            for facts in measured:
                known[facts.id] = facts
                lines.write(json.dumps(asdict(facts)) + "\n")
            lines.flush()
            found += [known[r.id] for r in batch]
            if progress:
                progress(len(found), len(records), batch[-1].id)
    return found


def _columns(dataset: Dataset, fresh: Sequence[tuple[Record, str]]) -> tuple[list[Any], ...]:
    return [dataset] * len(fresh), [r for r, _ in fresh], [s for _, s in fresh]


def _measured(dataset: Dataset, record: Record, stamp: str) -> Facts:
    try:
        sample = read_sample(dataset, record)
    except HsparityError as error:
        return Facts(record.id, stamp, error.code, error.message)
    return measure(record.id, stamp, sample)


def measure(name: str, stamp: str, sample: Sample) -> Facts:
    """The facts of one sample that was read."""
    rows, width = sample.states[0].shape
    bad = torch.zeros(rows, dtype=torch.bool)
    zero = torch.zeros(rows, dtype=torch.bool)
    norms = []
    for state in sample.states:
        size = _sizes(state)
        # A size of 0 or infinity may be a row that fp32 cannot square: those few are looked at themselves.
        odd = torch.nonzero(~torch.isfinite(size) | (size == 0)).flatten()
        bad[odd] |= ~torch.isfinite(state[odd].float()).all(1)
        zero[odd] |= (state[odd] == 0).all(1)
        known = size[torch.isfinite(size) & (size > 0)].double()
        norms.append(float((known / width**0.5).log10().median()) if len(known) else float("nan"))
    zero &= torch.arange(rows) < learnt(sample)
    last = sample.states[-1]
    ids = None if sample.token_ids is None else sample.token_ids.astype(np.int64)
    return Facts(
        id=name,
        stamp=stamp,
        tokens=rows if ids is None else len(ids),
        rows=rows,
        slots=len(sample.states),
        width=width,
        dtype=str(last.dtype).removeprefix("torch."),
        masked=-1 if sample.loss_mask is None else int(sample.loss_mask.sum()),
        nonfinite=int(bad.sum()),
        zero=int(zero.sum()),
        repeated=int((last[1:] == last[:-1]).all(1).sum()) if rows > 1 else 0,
        ids_digest="" if ids is None else hashlib.sha256(ids.tobytes()).hexdigest()[:32],
        states_digest=_digest(sample),
        norms=tuple(norms),
        warnings=tuple(sample.warnings),
    )


def _sizes(state: torch.Tensor) -> torch.Tensor:
    """|row| of every row, float32 [R]."""
    if state.element_size() == 1:
        state = state.float()  # torch has no norms of float8
    return torch.linalg.vector_norm(
        state, dim=1, dtype=torch.float64 if state.dtype == torch.float64 else torch.float32
    )


def learnt(sample: Sample) -> int:
    """How many rows there are up to the last token that the loss mask keeps: behind it may be padding, which nothing that
    is learnt attends to."""
    rows = len(sample.states[0])
    if sample.loss_mask is None or sample.positions is not None or not sample.loss_mask.any():
        return rows
    return int(np.flatnonzero(sample.loss_mask)[-1]) + 1


def _digest(sample: Sample) -> str:
    digest = hashlib.blake2b(digest_size=16)
    for state in sample.states:
        raw: Any = state.contiguous().view(torch.uint8).numpy()
        digest.update(raw.data)
    return digest.hexdigest()


def _holds(facts: Facts | None, stamp: str) -> bool:
    """Whether what an earlier pass saw still holds. What it could not read is tried again: a lock is gone by then, or the
    user says what the file does not."""
    return facts is not None and facts.stamp == stamp and not facts.code


def _appending(journal: Path) -> TextIO:
    """The journal, its end a whole line. Raises E205."""
    try:
        lines = journal.open("a+b")
        if lines.tell():
            lines.seek(-1, os.SEEK_END)
            if lines.read(1) != b"\n":
                lines.write(b"\n")
        return io.TextIOWrapper(lines, encoding="utf-8")
    except OSError as error:
        raise HsparityError(
            "E205", f"cannot write {journal}", (str(error),), "--work names another folder"
        ) from error


def _known(journal: Path) -> dict[str, Facts]:
    """Lines of an earlier pass; a torn last one is dropped."""
    return {facts.id: facts for facts in _lines(journal)}


def _lines(journal: Path) -> Iterator[Facts]:
    names = {f.name for f in fields(Facts)}
    try:
        text = journal.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return
    for line in text.splitlines():
        try:
            raw: dict[str, Any] = json.loads(line)
            kept: dict[str, Any] = {
                k: tuple(v) if isinstance(v, list) else v for k, v in raw.items() if k in names
            }
            yield Facts(**kept)
        except (ValueError, TypeError, AttributeError):
            continue
