"""A source seen with other site names and fewer prompts; nothing is copied."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from hsparity.capture.shards import Span
from hsparity.capture.source import Source, site_order


class View(Source):
    """`sites`: new key -> key in the source. `prompts`: ids to keep, all when None."""

    def __init__(
        self, source: Source, sites: Mapping[str, str], prompts: Collection[str] | None = None
    ) -> None:
        manifest = source.manifest
        kept = tuple(p for p in manifest.prompts if prompts is None or p.id in prompts)
        labels = {
            new: manifest.native_labels[old] for new, old in sites.items() if old in manifest.native_labels
        }
        super().__init__(source.folder, source.path, replace(manifest, prompts=kept, native_labels=labels))
        self._source, self._sites = source, dict(sites)

    def sites(self) -> tuple[str, ...]:
        return tuple(sorted(self._sites, key=site_order))

    def span(self, prompt: str, name: str) -> Span | None:
        known = self._sites.get(name)
        if known is None and name not in ("token_ids", "positions"):
            return None
        return self._source.span(prompt, known or name)

    def positions(self, prompt: str) -> NDArray[np.int32]:
        return self._source.positions(prompt)

    def norm(self) -> tuple[NDArray[np.float32], float, bool] | None:
        return self._source.norm()

    def verify(self) -> None:
        self._source.verify()
