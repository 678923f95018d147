"""SGLang's --debug-tensor-dump-output-folder: `TP{t}_PP{p}_Rank{n}_pid{pid}/Pass{k}.pt`, one file for each forward pass.

Each is a dict from module name to output: a tensor, or a list where the module returns several. Leaf modules only, and
of the top-level module `<top>.forward_batch_info.{input_ids,seq_lens,positions}`. A file is written as the top-level
module returns, so its own output and what runs after it (`model`, `lm_head`, `logits_processor`) come in the next
pass's file.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hsparity.capture.readers import listing, parts, pickled
from hsparity.capture.readers.base import Dataset, Reader, Record, Said, Sample, Slot, guarded, wrong
from hsparity.capture.readers.look import Look
from hsparity.capture.readers.passes import Run, requests, stream_like
from hsparity.errors import HsparityError

if TYPE_CHECKING:
    import torch

NAME = "sglang-tensor-dump"
FILES = r"(.*/)?Pass[0-9]+\.pt"
RANK = re.compile(r"TP[0-9]+_PP[0-9]+_Rank([0-9]+)_pid[0-9]+")
BATCH = ".forward_batch_info."


class SglangTensorDump(Dataset):
    """See the module's docstring."""

    format = NAME

    def __init__(self, path: Path, spelled: str) -> None:
        super().__init__(path, spelled)
        self._kept = parts.Kept(pickled.load)

    def said(self) -> Said:
        notes = [
            *listing.passed_over(self.look, FILES),
            "each slot is a leaf module's output under its name: what it holds is for the data to say; a decoder layer's "
            "own output is never stored",
            "a norm that adds the residual has two outputs, [0] the normed state and [1] the residual stream",
            "the output of the top-level module and the logits lie in the next pass's file, and are not read",
        ]
        if self._divided[1]:
            notes.append(
                f"{self._divided[1]} files of other ranks or of a draft are not read: ranks hold parts of a sum"
            )
        if self._divided[2]:
            notes.append(
                f"rows of {self._divided[2]} requests that begin past position 0 (decoding, later chunks, a cached "
                "prefix) are left out: nothing says whose they are"
            )
        return Said(
            producer="sglang",
            unknown=("which slot is which layer's state", "model", "version"),
            notes=tuple(notes),
            settings={"modules": True},
        )

    def records(self) -> Sequence[Record]:
        return self._divided[0]

    def read(self, record: Record) -> Sample:
        content = self._kept.get(record.path)
        top, runs, length = _divide(record, content)
        run = runs[record.part]
        values, dropped = stream_like(record, _values(content, top), length)
        ids = parts.integers(record, content[f"{top}{BATCH}input_ids"], "input_ids")
        warnings = [f"{dropped} values of another dtype are left out"] if dropped else []
        if padding := length - runs[-1].stop:
            warnings.append(f"{padding} rows after the last request are left out as padding")
        return parts.Placed(
            ids[run.first : run.stop],
            tuple(v[run.first : run.stop] for v in values.values()),
            warnings=tuple(warnings),
            places=tuple(Slot(label) for label in values),
        )

    def slots(self, sample: Sample) -> tuple[Slot, ...]:
        return parts.places(sample)

    @cached_property
    def _divided(self) -> tuple[tuple[Record, ...], int, int]:
        """Every request that begins in a pass; files not read; requests left out."""
        found: list[Record] = []
        others = left = 0
        names = self.look.matching(FILES)
        several = len({name.rpartition("/")[0] for name in names}) > 1
        for name in names:
            folder, _, base = name.rpartition("/")
            rank = RANK.search(folder)
            if several and ((rank is not None and rank[1] != "0") or "draft" in folder.split("/")):
                others += 1
                continue
            stem = f"{folder}/{Path(base).stem}" if several else Path(base).stem
            record = Record(stem, len(found), self.look.file(name))
            try:
                with guarded(record.path):
                    runs = _divide(record, self._kept.get(record.path))[1]
            except HsparityError:
                found.append(record)  # reading it says why
                continue
            for i, run in enumerate(runs):
                if run.start:
                    left += 1
                    continue
                ident = f"{stem}/{i}" if len(runs) > 1 else stem
                found.append(Record(ident, len(found), record.path, i))
        return tuple(found), others, left


def _divide(record: Record, content: Any) -> tuple[str, tuple[Run, ...], int]:
    """The top-level module's name, the requests of the pass, and its rows, padding counted. Raises E216."""
    raw = parts.table(record, content, ())
    top = next((key[: -len(BATCH + "input_ids")] for key in raw if _ends(key)), None)
    if top is None:
        raise wrong(record, "nothing says whose the rows are", f"<top>{BATCH}input_ids", parts.shape_of(raw))
    parts.table(record, raw, (f"{top}{BATCH}seq_lens", f"{top}{BATCH}positions"))
    ids = parts.integers(record, raw[f"{top}{BATCH}input_ids"], "input_ids")
    positions = parts.integers(record, raw[f"{top}{BATCH}positions"], "positions", len(ids))
    lengths = parts.integers(record, raw[f"{top}{BATCH}seq_lens"], "seq_lens")
    return top, requests(record, positions, lengths)[0], len(ids)


def _values(content: Mapping[str, Any], top: str) -> Iterator[tuple[str, torch.Tensor]]:
    """What ran inside the top-level module in this pass: the rest of a file is of the pass before."""
    import torch

    for name, value in content.items():
        if not isinstance(name, str) or not name.startswith(f"{top}.") or BATCH in name:
            continue
        several = value if isinstance(value, (list, tuple)) else (value,)
        for i, each in enumerate(several):
            if isinstance(each, torch.Tensor):
                yield (f"{name}[{i}]" if len(several) > 1 else name), each


def _ends(key: Any) -> bool:
    """Whether a module's name is that of the batch's ids; a file may hold keys that are no names."""
    return isinstance(key, str) and key.endswith(BATCH + "input_ids")


def _recognise(look: Look) -> str | None:
    return listing.first(look, FILES, look.pickled, _says)


def _says(content: Any) -> str | None:
    if not isinstance(content, Mapping):
        return None
    if not any(map(_ends, content)):
        return None
    return f"Pass<k>.pt with module outputs and <top>{BATCH}input_ids"


READER = Reader(NAME, "SGLang debug tensor dump", _recognise, SglangTensorDump)
