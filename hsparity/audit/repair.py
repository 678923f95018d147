"""Whether a dataset can be put right without the engine that made it, and doing so.

Exact are: leaving a sample out, taking the slots in another order or taking fewer of them, and applying the final norm.
A norm cannot be undone: it divides every token by its own size, which is not in the file. A layer that is not in the
file cannot be made.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from hsparity import registry
from hsparity.audit.claims import Claims, worded
from hsparity.audit.result import Group, Integrity, Reading
from hsparity.audit.scan import Facts
from hsparity.capture.readers.base import LAST, Dataset, Record, Sample, read_sample
from hsparity.capture.writers.base import Layout, Writer
from hsparity.errors import HsparityError
from hsparity.metrics.kernel import Norm, apply_norm
from hsparity.model import Finding

Progress = Callable[[float, float, str], None]
FALLBACK = "speculators-v2"
# Findings that another choice of slots, or the norm, undoes.
UNDONE = ("HS101", "HS102", "HS105", "HS106", "HS202")
NORMS = ("HS201", "HS203")


@dataclass(frozen=True, slots=True)
class Source:
    """Where one slot of the repaired dataset comes from."""

    slot: int
    normed: bool = False  # the final norm is applied to it


@dataclass(frozen=True, slots=True)
class Way:
    """How the samples of one group are put right; `why_not` where they cannot be."""

    sources: tuple[Source, ...] = ()
    steps: tuple[str, ...] = ()
    why_not: str = ""

    @property
    def changes(self) -> bool:
        return bool(self.steps)


def way_for(group: Group, claimed: Claims, num_layers: int, norm: Norm | None) -> Way:
    """How to give every place that the server asks for the state it ought to hold."""
    if not claimed.places:
        return Way(why_not=claimed.why_not or "nothing says which states the slots ought to be")
    if claimed.why_not and not claimed.refuted:
        return Way(why_not=claimed.why_not)
    if group.comparison is not None:
        stuck = [
            f
            for f in group.comparison.findings
            if f.severity == "cause" and not f.ruled_out and f.code not in UNDONE
        ]
        if stuck:
            return Way(why_not=_stuck(stuck[0]))
    readings = group.readings
    held = {r.boundary: k for k, r in reversed(list(enumerate(readings))) if r.boundary is not None}
    # The slot that stands at each place now; the last states come behind the others wherever the file has them.
    order = sorted(range(len(readings)), key=lambda k: (readings[k].role == LAST, k))
    # A last state of which the format says nothing stays as it is.
    kept = [k for k in order if readings[k].role == LAST and claimed.free_last][-1:]
    order = [k for k in order if k not in kept]
    standing = order if len(order) == len(claimed.places) else []
    sources, steps = [], []
    for j, wanted in enumerate(claimed.places):
        k = standing[j] if standing else held.get(wanted)
        found, step = _source(k, wanted, readings, held, num_layers, norm)
        if found is None:
            return Way(why_not=step)
        sources.append(found)
        steps += [step] if step else []
    used = {s.slot for s in sources}
    left = [readings[k].slot for k in order if k not in used] if not standing else []
    steps += [f"{', '.join(left)} left out"] if left else []
    return Way((*sources, *(Source(k) for k in kept)), tuple(steps))


def _stuck(finding: Finding) -> str:
    why = " (a norm divides every token by its own size, which is not in the file)"
    return f"{finding.code} {finding.name} cannot be undone in the file{why if finding.code in NORMS else ''}"


def _source(
    k: int | None,
    wanted: int,
    readings: Sequence[Reading],
    held: Mapping[int, int],
    num_layers: int,
    norm: Norm | None,
) -> tuple[Source | None, str]:
    """Where a place's state comes from, and what that changes; None and why not. `k`: the slot that stands there."""
    if k is not None and (
        readings[k].boundary == wanted or (readings[k].right is not False and wanted not in held)
    ):
        return Source(k), ""
    what = readings[k].slot if k is not None else worded(wanted, num_layers)
    if wanted in held:
        from_ = readings[held[wanted]].slot
        return Source(held[wanted]), f"{what}: taken from {from_}, which holds {worded(wanted, num_layers)}"
    if wanted == num_layers + 1 and num_layers in held and norm is not None:
        from_ = readings[held[num_layers]].slot
        of = "" if from_ == what else f" to {from_}"
        return Source(held[num_layers], True), f"{what}: the final norm applied{of}"
    if wanted == num_layers and num_layers + 1 in held:
        why = "is normed, and a norm cannot be undone: it divides every token by its own size, which is not in the file"
        return None, f"{readings[held[num_layers + 1]].slot} {why}"
    return None, f"{worded(wanted, num_layers)} is not in the file"


def unfit(integrity: Integrity, facts: Sequence[Facts]) -> dict[str, str]:
    """Samples that a repaired dataset leaves out, and why: unreadable, not finite, of another make, copies."""
    kinds = (integrity.slots, integrity.hidden_size, integrity.dtype)
    seen: set[tuple[str, str]] = set()
    out: dict[str, str] = {}
    for f in facts:
        if f.code:
            out[f.id] = f"cannot be read [{f.code}]"
        elif (f.slots, f.width, f.dtype) != kinds:
            out[f.id] = "of another make"
        elif f.nonfinite:
            out[f.id] = "NaN or Inf"
        elif f.zero:
            out[f.id] = "rows that are all zero"
        elif (f.ids_digest, f.states_digest) in seen:
            out[f.id] = "a copy of another sample"
        else:
            seen.add((f.ids_digest, f.states_digest))
    return out


def refuse_filled(out: Path, dataset: Path) -> None:
    """Raises E106 for a folder that holds something, or lies inside the dataset: its files would be read with it."""
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise HsparityError("E106", f"{out} is not empty", help="--repair takes a new folder")
    if dataset.resolve() in out.resolve().parents:
        raise HsparityError(
            "E106", f"{out} lies inside the dataset", help="--repair takes a folder beside it"
        )


def writer_for(dataset: Dataset) -> Writer:
    """The writer of the dataset's own format, else of speculators v2."""
    writers = registry.writers()
    return writers.get(dataset.format) or writers[FALLBACK]


def write(
    dataset: Dataset,
    out: Path,
    records: Sequence[Record],
    way_of: Callable[[Record], Way | None],
    layout: Layout,
    norm: Norm | None,
    progress: Progress | None = None,
) -> dict[str, int]:
    """Write the repaired samples, numbered anew without gaps, as the trainers count them; a sample's id -> its number in
    there. `way_of` answers None for a sample to leave out.

    Raises E205 when it cannot be written.
    """
    written: dict[str, int] = {}
    try:
        out.mkdir(parents=True, exist_ok=True)
        sink = writer_for(dataset).begin(out, layout)
        for number, record in enumerate(records):
            way = way_of(record)
            sample = None if way is None else _sample(dataset, record)
            if way is not None and sample is not None:
                sink.add(len(written), mended(sample, way, norm))
                written[record.id] = len(written)
            if progress:
                progress(number + 1, len(records), record.id)
        sink.finish()
    except OSError as error:
        with contextlib.suppress(OSError):
            shutil.rmtree(out)
        raise HsparityError(
            "E205", f"cannot write {out}", (str(error),), "name a folder on a disk with room"
        ) from error
    return written


def mended(sample: Sample, way: Way, norm: Norm | None) -> Sample:
    """The sample with its slots as `way` says; a normed one in the file's own dtype."""

    def state(source: Source) -> torch.Tensor:
        held = sample.states[source.slot]
        if not source.normed or norm is None:
            return held
        rows = held.to(torch.float32, copy=True)
        apply_norm(rows, norm)
        return rows.to(held.dtype)

    return replace(sample, states=tuple(state(s) for s in way.sources))


def _sample(dataset: Dataset, record: Record) -> Sample | None:
    try:
        return read_sample(dataset, record)
    except HsparityError:
        return None
