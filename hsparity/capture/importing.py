"""From samples in any format to a capture of ours: one sample at a time, resumable, nothing lost silently."""

from __future__ import annotations

import atexit
import shutil
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from hsparity.capture import checkpoint, slotnames
from hsparity.capture.readers.base import Dataset, Record, Said, Sample, Slot, file_bytes, read_sample
from hsparity.capture.slotnames import Name
from hsparity.capture.stamps import stamps_sha256
from hsparity.engines import machine
from hsparity.errors import HsparityError
from hsprobe.assemble import spans
from hsprobe.protocol import ProbeError
from hsprobe.schema import (
    SCHEMA,
    CaptureManifest,
    CaptureSpec,
    Prompt,
    Site,
    canonical_sha256,
    token_ids_sha256,
)
from hsprobe.writer import CaptureWriter

if TYPE_CHECKING:
    import torch

Progress = Callable[[float, float, str], None]
MECHANISM = "file"  # in settings: the states come from a file, not from a probe
SHOWN = 5


@dataclass(frozen=True, slots=True)
class Wish:
    """What of a dataset becomes a capture. `token_ids`: for formats that hold none, in the order of the records."""

    names: tuple[Name, ...] = ()
    model: str = ""
    limit: int | None = None
    max_tokens: int | None = None
    token_ids: tuple[tuple[int, ...], ...] | None = None
    unnamed: bool = False  # every slot is `slot.i`, whatever is said of it


@dataclass(frozen=True, slots=True)
class Skipped:
    """A sample that could not be read, and why."""

    id: str
    code: str
    message: str

    @property
    def text(self) -> str:
        return f"{self.id}: {self.message} [{self.code}]"


@dataclass(frozen=True, slots=True)
class Imported:
    """A finished import."""

    folder: Path
    manifest: CaptureManifest
    skipped: tuple[Skipped, ...]


@dataclass(frozen=True, slots=True)
class _Layout:
    """What every sample of one capture must be: that of the first one that was read."""

    slots: tuple[Slot, ...]
    keys: tuple[str, ...]
    width: int
    dtype: torch.dtype

    def fault(self, sample: Sample) -> tuple[str, str] | None:
        """(expected, found) where a sample is of another make."""
        states = sample.states
        mine = (len(self.keys), self.width, str(self.dtype))
        other = (len(states), states[0].shape[1], str(states[0].dtype))
        if mine == other:
            return None
        return tuple(f"{n} slots of {w}, {d.removeprefix('torch.')}" for n, w, d in (mine, other))  # type: ignore[return-value]


def import_dataset(
    dataset: Dataset,
    out: Path,
    wish: Wish | None = None,
    records: Sequence[Record] | None = None,
    progress: Progress | None = None,
) -> Imported:
    """Write samples as a capture into `out`, or finish one that was begun with the same wish.

    A sample that cannot be read, or is of another make than the first, is left out and counted in the manifest's
    warnings. Raises E102 (--slots), E204, E205, E106, E220 (no token ids) and E221 (no sample can be read).
    """
    wish = wish or Wish()
    found = list(dataset.records() if records is None else records)[: wish.limit]
    dataset.claimed = slotnames.aux_count(wish.names)
    spec = CaptureSpec(
        engine="import",
        model=wish.model or dataset.said().model,
        prompts=(),
        sites=(),
        mechanism=MECHANISM,
        engine_args={
            "from": dataset.spelled,
            "format": dataset.format,
            "slots": [name.text for name in wish.names],
            "max_tokens": wish.max_tokens,
            # What was made anew under the same names is another dataset.
            "records": stamps_sha256(dataset, found),
            "token_ids": canonical_sha256(wish.token_ids) if wish.token_ids else "",
        },
    )
    there = out.exists() and any(out.iterdir())
    try:
        writer = CaptureWriter(out, spec)
        try:
            return _import(dataset, writer, spec, wish, found, progress)
        except HsparityError:
            if not there and not writer.done:
                shutil.rmtree(out, ignore_errors=True)  # nothing was kept: the corrected command starts anew
            raise
    except ProbeError as error:
        raise HsparityError(error.code, error.message, help=error.help) from error


def _import(
    dataset: Dataset,
    writer: CaptureWriter,
    spec: CaptureSpec,
    wish: Wish,
    records: Sequence[Record],
    progress: Progress | None,
) -> Imported:
    said = dataset.said()
    num_layers = said.num_layers or 0
    if wish.model and (shape := checkpoint.read_shape(wish.model)):
        num_layers = shape.num_layers
    layout: _Layout | None = None
    skipped: list[Skipped] = []
    if wish.token_ids and len(wish.token_ids) > len(records):
        notes = (f"lists    {len(wish.token_ids)}", f"samples  {len(records)}")
        raise HsparityError(
            "E105",
            "--token-ids holds more lists than there are samples",
            notes,
            "one list for each sample, in order",
        )
    for number, record in enumerate(records):
        if progress:
            progress(number, len(records), record.id)
        # One that is in the journal is read again only to learn the layout.
        if layout is not None and record.id in writer.done:
            continue
        try:
            sample = _completed(read_sample(dataset, record), record, wish, number)
            if layout is None:
                layout = _layout(dataset, sample, wish, num_layers)
            elif fault := layout.fault(sample):
                notes = (f"the first  {fault[0]}", f"this one   {fault[1]}")
                raise HsparityError(
                    "E216", f"of another make than the first: {fault[1]}, not {fault[0]}", notes
                )
        except HsparityError as error:
            if error.code in ("E102", "E103", "E105", "E220"):
                raise
            skipped.append(Skipped(record.id, error.code, error.message))
            continue
        if record.id not in writer.done:
            _commit(writer, number, record, sample, layout, wish.max_tokens)
    if layout is None:
        raise nothing_readable(dataset, skipped)
    manifest = _manifest(dataset, said, spec, writer, layout, num_layers, skipped)
    writer.finish(manifest)
    return Imported(writer.out, manifest, tuple(skipped))


def nothing_readable(dataset: Dataset, skipped: Sequence[Skipped]) -> HsparityError:
    """E221, with the first reasons."""
    notes = [each.text for each in skipped[:SHOWN]] or ["it holds no sample"]
    return HsparityError(
        "E221", f"no sample of {dataset.spelled} can be read", notes, f"hsparity inspect {dataset.spelled}"
    )


def temporary(
    dataset: Dataset, wish: Wish, chosen: Sequence[Record] | None = None, progress: Progress | None = None
) -> Imported:
    """An import that is removed when the program ends. Raises E205 where it does not fit beside the original."""
    records = list(dataset.records() if chosen is None else chosen)[: wish.limit]
    out = Path(tempfile.mkdtemp(prefix="hsparity-"))
    atexit.register(shutil.rmtree, out, ignore_errors=True)
    need = file_bytes(records)
    free = machine.free_bytes(out)
    if need > free:
        notes = (f"needed  {machine.gigabytes(need)}", f"free    {machine.gigabytes(free)} at {out.parent}")
        help_text = f"take some of it: --limit 64, or hsparity audit {dataset.spelled}, which samples; TMPDIR names a larger disk"
        raise HsparityError("E205", f"{dataset.spelled} is too large to be read whole", notes, help_text)
    return import_dataset(dataset, out, wish, records, progress)


def _completed(sample: Sample, record: Record, wish: Wish, number: int) -> Sample:
    """The sample with token ids. Raises E105 and E103 for ids that do not fit it, E216 for a length that contradicts its
    own, E220 where there are none."""
    rows = len(sample.states[0])
    most = rows if sample.positions is None else int(sample.positions.max(initial=-1)) + 1
    if sample.token_ids is None:
        if wish.token_ids is None or number >= len(wish.token_ids):
            raise HsparityError(
                "E220",
                f"{record.path} holds no token ids, and states are compared token by token",
                (f"sample {record.id}: {rows} rows",),
                "give them, one list for each sample: hsparity import … --token-ids ids.jsonl",
            )
        given = np.array(wish.token_ids[number], np.int64)
        # The last token that was made is never fed, and may or may not be in the list.
        if not most <= len(given) <= most + 1 or (sample.positions is None and len(given) != rows):
            notes = (
                f"sample {record.id}  {most} tokens, by its rows",
                f"list {number + 1}  {len(given)} ids",
            )
            raise HsparityError(
                "E105", "--token-ids does not fit the samples", notes, "one list for each sample, in order"
            )
        kept = tuple(text for text in sample.warnings if "token ids" not in text and "prompt ids" not in text)
        sample = replace(sample, token_ids=given, warnings=kept)
    elif wish.token_ids is not None and not _agree(sample, wish.token_ids, number):
        why = f"sample {record.id}: {len(sample.token_ids)} ids in its file"
        raise HsparityError(
            "E103",
            "--token-ids differs from the ids in the files",
            (why,),
            "leave it out, or give what was fed",
        )
    assert sample.token_ids is not None
    tokens = len(sample.token_ids)
    if most > tokens or (sample.positions is None and rows != tokens):
        notes = (f"token ids  {tokens}", f"rows       {rows}, up to position {most - 1}")
        raise HsparityError("E216", f"{rows} rows of states for {tokens} token ids", notes)
    if not rows:
        raise HsparityError("E216", "it has no row")
    return sample


def _agree(sample: Sample, given: Sequence[Sequence[int]], number: int) -> bool:
    """Whether the list for a sample that has ids of its own says the same; where some samples lack ids, all have lists."""
    if number >= len(given) or sample.token_ids is None:
        return False
    both = min(len(given[number]), len(sample.token_ids))
    return list(given[number][:both]) == sample.token_ids[:both].tolist()


def _layout(dataset: Dataset, sample: Sample, wish: Wish, num_layers: int) -> _Layout:
    slots = slotnames.given(dataset.slots(sample), wish.names)
    unnamed = tuple(Site("slot", i).key for i in range(len(slots)))
    keys = unnamed if wish.unnamed else slotnames.site_keys(slots, num_layers)
    return _Layout(slots, keys, sample.states[0].shape[1], sample.states[0].dtype)


def _commit(
    writer: CaptureWriter, number: int, record: Record, sample: Sample, layout: _Layout, most: int | None
) -> None:
    import torch

    assert sample.token_ids is not None
    ids = sample.token_ids[:most]
    rows = np.arange(len(sample.states[0])) if sample.positions is None else sample.positions
    kept = np.flatnonzero(rows < len(ids))
    kept = kept[np.argsort(rows[kept], kind="stable")]
    positions = rows[kept]
    gaps = np.setdiff1d(np.arange(len(ids)), positions)
    prompt = Prompt(
        id=record.id,
        tokens=len(ids),
        prefill=min(sample.prefill if sample.prefill is not None else len(ids), len(ids)),
        rows=len(kept),
        missing=spans(gaps.tolist()),
        token_ids_sha256=token_ids_sha256(ids.tolist()),
    )
    order = torch.from_numpy(kept)
    tensors = {
        "token_ids": torch.from_numpy(ids.astype(np.int32)),
        "positions": torch.from_numpy(positions.astype(np.int32)),
        "steps": torch.zeros(len(kept), dtype=torch.int32),
    }
    sites = {key: state[order].contiguous() for key, state in zip(layout.keys, sample.states, strict=True)}
    figures = {"warnings": list(sample.warnings)}
    writer.commit(number, prompt, tensors, sites, figures)


def _manifest(
    dataset: Dataset,
    said: Said,
    spec: CaptureSpec,
    writer: CaptureWriter,
    layout: _Layout,
    num_layers: int,
    skipped: Sequence[Skipped],
) -> CaptureManifest:
    done = list(writer.done.values())
    # From the journal: a resumed import does not read again what is done.
    warned = [f"{c.prompt.id}: {text}" for c in done for text in c.figures.get("warnings", ())]
    # Ids are those of slots whose place is not known otherwise.
    unplaced = [s for s, key in zip(layout.slots, layout.keys, strict=True) if key.startswith("slot.")]
    ids = [slot.native_id for slot in unplaced if slot.native_id is not None]
    warnings = (
        [f"{len(skipped)} samples left out: {'; '.join(s.text for s in skipped[:SHOWN])}"] if skipped else []
    )
    warnings += list(warned[:SHOWN]) + (
        [f"{len(warned) - SHOWN} more such samples"] if len(warned) > SHOWN else []
    )
    warnings += [
        f"{dataset.format} does not say {what}" for what in said.unknown if not ids or "layer id" not in what
    ]
    return CaptureManifest(
        schema=SCHEMA,
        engine=said.producer or dataset.format,
        engine_version=said.version,
        model=spec.model,
        revision="",
        architecture="",
        weights_sha256="",
        num_layers=num_layers,
        hidden_size=layout.width,
        dtype=str(layout.dtype).removeprefix("torch."),
        settings={
            "mechanism": MECHANISM,
            "format": dataset.format,
            **{key: value for key, value in said.settings.items() if key != "native_ids"},
            **({"native_ids": ids} if ids else {}),
        },
        environment={},
        native_labels={k: slotnames.label(s) for k, s in zip(layout.keys, layout.slots, strict=True)},
        prompts=tuple(c.prompt for c in done),
        shards=tuple(s for c in done for s in c.shards),
        spec_sha256=spec.sha256(),
        status="complete",
        warnings=tuple(warnings),
        created=datetime.now(timezone.utc).isoformat(timespec="seconds"),
    )
