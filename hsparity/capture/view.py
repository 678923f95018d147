"""A source seen with other site names, fewer prompts and shorter ones; nothing is copied."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from hsparity.capture.shards import Span
from hsparity.capture.source import Source, site_order
from hsprobe.schema import Prompt, token_ids_sha256


class View(Source):
    """`sites`: new key -> key in the source, all under their own when None. `prompts`: ids to keep, all when None. `cut`:
    prompt -> how many of its tokens to keep."""

    def __init__(
        self,
        source: Source,
        sites: Mapping[str, str] | None = None,
        prompts: Collection[str] | None = None,
        cut: Mapping[str, int] | None = None,
    ) -> None:
        manifest = source.manifest
        self._source, self._cut = source, dict(cut or {})
        self._sites = dict(sites) if sites is not None else {key: key for key in source.sites()}
        kept = tuple(self._shortened(p) for p in manifest.prompts if prompts is None or p.id in prompts)
        labels = {n: manifest.native_labels[o] for n, o in self._sites.items() if o in manifest.native_labels}
        super().__init__(source.folder, source.path, replace(manifest, prompts=kept, native_labels=labels))

    def _shortened(self, prompt: Prompt) -> Prompt:
        most = self._cut.get(prompt.id, prompt.tokens)
        if most >= prompt.tokens:
            return prompt
        ids = self._source.token_ids(prompt.id)[:most]
        return replace(
            prompt,
            tokens=most,
            prefill=min(prompt.prefill, most),
            rows=int((self._source.positions(prompt.id) < most).sum()),
            missing=tuple((a, min(b, most)) for a, b in prompt.missing if a < most),
            token_ids_sha256=token_ids_sha256(ids.tolist()),
            generated=(),
        )

    def sites(self) -> tuple[str, ...]:
        return tuple(sorted(self._sites, key=site_order))

    def span(self, prompt: str, name: str) -> Span | None:
        known = self._sites.get(name)
        return None if known is None else self._source.span(prompt, known)

    def token_ids(self, prompt: str) -> NDArray[np.int32]:
        return self._source.token_ids(prompt)[: self.prompt(prompt).tokens]

    def positions(self, prompt: str) -> NDArray[np.int32]:
        # Rows lie in order of position, so those that are kept come first.
        return self._source.positions(prompt)[: self.prompt(prompt).rows]

    def norm(self) -> tuple[NDArray[np.float32], float, bool] | None:
        return self._source.norm()

    def verify(self) -> None:
        self._source.verify()
