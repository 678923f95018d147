"""How far the sides of a case lie apart: over the floor, by place, and the gain of a branch."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from tests.engines.conftest import manifest, tensors

ALIKE = 2**0.5  # two sides' bf16 noise adds up in squares


@dataclass(frozen=True, slots=True)
class Apart:
    """Medians over tokens at one boundary; ratios are to what bf16 arithmetic costs at the same tokens."""

    boundary: int
    pair: float  # the pair's error over sqrt(2) e0
    ref: float  # the side's own error to float32 over e0
    cand: float
    first: float  # the pair's at position 0
    prefill: float  # at other prompt tokens
    decode: float  # at decoded tokens; nan without any
    equal: float  # share of bit-equal tokens


def apart(record: dict[str, Any], boundary: int) -> Apart | None:
    """The distance of a case's sides at a boundary; None where a side lacks it or the rows are not the same."""
    sides = [_site(Path(record[side]), boundary) for side in ("ref", "cand")]
    floors = [_site(Path(path), boundary) for path in record["floors"]]
    ref_nh, cand_nh, exact_nh, bf16_nh = (*sides, *floors)
    if any(x is None for x in (ref_nh, cand_nh)) or ref_nh.shape != cand_nh.shape:  # type: ignore[union-attr]
        return None
    first_n, decode_n = _places(Path(record["floors"][0]))
    floor_n = _error(bf16_nh, exact_nh)
    pair_n = _error(cand_nh, ref_nh) / ALIKE
    places = {"first": first_n, "prefill": ~first_n & ~decode_n, "decode": decode_n}
    return Apart(
        boundary,
        _over(pair_n, floor_n),
        _over(_error(ref_nh, exact_nh), floor_n),
        _over(_error(cand_nh, exact_nh), floor_n),
        **{name: _over(pair_n[at], floor_n[at]) for name, at in places.items()},
        equal=float((pair_n == 0).double().mean()),
    )


def gain(record: dict[str, Any], key: str) -> tuple[float, float]:
    """Median over tokens of <ref, cand> / |ref|^2 and of |cand - ref| / |ref| at a site."""
    ref_nh, cand_nh = (_rows(Path(record[side]), key) for side in ("ref", "cand"))
    gains_n = (ref_nh * cand_nh).sum(1) / (ref_nh * ref_nh).sum(1)
    return float(gains_n.median()), float(_error(cand_nh, ref_nh).median())


def _site(folder: Path, boundary: int) -> torch.Tensor | None:
    """A boundary's rows [N, H]; in captures of the native path, whose ids are 0 to L, the slot of that number."""
    held = manifest(folder).shards[0].sites
    keys = [k for k in (f"boundary.{boundary:03d}", f"slot.{boundary:03d}") if k in held]
    return _rows(folder, keys[0]) if keys else None


def _rows(folder: Path, key: str) -> torch.Tensor:
    return torch.cat([tensors(folder, p.id)[key] for p in manifest(folder).prompts]).double()


def _places(folder: Path) -> tuple[torch.Tensor, torch.Tensor]:
    """Which rows stand at position 0, and which were decoded."""
    prompts = manifest(folder).prompts
    at = [torch.arange(p.rows) for p in prompts]
    return torch.cat([a == 0 for a in at]), torch.cat(
        [a >= p.prefill for a, p in zip(at, prompts, strict=True)]
    )


def _error(cand_nh: Any, ref_nh: Any) -> torch.Tensor:
    error_n: torch.Tensor = (cand_nh - ref_nh).norm(dim=1) / ref_nh.norm(dim=1)
    return error_n


def _over(error_n: torch.Tensor, floor_n: torch.Tensor) -> float:
    return float(error_n.median() / floor_n.median()) if len(error_n) else float("nan")
