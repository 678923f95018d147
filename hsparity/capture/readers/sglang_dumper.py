"""SGLang's dumper: `<dir>/<exp>/step=…___rank=…___dump_index=…___name=…[___layer_id=…].pt`, a file for each value.

Each holds {"value": tensor, "meta": {…}}. A step is a forward pass over a batch; the root forward's `input_ids`,
`positions` [R], `seq_lens` [B] and `rids` say whose the rows are. DUMPER_NON_INTRUSIVE_MODE=all dumps what goes into
and out of every module as `non_intrusive__<module>.inputs.<i>` and `non_intrusive__<module>.output[.<i>]`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hsparity.capture.readers import listing, parts, pickled
from hsparity.capture.readers.base import Dataset, Reader, Record, Said, Sample, Slot, guarded, wrong
from hsparity.capture.readers.look import Look
from hsparity.capture.readers.passes import Run, requests, stream_like
from hsparity.errors import HsparityError

if TYPE_CHECKING:
    import torch

NAME = "sglang-dumper"
FILES = r"(.*/)?step=[0-9]+___rank=[0-9]+___dump_index=[0-9]+___(.*___)?name=.+\.pt"
PREFIX = "non_intrusive__"
CORE = ("input_ids", "positions", "seq_lens")
NOT_STATES = ("grad__", "param__", *CORE, "rids", "req_pool_indices")


@dataclass(frozen=True, slots=True)
class _File:
    order: int  # dump_index
    label: str
    path: Path


@dataclass(slots=True)
class _Step:
    """One forward pass: the files of rank 0."""

    core: dict[str, Path] = field(default_factory=dict)
    files: list[_File] = field(default_factory=list)
    padding: int = 0  # rows after those of the last request


@dataclass(slots=True)
class _Request:
    """One request: its runs of rows, pass by pass; `fault` where a pass cannot be divided."""

    id: str
    path: Path
    runs: list[tuple[_Step, Run]] = field(default_factory=list)
    fault: HsparityError | None = None


class SglangDumper(Dataset):
    """See the module's docstring."""

    format = NAME

    def said(self) -> Said:
        notes = [
            *listing.passed_over(self.look, FILES),
            "each slot is a module's input or output under its name: what it holds is for the data to say",
            "in 0.5.23 a decoder layer's output is its branch alone; the stream with it added is the second output of "
            "the next norm",
        ]
        if self._others:
            notes.append(
                f"{self._others} files of other ranks are not read: where a sum is deferred, each rank stores its own part "
                "of it"
            )
        if self._left:
            notes.append(
                f"rows of {self._left} requests that begin past position 0 are left out: without rids nothing says whose "
                "they are"
            )
        return Said(
            producer="sglang",
            unknown=("which slot is which layer's state", "model", "version"),
            notes=tuple(notes),
            settings={**self._settings, "modules": True},
        )

    def records(self) -> Sequence[Record]:
        return tuple(Record(r.id, i, r.path, i) for i, r in enumerate(self._requests))

    def read(self, record: Record) -> Sample:
        import torch

        request = self._requests[record.part]
        if request.fault is not None:
            raise request.fault
        warnings: list[str] = []
        pieces: list[dict[str, torch.Tensor]] = []
        ids: list[np.ndarray] = []
        where: list[np.ndarray] = []
        for step, run in request.runs:
            rows = parts.integers(record, _value(step.core["input_ids"]), "input_ids")
            if not step.files:
                raise wrong(
                    record, "no states were dumped", "DUMPER_NON_INTRUSIVE_MODE=all", "ids and positions"
                )
            values, dropped = stream_like(record, _values(step), len(rows))
            if pieces and set(values) != set(pieces[0]):
                warnings.append(f"rows from position {run.start} on are left out: other values were dumped")
                break
            if step.padding:
                warnings.append(f"{step.padding} rows after the last request are left out as padding")
            if dropped:
                warnings.append(f"{dropped} values of another dtype are left out")
            # Copies: a slice of a mapped file would hold the whole batch.
            pieces.append({label: v[run.first : run.stop].clone() for label, v in values.items()})
            ids.append(rows[run.first : run.stop])
            where.append(np.arange(run.start, run.end))
        states = tuple(torch.cat([p[label] for p in pieces]) for label in pieces[0])
        begin = int(where[0][0])
        # Single rows at the end were decoded; before them lie the prompt's chunks.
        prompt = max((i for i, w in enumerate(where) if len(w) > 1), default=0) + 1
        if begin:
            warnings.append(
                f"positions 0 to {begin - 1} were not computed here (a cached prefix), nor are their ids known"
            )
        return parts.Placed(
            None if begin else np.concatenate(ids),
            states,
            positions=np.concatenate(where) if begin else None,
            prefill=None if begin else sum(map(len, ids[:prompt])),
            warnings=tuple(dict.fromkeys(warnings)),
            places=tuple(Slot(label) for label in pieces[0]),
        )

    def slots(self, sample: Sample) -> tuple[Slot, ...]:
        return parts.places(sample)

    @cached_property
    def _listed(self) -> tuple[dict[tuple[str, int], _Step], int]:
        steps: dict[tuple[str, int], _Step] = {}
        others = 0
        for name in self.look.matching(FILES):
            folder, _, base = name.rpartition("/")
            tags = tags_of(base)
            if tags["rank"] != "0":
                others += 1
                continue
            step = steps.setdefault((folder, int(tags["step"])), _Step())
            value, layer = tags["name"], tags.get("layer_id")
            if value in (*CORE, "rids") and layer is None:
                step.core.setdefault(value, self.look.file(name))
            elif not value.startswith(NOT_STATES):
                step.files.append(
                    _File(int(tags["dump_index"]), label_of(value, layer), self.look.file(name))
                )
        for step in steps.values():
            step.files.sort(key=lambda f: f.order)
        return dict(sorted(steps.items())), others

    @property
    def _others(self) -> int:
        return self._listed[1]

    @cached_property
    def _divided(self) -> tuple[list[_Request], int]:
        """Every request of every pass, those of one rid joined, and how many are left out."""
        found: list[_Request] = []
        open_: dict[tuple[str, str], _Request] = {}
        left = 0
        for (folder, number), step in self._listed[0].items():
            name = f"{folder}/step{number}" if folder else f"step{number}"
            path = next(iter(step.core.values()), step.files[0].path if step.files else self.path)
            try:
                with guarded(path):
                    runs, rids = _divide(Record(name, 0, path), step)
            except HsparityError as error:
                found.append(_Request(name, path, fault=error))
                continue
            for i, run in enumerate(runs):
                key = (folder, rids[i]) if rids else (name, str(i))
                known = open_.get(key)
                if known is not None and known.runs[-1][1].end == run.start:
                    known.runs.append((step, run))
                elif run.start and not rids:
                    left += 1
                else:
                    request = _Request(f"{name}/{rids[i] if rids else i}", path, [(step, run)])
                    open_[key] = request
                    found.append(request)
        return found, left

    @property
    def _requests(self) -> list[_Request]:
        return self._divided[0]

    @property
    def _left(self) -> int:
        return self._divided[1]

    @cached_property
    def _settings(self) -> Mapping[str, object]:
        """What `meta` of one file says of the run."""
        for step in self._listed[0].values():
            for path in step.core.values():
                try:
                    with guarded(path):
                        meta = pickled.load(path)["meta"]
                        said, tokenizer = meta["sglang_parallel_info"], meta.get("tokenizer_path")
                        kept = {k: v for k, v in said.items() if _is_size(k) and type(v) is int}
                        return {**kept, "tokenizer_path": tokenizer if isinstance(tokenizer, str) else ""}
                except HsparityError:
                    continue
        return {}


def _is_size(key: Any) -> bool:
    return isinstance(key, str) and key.endswith("_size")


def tags_of(name: str) -> dict[str, str]:
    """The tags in a dumper file's name; the first of its kind, for a value's name may hold more."""
    tags = [t.partition("=") for t in name.removesuffix(".pt").split("___") if "=" in t]
    return {tag: value for tag, _, value in reversed(tags)}


def label_of(name: str, layer: str | None) -> str:
    """A value's label: its name, with the layer where the name does not say it."""
    label = name.removeprefix(PREFIX)
    said = layer is None or f"layers.{layer}." in f"{label}."
    return label if said else f"{label} (layer_id {layer})"


def _divide(record: Record, step: _Step) -> tuple[tuple[Run, ...], Sequence[str]]:
    """The requests of a pass, and their rids where it has them. Raises E206, E216, E217."""
    if missing := [name for name in CORE if name not in step.core]:
        raise wrong(
            record,
            "nothing says whose the rows are",
            f"dumps of {', '.join(CORE)}",
            f"no {', '.join(missing)}",
        )
    ids = parts.integers(record, _value(step.core["input_ids"]), "input_ids")
    positions = parts.integers(record, _value(step.core["positions"]), "positions", len(ids))
    lengths = parts.integers(record, _value(step.core["seq_lens"]), "seq_lens")
    runs, step.padding = requests(record, positions, lengths)
    rids = _value(step.core["rids"]) if "rids" in step.core else ()
    if not isinstance(rids, (list, tuple)) or not all(isinstance(rid, (str, int)) for rid in rids):
        raise wrong(record, "rids", "a list of names", parts.shape_of(rids))
    if rids and len(rids) != len(runs):
        raise wrong(record, "rids", f"{len(runs)} of them", f"{len(rids)}")
    return runs, [str(r) for r in rids]


def _value(path: Path) -> Any:
    content = pickled.load(path)
    if not isinstance(content, Mapping) or "value" not in content:
        raise wrong(
            Record(path.stem, 0, path), "no value", "a dict with value and meta", parts.shape_of(content)
        )
    return content["value"]


def _values(step: _Step) -> Iterator[tuple[str, torch.Tensor]]:
    import torch

    for file in step.files:
        value = _value(file.path)
        if isinstance(value, torch.Tensor):
            yield file.label, value


def _recognise(look: Look) -> str | None:
    return listing.first(look, FILES, look.pickled, _says)


def _says(content: Any) -> str | None:
    if not isinstance(content, Mapping) or not {"value", "meta"} <= set(content):
        return None
    meta = content["meta"]
    if not isinstance(meta, Mapping) or not {"name", "dump_index"} <= set(meta):
        return None
    return "step=…___rank=…___name=… files with value and meta"


READER = Reader(NAME, "SGLang dumper", _recognise, SglangDumper)
