"""One side of a comparison as the rest of hsparity sees it, whatever wrote the folder."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from hsparity.capture.shards import (
    HELP,
    INT32_MAX,
    Span,
    as_torch,
    read_header,
    read_integers,
    read_into,
    runs_of,
)
from hsparity.errors import HsparityError
from hsprobe.schema import CaptureManifest, Prompt, Site

if TYPE_CHECKING:
    import torch


class Source(ABC):
    """A readable folder of hidden states. Safe to read from several threads."""

    def __init__(self, path: Path, spelled: str, manifest: CaptureManifest) -> None:
        self.folder = path
        self.path = spelled  # as the user typed it
        self.manifest = manifest
        self._ids: dict[str, NDArray[np.int32]] = {}
        self._positions: dict[str, NDArray[np.int32]] = {}

    @property
    def prompts(self) -> tuple[Prompt, ...]:
        return self.manifest.prompts

    @property
    def from_file(self) -> bool:
        """Whether its places are what somebody says they are: no probe of ours saw the layers."""
        manifest = self.manifest
        return manifest.settings.get("mechanism") == "file" or not manifest.schema.startswith(
            "hsparity.capture/"
        )

    @cached_property
    def _known(self) -> dict[str, Prompt]:
        return {p.id: p for p in self.prompts}

    def prompt(self, name: str) -> Prompt:
        return self._known[name]

    @abstractmethod
    def sites(self) -> tuple[str, ...]:
        """Site keys that at least one prompt has, in site order."""

    @abstractmethod
    def span(self, prompt: str, name: str) -> Span | None:
        """Where a site, `token_ids` or `positions` of a prompt lies; None when this prompt has no such
        tensor."""

    @abstractmethod
    def norm(self) -> tuple[NDArray[np.float32], float, bool] | None:
        """The final RMSNorm: weight float32 [H], epsilon, and whether it scales by 1 + weight."""

    @abstractmethod
    def verify(self) -> None:
        """Return once every file is known to be whole. Raises E206."""

    def close(self) -> None:  # noqa: B027  (only captures with digests have something to stop)
        """Stop work in the background."""

    def token_ids(self, prompt: str) -> NDArray[np.int32]:
        """The ids that were fed, int32 [T]."""
        if prompt not in self._ids:
            self._ids[prompt] = self._integers(prompt, "token_ids")
        return self._ids[prompt]

    def positions(self, prompt: str) -> NDArray[np.int32]:
        """The position of each row, int32 [R]."""
        if prompt not in self._positions:
            self._positions[prompt] = self._integers(prompt, "positions", self.prompt(prompt).tokens - 1)
        return self._positions[prompt]

    def _integers(self, prompt: str, name: str, last: int = INT32_MAX) -> NDArray[np.int32]:
        span = self.span(prompt, name)
        if span is None:
            raise HsparityError("E206", f"{self.path}: prompt {prompt} has no tensor {name}")
        try:
            found = read_integers(span)
            if len(found) and found.max() > last:
                raise ValueError(f"{found.min()} to {found.max()}")
        except ValueError as error:
            notes = (f"expected  0 to {last}", f"found     {error}")
            raise HsparityError("E206", f"{span.path}: {name} out of range", notes, HELP) from None
        return found

    def block(
        self, prompt: str, site: str, start: int, stop: int, out: torch.Tensor | None = None
    ) -> torch.Tensor:
        """Rows [start, stop) of a site, [n, H] in the dtype on disk. `out`: uint8 buffer to read into."""
        return self.gather(prompt, site, [(start, stop, 0)], out)

    def rows(
        self, prompt: str, site: str, rows: NDArray[np.int64], out: torch.Tensor | None = None
    ) -> torch.Tensor:
        """The given rows of a site in that order, [n, H] in the dtype on disk."""
        return self.gather(prompt, site, runs_of(rows), out)

    def gather(
        self,
        prompt: str,
        site: str,
        runs: Sequence[tuple[int, int, int]],
        out: torch.Tensor | None = None,
        span: Span | None = None,
    ) -> torch.Tensor:
        """Runs of rows (first, stop, place) of a site, [n, H]. Raises KeyError when the prompt lacks the
        site."""
        import torch

        span = span or self.span(prompt, site)
        if span is None:
            raise KeyError(f"{self.path}: prompt {prompt} has no {site}")
        count = sum(stop - first for first, stop, _ in runs)
        size = count * span.row_bytes
        buffer = torch.empty(size, dtype=torch.uint8) if out is None else out[:size]
        if any(stop > span.rows for _, stop, _ in runs):
            raise HsparityError("E206", f"{self.path}: {site} of prompt {prompt} has {span.rows} rows only")
        read_into(span, runs, buffer.numpy().data)
        return as_torch(buffer, span.dtype, span.width)


def site_order(key: str) -> tuple[int, str, int]:
    """Sort key: boundaries first, then final_norm, then slots, then the rest."""
    site = Site.parse(key)
    rank = {"boundary": 0, "final_norm": 1, "slot": 2}.get(site.kind, 3)
    return rank, site.kind, site.index


def read_norm(path: Path) -> NDArray[np.float32]:
    """Tensor `norm` of a safetensors file as float32 [H]."""
    import torch

    tensor = read_header(path).get("norm")
    if tensor is None or len(tensor.shape) != 1:
        raise HsparityError("E206", f"{path} has no tensor `norm` [H]")
    data = np.fromfile(path, np.uint8)[tensor.offset :]
    width = tensor.shape[0]
    span = Span(path, tensor.offset, 1, width, tensor.dtype, 0)
    weight = as_torch(torch.from_numpy(data[: span.row_bytes].copy()), tensor.dtype, width)
    result: NDArray[np.float32] = weight[0].float().numpy()
    return result
