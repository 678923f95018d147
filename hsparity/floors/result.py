"""What a floor holds and what was measured on it, as plain records."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass
from typing import Any

SCHEMA = "hsparity.floor/1"


@dataclass(frozen=True, slots=True)
class Part:
    """One kind of floor. `state`: "made" | "kept" | "shared" | "planned" | "none"."""

    kind: str
    state: str
    what: str = ""  # what is changed, in words
    path: str = ""  # of the capture; empty when there is none
    reason: str = ""  # why there is none
    bytes: int = 0  # estimate, of one that is planned
    seconds: float = math.nan  # estimate, of one that is planned; NaN where nothing says


@dataclass(frozen=True, slots=True)
class Noise:
    """Relative L2 errors over the tokens of one site. `kind` "e0": Transformers bf16 to fp32; "capture": the capture to
    fp32; else the capture to its own engine's floor of that kind."""

    kind: str
    site: str
    rows: str  # "prefill" | "decode" | "decode as prefill" | "prefill as decode": here and in the floor; "all" for e0
    tokens: int
    bit_equal: int  # tokens
    median: float
    p95: float
    p99: float
    largest: float
    over: (
        float  # median over e0's ("capture"), or over sqrt(2) of e0's (two captures); NaN without e0 or error
    )


@dataclass(frozen=True, slots=True)
class FloorReport:
    """A capture's floor."""

    schema: str
    capture: str
    engine: str
    store: str
    resolution: float  # half a unit in the last place of the capture's dtype
    parts: tuple[Part, ...]
    noises: tuple[Noise, ...] = ()

    def of(self, kind: str) -> tuple[Noise, ...]:
        return tuple(n for n in self.noises if n.kind == kind)


def to_json(report: FloorReport) -> str:
    """The whole report; numbers that are not finite are null."""
    return json.dumps(_plain(asdict(report)), indent=1, sort_keys=True, allow_nan=False)


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(v) for v in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
