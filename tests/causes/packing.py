"""The recorded streams' format: small, exact for bf16, and the same bytes for the same captures.

A bf16 number is an ordered 16-bit integer, so that neighbours differ by one. Every tensor is the difference of
such integers from a prediction: the first capture's own tensor for the other captures, the layer's sum for an MLP
output, the norm of the last boundary for final_norm. Differences are zigzag-coded, split into byte planes and
deflated. The fp32 capture keeps `FP32_BITS` bits below bf16's: harmless in a reference that bf16 is held against.
"""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from hsparity.capture.read import open_source
from hsparity.capture.source import Source

FOLDER = Path(__file__).parent / "recorded"
FP32_BITS = 4
PLANES = 3  # bytes of a difference
FACTS = ("engine", "engine_version", "architecture", "dtype", "settings", "weights_sha256", "model_config")

Integers = NDArray[np.int64]  # ordered integers [N, H]
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Packed:
    """One recorded model. `states`: capture -> site -> float64 [N, H], the prompts' rows one after the other."""

    facts: Mapping[str, Any]
    norm: NDArray[np.float32]  # [H]
    states: Mapping[str, Mapping[str, Floats]]


def pack(folders: Mapping[str, Path], model: str) -> bytes:
    """An archive of captures of one model; the first is what the others are told apart from."""
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        for name, data in sorted(parts_of(folders, model).items()):
            # A fixed date: the same captures give the same archive.
            entry = zipfile.ZipInfo(name, date_time=(1980, 1, 1, 0, 0, 0))
            archive.writestr(entry, data, zipfile.ZIP_DEFLATED, compresslevel=9)
    return made.getvalue()


def parts_of(folders: Mapping[str, Path], model: str) -> dict[str, bytes]:
    """What an archive holds, before it is deflated."""
    sources = {name: open_source(folder) for name, folder in folders.items()}
    first = next(iter(sources.values()))
    weight, eps, plus_one = first.norm() or _no_norm(first)
    prompts = [
        {
            "id": p.id,
            "token_ids": first.token_ids(p.id).tolist(),
            "prefill": p.prefill,
            "generated": p.generated,
        }
        for p in first.prompts
    ]
    facts: dict[str, Any] = {
        "model": model,
        "num_layers": first.manifest.num_layers,
        "hidden_size": first.manifest.hidden_size,
        "norm": {"eps": eps, "plus_one": plus_one},
        "prompts": prompts,
        "captures": {name: _facts(source) for name, source in sources.items()},
    }
    parts: dict[str, bytes] = {"norm": weight.astype("<f4").tobytes()}
    base: dict[str, Integers] = {}
    for name, source in sources.items():
        bits = _bits(source.manifest.dtype)
        held = {site: _ordered(_rows(source, site), bits) for site in source.sites()}
        base = base or held
        for kind, sites in _kinds(held).items():
            coder = _Coder(held, base if held is not base else {}, bits, (weight, eps))
            planes = _planes(np.stack([held[site] - coder.predicted(site) for site in sites]))
            parts |= {f"{name}/{kind}.{i}": plane for i, plane in enumerate(planes)}
    parts["facts.json"] = json.dumps(facts, indent=1, sort_keys=True).encode()
    return parts


def unpack(data: bytes) -> Packed:
    """What `pack` packed."""
    parts = inflated(data)
    facts = json.loads(parts["facts.json"])
    norm = np.frombuffer(parts["norm"], "<f4")
    tokens = sum(len(p["token_ids"]) for p in facts["prompts"])
    base: dict[str, Integers] = {}
    states = {}
    for name, about in facts["captures"].items():
        bits = _bits(about["dtype"])
        held: dict[str, Integers] = {}
        coder = _Coder(held, base, bits, (norm, facts["norm"]["eps"]))
        for kind, sites in _kinds(about["sites"]).items():
            shape = (len(sites), tokens, facts["hidden_size"])
            differences = _unplaned([parts[f"{name}/{kind}.{i}"] for i in range(PLANES)], shape)
            for site, difference in zip(sites, differences, strict=True):
                held[site] = difference + coder.predicted(site)
        base = base or held
        states[name] = {site: _floats(held[site], bits) for site in about["sites"]}
    return Packed(facts, norm, states)


def inflated(data: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


class _Coder:
    """Predicts a tensor from those already known of the same capture (`own`) and of the first (`base`)."""

    def __init__(
        self, own: Mapping[str, Integers], base: Mapping[str, Integers], bits: int, norm: tuple[Any, float]
    ) -> None:
        self.own, self.base, self.bits, self.norm = own, base, bits, norm

    def predicted(self, site: str) -> Integers | int:
        kind, _, number = site.partition(".")
        if kind == "final_norm":
            last = _floats(self.own[max(s for s in self.own if s.startswith("boundary"))], self.bits)
            weight, eps = self.norm
            root = np.sqrt((last**2).mean(1, keepdims=True) + eps)
            return _ordered(last / root * weight.astype(np.float64), self.bits)
        if kind == "mlp_out":
            k = int(number)
            before, after, attention = (
                _floats(self.own[key], self.bits)
                for key in (f"boundary.{k:03d}", f"boundary.{k + 1:03d}", f"attn_out.{k:03d}")
            )
            return _ordered(after - _floats(_ordered(before + attention, self.bits), self.bits), self.bits)
        if site in self.base:
            return self.base[site] << self.bits
        # The stream keeps much of itself from one layer to the next.
        return self.own[f"boundary.{int(number) - 1:03d}"] if kind == "boundary" and int(number) else 0


def _bits(dtype: str) -> int:
    return FP32_BITS if dtype == "float32" else 0


def _ordered(values: Floats, bits: int) -> Integers:
    """Floats as integers in the same order: bf16, or with `bits` more bits of mantissa; rounded to nearest even."""
    raw = values.astype("<f4").view("<u4").astype(np.int64)
    sign, magnitude = raw >> 31, raw & 0x7FFFFFFF
    drop = 16 - bits
    magnitude = (magnitude + (1 << (drop - 1)) - 1 + ((magnitude >> drop) & 1)) >> drop
    return np.where(sign == 1, -magnitude, magnitude)


def _floats(ordered: Integers, bits: int) -> Floats:
    raw = (np.abs(ordered) << (16 - bits)).astype("<u4")
    found = raw.view("<f4").astype(np.float64)
    return np.where(ordered < 0, -found, found)


def _planes(differences: Integers) -> list[bytes]:
    """Zigzag: small differences of either sign are small numbers, whose upper bytes are zero."""
    coded = (differences << 1) ^ (differences >> 63)
    return [(coded >> (8 * i) & 0xFF).astype(np.uint8).tobytes() for i in range(PLANES)]


def _unplaned(planes: Iterable[bytes], shape: tuple[int, ...]) -> Integers:
    coded = np.zeros(shape, np.int64)
    for i, plane in enumerate(planes):
        coded |= np.frombuffer(plane, np.uint8).reshape(shape).astype(np.int64) << (8 * i)
    return (coded >> 1) ^ -(coded & 1)


def _kinds(sites: Iterable[str]) -> dict[str, list[str]]:
    """Sites by kind, those that others are predicted from first."""
    found: dict[str, list[str]] = {kind: [] for kind in ("boundary", "attn_out", "mlp_out", "final_norm")}
    for site in sorted(sites):
        found[site.partition(".")[0]].append(site)
    return {kind: keys for kind, keys in found.items() if keys}


def _rows(source: Source, site: str) -> Floats:
    blocks = [source.block(p.id, site, 0, p.rows) for p in source.prompts]
    found: Floats = torch.cat(blocks).double().numpy()
    return found


def _facts(source: Source) -> dict[str, Any]:
    facts = {name: getattr(source.manifest, name) for name in FACTS}
    facts["sites"] = list(source.sites())
    # Where the model lay is of no use elsewhere.
    facts["model_config"] = {k: v for k, v in facts["model_config"].items() if k != "_name_or_path"}
    return facts


def _no_norm(source: Source) -> Any:
    raise ValueError(f"{source.path} holds no norm")
