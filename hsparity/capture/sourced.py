"""A capture or a plain folder seen as a dataset of samples: what `import` and `export` take."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hsparity.capture.readers.base import LAST, Dataset, Record, Said, Sample, Slot
from hsparity.capture.source import Source
from hsprobe.schema import Site

WIDE = ("boundary", "final_norm", "slot", "hidden", "residual", "attn_out", "mlp_out")


class SourceDataset(Dataset):
    """Its sites of hidden width are the slots: the chosen ones in their order, else all."""

    format = "capture"

    def __init__(self, source: Source, sites: Sequence[str] = ()) -> None:
        super().__init__(source.folder, source.path)
        self.source = source
        self.keys = tuple(sites) or tuple(k for k in source.sites() if Site.parse(k).kind in WIDE)

    def said(self) -> Said:
        manifest = self.source.manifest
        ids = manifest.settings.get("native_ids")
        return Said(
            producer=manifest.engine,
            version=manifest.engine_version,
            model=manifest.model,
            num_layers=manifest.num_layers or None,
            settings={"native_ids": ids} if ids else {},
        )

    def records(self) -> Sequence[Record]:
        return tuple(Record(p.id, i, self.path) for i, p in enumerate(self.source.prompts))

    def read(self, record: Record) -> Sample:
        prompt = self.source.prompt(record.id)
        return Sample(
            self.source.token_ids(prompt.id).astype(np.int64),
            tuple(self.source.block(prompt.id, key, 0, prompt.rows) for key in self.keys),
            positions=self.source.positions(prompt.id).astype(np.int64),
            prefill=prompt.prefill,
        )

    def slots(self, sample: Sample) -> tuple[Slot, ...]:
        manifest, labels = self.source.manifest, self.source.manifest.native_labels
        last = Site("boundary", manifest.num_layers).key

        def slot(key: str) -> Slot:
            normed = {last: False, "final_norm": True}.get(key)
            role = "aux" if normed is None else LAST
            return Slot(labels.get(key, key), role, None, normed, "" if key.startswith("slot.") else key)

        return tuple(slot(key) for key in self.keys)
