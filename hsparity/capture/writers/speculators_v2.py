"""speculators v2: `hidden_states/hs_<i>.safetensors` beside an Arrow dataset, as speculators 0.5 and later lay them out.

`hidden_states` [T, n, H], the last slot before the final norm; `token_ids` int64 [T]. Row i of the dataset holds
`input_ids`, `loss_mask` (int64 lists) and `seq_len` (int64), in files as `datasets.save_to_disk` names and fills them.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hsparity.capture.readers.base import Sample
from hsparity.capture.writers import parts
from hsparity.capture.writers.base import Layout, Sink, Writer
from hsparity.capture.writers.whole import replacing, save_torch, sweep
from hsparity.errors import HsparityError
from hsprobe.writer import write_safetensors, write_text

DATA = "data-00000-of-00001.arrow"
STATE = "state.json"
SPOOL = "hsparity-rows.arrow"  # the rows of an export that is not finished, one to a batch
BATCH = 1000  # rows to a batch of the finished file, as `datasets` writes them
LIST: dict[str, Any] = {"feature": {"dtype": "int64", "_type": "Value"}, "_type": "List"}
FEATURES: dict[str, Any] = {
    "input_ids": LIST,
    "loss_mask": LIST,
    "seq_len": {"dtype": "int64", "_type": "Value"},
}


class SpeculatorsV2Sink(Sink):
    """See the module's docstring. A row goes to the spool as its sample comes; finish() makes the dataset of it.

    The row of a number that is left out is one token that nothing is learnt from, without a file of states. Raises E206
    where the spool has lost rows, and E108 without pyarrow.
    """

    def __init__(self, out: Path, layout: Layout) -> None:
        self.arrow = _pyarrow()
        self.out, self.states = out, out / "hidden_states"
        self.states.mkdir(exist_ok=True)
        sweep(out)
        lists = self.arrow.list_(self.arrow.int64())
        columns = [("input_ids", lists), ("loss_mask", lists), ("seq_len", self.arrow.int64())]
        said = json.dumps({"info": {"features": FEATURES}})
        self.schema = self.arrow.schema(columns, metadata={"huggingface": said})
        self.rows = 0
        # A finished dataset without its spool is left as it is: only what follows it was stopped.
        self.finished = (out / STATE).exists() and not (out / SPOOL).exists()
        if not self.finished:
            self._begin_spool()

    def add(self, index: int, sample: Sample) -> None:
        import torch

        ids, mask = parts.tokens(sample)
        while self.rows < index:  # numbers that are left out
            if self._file_of(self.rows).exists():
                notes = (f"{self._file_of(self.rows).name} is there, its row is not",)
                help_text = "remove the folder and write it again"
                raise HsparityError("E206", f"{self.out / SPOOL} has lost rows", notes, help_text)
            self._append([0], [0])
        tensors = {"hidden_states": torch.stack(sample.states, dim=1), "token_ids": ids}
        write_safetensors(self._file_of(index), tensors, {"format": "pt"})
        if index == self.rows:  # else it was stopped between the row and what its caller notes of it
            self._append(ids.numpy(), mask.numpy())

    def finish(self) -> None:
        if self.finished:
            return
        self._writer.close()
        self._file.close()
        digest = hashlib.sha256()
        with replacing(self.out / DATA) as file, self.arrow.ipc.new_stream(file, self.schema) as stream:
            for batch in self._batches():
                digest.update(batch.column("input_ids").values.to_numpy())
                stream.write_batch(batch)
        save_torch(self.out / "token_freq.pt", parts.learnt(self._tokens()))
        info = {"citation": "", "description": "", "features": FEATURES, "homepage": "", "license": ""}
        write_text(self.out / "dataset_info.json", json.dumps(info, indent=2))
        state = {
            "_data_files": [{"filename": DATA}],
            "_fingerprint": digest.hexdigest()[:16],
            "_format_columns": list(FEATURES),
            "_format_kwargs": {},
            "_format_type": "torch",
            "_output_all_columns": False,
            "_split": None,
        }
        # Last: with it the folder is a dataset.
        write_text(self.out / STATE, json.dumps(state, indent=2))
        (self.out / SPOOL).unlink()

    def _begin_spool(self) -> None:
        """Open the spool, with the whole rows that a stopped export left there."""
        path = self.out / SPOOL
        before = path.with_name(f"before.{SPOOL}")
        if path.exists() and not before.exists():  # where both exist, this very copying was stopped
            os.replace(path, before)
        self._file = self.arrow.OSFile(str(path), "wb")
        self._writer = self.arrow.ipc.new_stream(self._file, self.schema)
        for batch in _whole(self.arrow, before):
            self._writer.write_batch(batch)
            self.rows += batch.num_rows
        os.fsync(self._file.fileno())
        before.unlink(missing_ok=True)

    def _file_of(self, index: int) -> Path:
        return self.states / f"hs_{index}.safetensors"

    def _append(self, ids: Any, mask: Any) -> None:
        columns = [[ids], [mask], [len(ids)]]
        arrays = [self.arrow.array(c, f.type) for c, f in zip(columns, self.schema, strict=True)]
        self._writer.write_batch(self.arrow.record_batch(arrays, schema=self.schema))
        os.fsync(self._file.fileno())
        self.rows += 1

    def _batches(self) -> Iterator[Any]:
        """The spool's rows in batches as large as `datasets` makes them."""
        waiting: list[Any] = []
        for batch in _whole(self.arrow, self.out / SPOOL):
            waiting.append(batch)
            if len(waiting) == BATCH:
                yield self._joined(waiting)
                waiting = []
        if waiting:
            yield self._joined(waiting)

    def _joined(self, batches: list[Any]) -> Any:
        (batch,) = self.arrow.Table.from_batches(batches).combine_chunks().to_batches()
        return batch

    def _tokens(self) -> Iterator[tuple[Any, Any]]:
        for batch in _whole(self.arrow, self.out / SPOOL):
            yield batch.column("input_ids").values.to_numpy(), batch.column("loss_mask").values.to_numpy()


def _whole(arrow: Any, path: Path) -> Iterator[Any]:
    """The batches of a stream up to where it was cut off; none where there is no such file."""
    if not path.exists():
        return
    with path.open("rb") as file:
        try:
            stream = arrow.ipc.open_stream(file)
            while True:
                yield stream.read_next_batch()
        except (StopIteration, arrow.ArrowInvalid, OSError, EOFError):
            return


def _pyarrow() -> Any:
    """Raises E108 without pyarrow."""
    try:
        return importlib.import_module("pyarrow")
    except ImportError:
        notes = (f"looked in hsparity's own interpreter: {sys.executable}",)
        help_text = "pip install 'hsparity[arrow]'\nor write --to speculators-v1, which needs no pyarrow"
        raise HsparityError("E108", "pyarrow is not installed", notes, help_text) from None


WRITER = Writer("speculators-v2", "speculators v2 (0.5 and later)", False, SpeculatorsV2Sink)
