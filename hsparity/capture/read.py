"""Open a folder as one side of a comparison: a capture of ours, or one of the formats in `readers/`."""

from __future__ import annotations

import os
from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from hsparity.capture import foreign, importing
from hsparity.capture.importing import Wish
from hsparity.capture.manifests import read_manifest
from hsparity.capture.shards import DTYPE_NAMES, FLOATS, HELP, INTEGERS, ITEM_BYTES, Span, Tensor, read_header
from hsparity.capture.source import Source, read_norm, site_order
from hsparity.capture.verify import Digests
from hsparity.errors import HsparityError
from hsprobe.schema import CaptureManifest, ShardEntry

MANIFEST, JOURNAL, STARTED = "manifest.json", "journal.jsonl", "probe.started"
ROW_TENSORS = ("token_ids", "positions", "steps")
# Kinds of site that are [R, hidden_size] in the capture's dtype.
STREAMS = ("boundary", "hidden", "residual", "attn_out", "mlp_out", "slot", "final_norm")


def open_source(path: str | os.PathLike[str], verify: bool = True, wish: Wish | None = None) -> Source:
    """A capture of ours, or a folder or file in another format that `readers/` knows.

    With `verify`, digests are computed from here on in the background; `Source.verify()` waits for them. Samples of
    another format are copied to a temporary capture, as `wish` says. Raises E201 (schema), E202 (not a capture), E206
    (shard missing, truncated or not as recorded), E207 (not finished), E209 (malformed plain folder), and what reading
    and importing raise.
    """
    spelled, folder = str(path), Path(path)
    try:
        if (folder / MANIFEST).is_file():
            return Capture(folder, spelled, verify)
        if (refused := _not_a_capture(folder, spelled)) is not None:
            raise refused
        found = foreign.open_foreign(folder, spelled)
        if isinstance(found, Source):
            return found
        made = importing.temporary(found, wish or importing.Wish())
        # It was written a moment ago: nothing has had the time to damage it.
        return Capture(made.folder, spelled, verify=False)
    except OSError as error:
        help_text = "check the folder's permissions"
        raise HsparityError("E202", f"cannot read {spelled}", (str(error),), help_text) from None


class Capture(Source):
    """A folder in the format hsparity.capture/1."""

    def __init__(self, folder: Path, spelled: str, verify: bool = True) -> None:
        super().__init__(folder, spelled, _manifest(folder, spelled))
        self._shards: dict[str, list[ShardEntry]] = {}
        for entry in self.manifest.shards:
            self._check_size(entry)
            self._shards.setdefault(entry.prompt, []).append(entry)
        self._header = lru_cache(maxsize=1024)(read_header)
        files = [(folder / entry.path, entry.sha256) for entry in self.manifest.shards]
        if norm := self.manifest.norm:
            files.append((folder / norm.file, norm.sha256))
        self._digests = Digests(files) if verify else None
        keys = {site for entry in self.manifest.shards for site in entry.sites}
        self._sites = tuple(sorted(keys, key=site_order))

    def _check_size(self, entry: ShardEntry) -> None:
        file = self.folder / entry.path
        try:
            size = file.stat().st_size
        except (OSError, ValueError):  # ValueError: a name that no file can have
            raise HsparityError("E206", f"shard is missing: {file}", help=HELP) from None
        if size != entry.bytes:
            notes = (f"manifest  {entry.bytes} bytes", f"file      {size} bytes")
            raise HsparityError("E206", f"shard is truncated or damaged: {file}", notes, HELP)

    def sites(self) -> tuple[str, ...]:
        return self._sites

    def span(self, prompt: str, name: str) -> Span | None:
        for entry in self._shards.get(prompt, ()):
            if name in entry.sites or name in ROW_TENSORS:
                file = self.folder / entry.path
                tensor = self._header(file).get(name)
                if tensor is None:
                    if name in ROW_TENSORS:
                        continue
                    raise HsparityError(
                        "E206", f"{file} has no {name}, which the manifest promises", help=HELP
                    )
                return self._checked(file, name, tensor, prompt)
        return None

    def _checked(self, file: Path, name: str, tensor: Tensor, prompt: str) -> Span:
        known, manifest = self.prompt(prompt), self.manifest
        rows = known.tokens if name == "token_ids" else known.rows
        dtypes, shape, wanted = tuple(ITEM_BYTES), tensor.shape, "a dtype that is known"
        if name in ROW_TENSORS:
            dtypes, shape, wanted = INTEGERS, (rows,), "integers"
        elif name.partition(".")[0] in STREAMS:
            shape, wanted = (rows, manifest.hidden_size), manifest.dtype
            dtypes = tuple(d for d in FLOATS if DTYPE_NAMES[d] == wanted)
        elif not name.startswith("prompt_logprobs"):
            shape = (rows, *tensor.shape[1:])
        if tensor.dtype not in dtypes or tensor.shape != shape:
            notes = (
                f"manifest  {wanted} {list(shape)}",
                f"shard     {DTYPE_NAMES.get(tensor.dtype, tensor.dtype)} {list(tensor.shape)}",
            )
            raise HsparityError("E206", f"{file}: {name} is not what the manifest says", notes, HELP)
        width = shape[1] if len(shape) == 2 else 1
        return Span(file, tensor.offset, shape[0], width, tensor.dtype, width * ITEM_BYTES[tensor.dtype])

    def norm(self) -> tuple[NDArray[np.float32], float, bool] | None:
        info = self.manifest.norm
        if info is None:
            return None
        weight = read_norm(self.folder / info.file)
        width = self.manifest.hidden_size
        if len(weight) != width or not np.isfinite(weight).all() or not weight.any():
            found = f"{len(weight)} weights" + ("" if len(weight) != width else ", not finite or all zero")
            notes = (f"expected  {width} finite weights", f"found     {found}")
            raise HsparityError(
                "E206", f"{self.folder / info.file} is not the model's final norm", notes, HELP
            )
        return weight, info.eps, info.plus_one

    def verify(self) -> None:
        if self._digests is None:
            self._digests = Digests([(self.folder / e.path, e.sha256) for e in self.manifest.shards])
        self._digests.join()

    def close(self) -> None:
        if self._digests:
            self._digests.close()


def _manifest(folder: Path, spelled: str) -> CaptureManifest:
    manifest = read_manifest(folder / MANIFEST, spelled)
    if manifest.status != "complete":
        raise _incomplete(folder, spelled)
    return manifest


def _not_a_capture(folder: Path, spelled: str) -> HsparityError | None:
    """Why a path that holds no manifest is not worth a look for other formats."""
    if not folder.exists():
        near = _near(folder)
        notes = (f"captures beside it: {', '.join(near)}",) if near else ()
        return HsparityError(
            "E202", f"no such folder: {spelled}", notes, "hsparity capture ENGINE -o DIR makes one"
        )
    if (folder / JOURNAL).is_file() or (folder / STARTED).is_file():
        return _incomplete(folder, spelled)
    inside = sorted(p.parent.name for p in folder.glob(f"*/{MANIFEST}"))
    if inside:
        notes = (f"it holds captures: {', '.join(inside[:8])}",)
        return HsparityError(
            "E202", f"not a capture: {spelled} has no {MANIFEST}", notes, "name the capture itself"
        )
    return None


def _near(folder: Path) -> list[str]:
    import difflib

    parent = folder.parent
    names = [p.name for p in parent.iterdir() if (p / MANIFEST).is_file()] if parent.is_dir() else []
    return difflib.get_close_matches(folder.name, names, 3, 0.4) or sorted(names)[:5]


def _incomplete(folder: Path, spelled: str) -> HsparityError:
    journal = folder / JOURNAL
    done = journal.read_bytes().count(b"\n") if journal.is_file() else 0
    return HsparityError(
        "E207",
        f"capture is not finished: {spelled}",
        (f"{done} prompt{'s' * (done != 1)} in its journal, no complete {MANIFEST}",),
        f"type the capture command again with -o {spelled}: it goes on where it stopped\n"
        f"and keeps the finished prompts; {folder / 'engine.log'} says why it stopped",
    )
