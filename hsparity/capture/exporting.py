"""From samples to a trainer's dataset: one sample at a time, resumable, nothing left out silently.

hsparity-export.json    what was asked for, and whether it is finished; another wish in the same folder is refused
hsparity-export.jsonl   one line for each sample: its number in the dataset, or why it was left out
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hsparity.capture.importing import SHOWN, Skipped
from hsparity.capture.readers.base import Dataset, Record, Sample, file_bytes, read_sample
from hsparity.capture.sourced import SourceDataset
from hsparity.capture.stamps import stamps_sha256
from hsparity.capture.writers.base import Layout, Writer
from hsparity.engines import machine
from hsparity.errors import HsparityError
from hsprobe.protocol import ProbeError
from hsprobe.writer import coded, write_text

Progress = Callable[[float, float, str], None]
SCHEMA = "hsparity.export/1"
CLAIM, JOURNAL = "hsparity-export.json", "hsparity-export.jsonl"
# Where a sample's loss mask came from.
FROM_FILE, FROM_DECODED, EVERYWHERE = "file", "decoded", "everywhere"


@dataclass(frozen=True, slots=True)
class Exported:
    """A finished export. `masks`: how many samples have their loss mask from where."""

    count: int
    skipped: tuple[Skipped, ...]
    tokens: int
    width: int
    dtype: str
    masks: Mapping[str, int]


def export(
    dataset: Dataset,
    out: Path,
    writer: Writer,
    slots: Sequence[int],
    layout: Layout,
    limit: int | None = None,
    progress: Progress | None = None,
) -> Exported:
    """Write samples into `out`, or finish what was begun there with the same wish.

    `slots`: which of a sample's states, in the order they are stored in: the auxiliary ones, then the last state. A
    sample that cannot be read, lacks rows, is not finite or is of another make than the first is left out and recorded.
    Raises E106 (other files there), E204 (another wish), E205 (disk), E206 (a damaged capture), E220 (no token ids), E221
    (no sample can be written) and what the writer raises.
    """
    records = list(dataset.records())[:limit]
    try:
        with coded(out):
            journal = _Journal(out, _claim(dataset, writer, slots, layout, records), dataset.spelled)
            if not journal.finished:
                _refuse_full_disk(dataset, records, slots, out, len(journal.entries))
                _write(dataset, journal, writer, slots, layout, records, progress)
    except ProbeError as error:
        raise HsparityError(error.code, error.message, help=error.help) from error
    return journal.exported()


@dataclass(frozen=True, slots=True)
class _Entry:
    """What became of one record: its number in the dataset, or -1 and why it is not there."""

    record: str
    index: int
    tokens: int = 0
    mask: str = ""
    code: str = ""
    message: str = ""


class _Journal:
    """The two files that make an export resumable."""

    def __init__(self, out: Path, claim: dict[str, Any], source: str) -> None:
        self.out, self.claim = out, claim
        here, there = out.resolve(), Path(source).resolve()
        if here == there or there in here.parents:
            where = "is" if here == there else "lies inside"
            notes = (f"input   {there}", f"output  {here}")
            raise HsparityError("E106", f"the output {where} the input", notes, "name another folder with -o")
        out.mkdir(parents=True, exist_ok=True)
        held = self._held()
        self.finished = bool(held.get("finished"))
        self.make: list[Any] = held.get("make", [])
        self.entries = {entry.record: entry for entry in self._read()} if held else {}
        self.count = sum(entry.index >= 0 for entry in self.entries.values())
        if not held:
            write_text(out / CLAIM, json.dumps(claim, indent=1))

    def _held(self) -> dict[str, Any]:
        """The claim that is there. Raises E106 (other files), E204 (another wish)."""
        path = self.out / CLAIM
        if not path.exists():
            # Stopped in its very first write, an export has left that one's temporary file.
            names = (p.name for p in self.out.iterdir())
            if there := sorted(n for n in names if not n.startswith(f"{CLAIM}.")):
                notes = (f"there: {', '.join(there[:3])}",)
                help_text = "name a folder that is new or empty"
                raise HsparityError("E106", f"{self.out} holds other files and no export", notes, help_text)
            return {}
        try:
            held = json.loads(path.read_text())
            changed = [key for key in self.claim if held.get(key) != self.claim[key]]
        except (ValueError, AttributeError) as error:
            raise HsparityError("E204", f"{path} is not of an export", (str(error)[:160],)) from None
        if changed:
            lines = [f"{key}: {_short(held.get(key))} then, {_short(self.claim[key])} now" for key in changed]
            raise HsparityError(
                "E204",
                f"{self.out} was begun with another request",
                lines,
                "export into another folder, or remove this one",
            )
        return dict(held)

    def _read(self) -> list[_Entry]:
        path = self.out / JOURNAL
        raw = path.read_bytes() if path.exists() else b""
        whole = raw.rfind(b"\n") + 1
        if whole < len(raw):  # a torn last line would swallow the next one
            with path.open("r+b") as file:
                file.truncate(whole)
        try:
            return [_Entry(**json.loads(line)) for line in raw[:whole].splitlines()]
        except (ValueError, TypeError) as error:
            raise HsparityError("E206", f"{path} is damaged", (str(error)[:160],)) from None

    def add(self, entry: _Entry) -> None:
        with (self.out / JOURNAL).open("ab") as file:
            file.write(json.dumps(asdict(entry)).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())
        self.entries[entry.record] = entry
        self.count += entry.index >= 0

    def agreed(self, make: list[Any]) -> bool:
        """Whether a sample is of the make of the first one, [width, dtype], which this records."""
        if not self.make:
            self.make = make
            write_text(self.out / CLAIM, json.dumps({**self.claim, "make": make}, indent=1))
        return self.make == make

    def finish(self) -> None:
        content = {**self.claim, "make": self.make, "finished": True}
        write_text(self.out / CLAIM, json.dumps(content, indent=1))
        self.finished = True

    def forget(self) -> None:
        """Drop the entries of an export that wrote nothing: the next one tries every sample again."""
        (self.out / JOURNAL).unlink(missing_ok=True)

    def exported(self) -> Exported:
        held = [entry for entry in self.entries.values() if entry.index >= 0]
        left = [entry for entry in self.entries.values() if entry.index < 0]
        return Exported(
            len(held),
            tuple(Skipped(entry.record, entry.code, entry.message) for entry in left),
            sum(entry.tokens for entry in held),
            int(self.make[0]),
            str(self.make[1]),
            Counter(entry.mask for entry in held),
        )


def _claim(
    dataset: Dataset, writer: Writer, slots: Sequence[int], layout: Layout, records: Sequence[Record]
) -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        "from": dataset.spelled,
        "format": writer.name,
        "slots": list(slots),
        "boundaries": list(layout.boundaries),
        "model": layout.model,
        "note": layout.note,
        "samples": len(records),
        "samples_sha256": stamps_sha256(dataset, records),
    }


def _write(
    dataset: Dataset,
    journal: _Journal,
    writer: Writer,
    slots: Sequence[int],
    layout: Layout,
    records: Sequence[Record],
    progress: Progress | None,
) -> None:
    sink = writer.begin(journal.out, layout)
    for number, record in enumerate(records):
        if progress:
            progress(number, len(records), record.id)
        # One that was left out is not tried again: the numbers of those behind it stand.
        if record.id in journal.entries:
            continue
        try:
            sample, mask = _masked(_complete(read_sample(dataset, record), slots))
            state = sample.states[0]
            make = [state.shape[1], str(state.dtype).removeprefix("torch.")]
            if not journal.agreed(make):
                raise HsparityError("E216", f"of another make than the first: {make}, not {journal.make}")
        except HsparityError as error:
            if error.code == "E220":
                raise
            journal.add(_Entry(record.id, -1, code=error.code, message=error.message))
            continue
        index = journal.count
        sink.add(index, sample)
        journal.add(_Entry(record.id, index, len(state), mask))
    if not journal.count:
        notes = [f"{e.record}: {e.message} [{e.code}]" for e in list(journal.entries.values())[:SHOWN]]
        journal.forget()
        raise HsparityError(
            "E221",
            f"no sample of {dataset.spelled} can be exported",
            notes or ["it holds no sample"],
            f"hsparity inspect {dataset.spelled}",
        )
    if isinstance(dataset, SourceDataset):
        dataset.source.verify()
    sink.finish()
    journal.finish()


def _complete(sample: Sample, slots: Sequence[int]) -> Sample:
    """The chosen states with a row for every token, in order. Raises E216, E220."""
    import torch

    if sample.token_ids is None:
        help_text = "import it with them first: hsparity import … --token-ids ids.jsonl"
        raise HsparityError("E220", "the files hold no token ids, and a trainer needs them", help=help_text)
    if max(slots) >= len(sample.states):
        raise HsparityError("E216", f"it holds {len(sample.states)} states, and number {max(slots)} is asked")
    states = [sample.states[slot] for slot in slots]
    tokens, rows = len(sample.token_ids), len(states[0])
    if not tokens:
        raise HsparityError("E216", "it has no token")
    order = np.arange(rows) if sample.positions is None else np.argsort(sample.positions, kind="stable")
    held = order if sample.positions is None else sample.positions[order]
    if not np.array_equal(held, np.arange(tokens)):
        raise HsparityError(
            "E216", f"rows are missing: {_rows_text(held, tokens)}, and a trainer needs them all"
        )
    if sample.positions is not None and not np.array_equal(order, np.arange(rows)):
        states = [state[torch.from_numpy(order)] for state in states]
    bad = ~torch.stack([torch.isfinite(state.float()).all(1) for state in states]).all(0)
    if count := int(bad.sum()):
        raise HsparityError(
            "E216", f"{count} of {tokens} rows are not finite, from row {int(bad.nonzero()[0])} on"
        )
    return replace(sample, states=tuple(states), positions=None)


def _rows_text(held: NDArray[np.int64], tokens: int) -> str:
    """ "5 of 8, the first at position 2" """
    gaps = np.setdiff1d(np.arange(tokens), held)
    first = f", the first at position {gaps[0]}" if len(gaps) else ""
    return f"{len(held)} rows of states for {tokens} tokens{first}"


def _masked(sample: Sample) -> tuple[Sample, str]:
    """The sample with a loss mask, and where that came from: the file, else what was decoded, else every token."""
    assert sample.token_ids is not None
    tokens = len(sample.token_ids)
    if sample.loss_mask is not None:
        return sample, FROM_FILE
    decoded = sample.prefill is not None and sample.prefill < tokens
    mask = np.ones(tokens, np.uint8)
    mask[: sample.prefill if decoded else 0] = 0
    return replace(sample, loss_mask=mask), FROM_DECODED if decoded else EVERYWHERE


def _refuse_full_disk(
    dataset: Dataset, records: Sequence[Record], slots: Sequence[int], out: Path, done: int
) -> None:
    """Raises E205 where what is still to be written is more than the disk has room for."""
    left = records[done:]
    if isinstance(dataset, SourceDataset):
        manifest = dataset.source.manifest
        item = {"float32": 4, "float64": 8}.get(manifest.dtype, 2)
        rows = sum(dataset.source.prompt(record.id).rows for record in left)
        need = rows * len(slots) * manifest.hidden_size * item
    else:
        need = file_bytes(left) * len(slots) // (max(slots) + 1)
    free = machine.free_bytes(out)
    if need > free:
        notes = (f"needed  {machine.gigabytes(need)}", f"free    {machine.gigabytes(free)} at {out}")
        raise HsparityError(
            "E205",
            f"the dataset does not fit into {out}",
            notes,
            "take less of it: --limit N; or name another -o",
        )


def _short(value: object) -> str:
    text = str(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
