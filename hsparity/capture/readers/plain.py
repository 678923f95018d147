"""The plain form, hsparity.plain/1: `plain.json` and one safetensors file per prompt. docs/formats.md
describes it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hsparity.capture.manifests import lies_inside, native_ids_fault
from hsparity.capture.readers.base import Reader, guarded, is_regular
from hsparity.capture.readers.look import Look
from hsparity.capture.shards import (
    DTYPE_NAMES,
    FLOATS,
    INT32_MAX,
    INTEGERS,
    Span,
    Tensor,
    read_header,
    read_integers,
)
from hsparity.capture.source import Source, read_norm, site_order
from hsparity.errors import HsparityError
from hsprobe.assemble import spans
from hsprobe.schema import CaptureManifest, Prompt, Site, token_ids_sha256

FORMAT = "hsparity.plain/1"
MARKER = "plain.json"
STATES = "hidden_states"
LAYERS_MAX = 100_000  # no model has as many


class PlainFolder(Source):
    """A folder in the plain form. It carries no digests: `verify()` has nothing to add to the checks made on
    opening."""

    def __init__(self, folder: Path, spelled: str) -> None:
        self._where = folder / MARKER
        raw = self._read()
        self._model = self._take(raw, "model", Mapping)
        self._sites, labels = self._slots(self._take(raw, "slots", list))
        names = self._prompt_files(folder)
        self._tensors: dict[str, dict[str, Tensor]] = {}
        dtypes = set()
        prompts = []
        for file in names:
            tensors = read_header(file)
            self._check(file, tensors)
            self._tensors[file.stem] = tensors
            dtypes.add(tensors[STATES].dtype)
            prompts.append(self._prompt(file))
        if len(dtypes) > 1:
            raise self._wrong(STATES, "one dtype in every prompt", ", ".join(sorted(dtypes)))
        settings = dict(self._take(raw, "settings", Mapping, {}))
        if fault := native_ids_fault(settings):
            raise self._wrong(fault[0], fault[1], json.dumps(fault[2])[:60])
        manifest = CaptureManifest(
            schema=FORMAT,
            engine=self._take(raw, "engine", str, "plain"),
            engine_version=self._take(raw, "engine_version", str, ""),
            model=self._take(self._model, "name", str, within="model."),
            revision="",
            architecture=self._take(self._model, "architecture", str, "", within="model."),
            weights_sha256="",
            num_layers=self._layers,
            hidden_size=self._width,
            dtype=DTYPE_NAMES[dtypes.pop()],
            settings=settings,
            environment={},
            native_labels=labels,
            prompts=tuple(prompts),
            shards=(),
            spec_sha256="",
            status="complete",
        )
        super().__init__(folder, spelled, manifest)
        self.norm()

    @property
    def _layers(self) -> int:
        return self._count("num_layers", LAYERS_MAX)

    @property
    def _width(self) -> int:
        return self._count("hidden_size", INT32_MAX)

    def _count(self, key: str, most: int) -> int:
        value: int = self._take(self._model, key, int, within="model.")
        if value > most:
            raise self._wrong(f"model.{key}", f"at most {most}", json.dumps(value)[:60])
        return value

    def sites(self) -> tuple[str, ...]:
        return tuple(sorted(self._sites, key=site_order))

    def span(self, prompt: str, name: str) -> Span | None:
        tensors = self._tensors.get(prompt, {})
        file = self.folder / f"{prompt}.safetensors"
        if name in self._sites:
            tensor, slot = tensors[STATES], self._sites.index(name)
            rows, slots, width = tensor.shape[0], len(self._sites), self._width
            one = Span(file, tensor.offset, rows, width, tensor.dtype, 0).row_bytes
            return Span(file, tensor.offset + slot * one, rows, width, tensor.dtype, slots * one)
        if name not in ("token_ids", "positions") or name not in tensors:
            return None
        tensor = tensors[name]
        item = 8 if tensor.dtype == "I64" else 4
        return Span(file, tensor.offset, tensor.shape[0], 1, tensor.dtype, item)

    def positions(self, prompt: str) -> NDArray[np.int32]:
        if "positions" in self._tensors[prompt]:
            return super().positions(prompt)
        return np.arange(self.prompt(prompt).rows, dtype=np.int32)

    def norm(self) -> tuple[NDArray[np.float32], float, bool] | None:
        if "norm_weight" not in self._model:
            return None
        name = self._take(self._model, "norm_weight", str, within="model.")
        if not lies_inside(name):
            raise self._wrong("model.norm_weight", "a file in the folder", json.dumps(name)[:60])
        file = self._where.parent / name
        if not file.is_file():
            raise self._wrong("model.norm_weight", "a file in the folder", f"no {file.name}")
        try:
            with guarded(file):
                weight = read_norm(file)
        except HsparityError as error:
            raise self._wrong("model.norm_weight", "a file with tensor `norm` [H]", error.message) from None
        if len(weight) != self._width:
            raise self._wrong("model.norm_weight", f"{self._width} weights", f"{len(weight)} in {file.name}")
        eps = self._take(self._model, "norm_eps", (int, float), 1e-6, within="model.")
        if not 0 <= eps < 1:  # NaN neither
            raise self._wrong("model.norm_eps", "a number from 0 to 1", json.dumps(eps)[:60])
        return weight, float(eps), self._take(self._model, "norm_plus_one", bool, False, within="model.")

    def verify(self) -> None:
        """Sizes were checked against the headers on opening."""

    def _read(self) -> Mapping[str, Any]:
        try:
            if self._where.exists() and not is_regular(self._where):
                raise ValueError("no regular file")
            raw = json.loads(self._where.read_text())
        except (OSError, ValueError, RecursionError) as error:
            raise self._wrong("", "JSON", str(error)[:200]) from None
        if not isinstance(raw, dict):
            raise self._wrong("", "an object", type(raw).__name__)
        found = raw.get("format")
        if isinstance(found, str) and found.startswith("hsparity.plain/") and found != FORMAT:
            notes = (f"found     {found}", f"expected  {FORMAT}")
            message = f"{self._where} is written in a version that this hsparity does not read"
            raise HsparityError("E201", message, notes, "pip install -U hsparity")
        if found != FORMAT:
            raise self._wrong("format", json.dumps(FORMAT), json.dumps(found))
        return raw

    def _take(
        self, raw: Mapping[str, Any], key: str, kind: Any, default: Any = None, within: str = ""
    ) -> Any:
        value = raw.get(key, default)
        name = " or ".join(_JSON[k] for k in (kind if isinstance(kind, tuple) else (kind,)))
        if value is None:
            raise self._wrong(within + key, name, "nothing")
        # JSON's true is an int to Python.
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            raise self._wrong(within + key, name, json.dumps(value)[:60])
        if kind is int and value < 1:
            raise self._wrong(within + key, "a positive integer", str(value))
        return value

    def _slots(self, slots: list[Any]) -> tuple[list[str], dict[str, str]]:
        keys: list[str] = []
        labels: dict[str, str] = {}
        if not slots:
            raise self._wrong("slots", "at least one slot", "an empty list")
        for i, slot in enumerate(slots):
            where = f"slots[{i}]"
            kinds = [k for k in ("boundary", "site", "label") if isinstance(slot, dict) and k in slot]
            if not isinstance(slot, dict) or not kinds:
                raise self._wrong(
                    where, '{"boundary": N}, {"site": NAME} or {"label": TEXT}', json.dumps(slot)
                )
            if "boundary" in slot:
                key = self._boundary(slot["boundary"], where)
            elif "site" in slot:
                key = self._site(slot["site"], where)
            else:
                key = Site("slot", i).key
            if "label" in slot:
                labels[key] = str(slot["label"])
            if key in keys:
                raise self._wrong(where, "a place named once", f"{key} again")
            keys.append(key)
        return keys, labels

    def _boundary(self, value: Any, where: str) -> str:
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= self._layers:
            raise self._wrong(f"{where}.boundary", f"an integer from 0 to {self._layers}", json.dumps(value))
        return Site("boundary", value).key

    def _site(self, value: Any, where: str) -> str:
        try:
            site = Site.parse(value)
        except (ValueError, AttributeError):
            raise self._wrong(
                f"{where}.site", '"final_norm" or another site key', json.dumps(value)
            ) from None
        if site.kind in ("router_logits", "experts", "prompt_logprobs"):
            raise self._wrong(f"{where}.site", "a site of width hidden_size", json.dumps(value))
        return site.key

    def _prompt_files(self, folder: Path) -> list[Path]:
        norm = self._model.get("norm_weight")
        # A link that leads nowhere is a prompt that is gone; a pipe is none.
        found = [p for p in folder.glob("*.safetensors") if p.name != norm]
        files = [p for p in found if is_regular(p) or not p.exists()]
        if not files:
            raise HsparityError(
                "E209", f"{folder} holds no prompt", (f"beside {MARKER}: no *.safetensors",), _HELP
            )
        return sorted(
            files,
            key=lambda p: (
                (len(p.stem), p.stem) if p.stem.isascii() and p.stem.isdigit() else (1 << 20, p.stem)
            ),
        )

    def _check(self, file: Path, tensors: Mapping[str, Tensor]) -> None:
        for name, kinds in (("token_ids", INTEGERS), (STATES, FLOATS)):
            if name not in tensors:
                found = ", ".join(tensors) or "no tensors"
                raise self._wrong(f"tensor {name}", "to be there", found, file)
            if tensors[name].dtype not in kinds:
                raise self._wrong(f"tensor {name}", " or ".join(kinds), tensors[name].dtype, file)
        tokens, states = tensors["token_ids"].shape, tensors[STATES].shape
        if len(tokens) != 1:
            raise self._wrong("tensor token_ids", "shape [T]", str(list(tokens)), file)
        slots, width = len(self._sites), self._width
        # Slots side by side in one row lie in memory as slots of their own do.
        if states[1:] not in ((slots, width), (slots * width,)):
            wanted = f"shape [R, {slots} slots, {width}] or [R, {slots * width}]"
            found = str(list(states))
            if len(states) == 2 and states[1] % width == 0:
                found += f": {states[1] // width} states of width {width} side by side; name each of them in `slots`"
            raise self._wrong(f"tensor {STATES}", wanted, found, file)
        if "positions" not in tensors:
            if states[0] != tokens[0]:
                wanted = f"{tokens[0]} rows like token_ids, or a tensor positions [R]"
                raise self._wrong(f"tensor {STATES}", wanted, f"{states[0]} rows", file)
        elif tensors["positions"].dtype not in INTEGERS or tensors["positions"].shape != states[:1]:
            found = f"{tensors['positions'].dtype} {list(tensors['positions'].shape)}"
            raise self._wrong("tensor positions", f"integers [{states[0]}]", found, file)

    def _prompt(self, file: Path) -> Prompt:
        tensors = self._tensors[file.stem]
        ids = self._whole(file, "token_ids")
        total, rows = len(ids), tensors[STATES].shape[0]
        held = np.arange(rows) if "positions" not in tensors else self._whole(file, "positions")
        if len(held) and (held.min() < 0 or held.max() >= total):
            raise self._wrong("tensor positions", f"0 to {total - 1}", f"{held.min()} to {held.max()}", file)
        if len(np.unique(held)) != len(held):
            raise self._wrong("tensor positions", "each position once", "repeats", file)
        missing = spans(np.setdiff1d(np.arange(total), held).tolist())
        return Prompt(file.stem, total, total, rows, missing, token_ids_sha256(ids.tolist()))

    def _whole(self, file: Path, name: str) -> NDArray[np.int32]:
        tensor = self._tensors[file.stem][name]
        item = 8 if tensor.dtype == "I64" else 4
        try:
            return read_integers(Span(file, tensor.offset, tensor.shape[0], 1, tensor.dtype, item))
        except ValueError as error:
            raise self._wrong(f"tensor {name}", f"0 to {INT32_MAX}", str(error), file) from None

    def _wrong(self, key: str, expected: str, found: str, file: Path | None = None) -> HsparityError:
        where = file or self._where
        message = f"malformed plain folder: {where}" + (f", {key}" if key else "")
        return HsparityError("E209", message, (f"expected  {expected}", f"found     {found}"), _HELP)


_JSON = {
    Mapping: "an object",
    list: "a list",
    str: "text",
    int: "an integer",
    float: "a number",
    bool: "true or false",
}
_HELP = "docs/formats.md describes the plain form, with a worked example"


def _recognise(look: Look) -> str | None:
    return MARKER if (look.path / MARKER).is_file() else None


READER = Reader("plain", "the plain form", _recognise, PlainFolder)
