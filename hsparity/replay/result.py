"""What a replay found, as plain records."""

from __future__ import annotations

from dataclasses import dataclass

from hsparity.model import Quantiles, Verdict

SCHEMA = "hsparity.replay/1"


@dataclass(frozen=True, slots=True)
class Added:
    """The error that one layer, or a part of it, adds on one side over N tokens: captured output against the layer
    replayed in float32 on the captured input. Relative to the norm of the replayed output."""

    side: str  # "ref" | "cand"
    weights: str  # "own" | "other": whose checkpoint the layer was replayed with
    layer: int  # 0-based; turns boundary `layer` into boundary `layer + 1`
    kind: str  # "dense" | "moe"
    part: str  # "layer" | "attention" | "mlp" | "router"
    tokens: int  # N
    error: Quantiles
    first: float  # the median error at position 0
    floor: Quantiles  # the same layer, weights and input in the capture's dtype instead of float32
    ratio: float  # median error over median floor
    low: float  # its interval, corrected for the number of layers
    high: float
    # Median over tokens of <captured update, replayed update> / |replayed update|^2; 1 when exact.
    gain: float
    verdict: Verdict
    reason: str
    experts_differ: int = -1  # tokens whose captured experts are not the replay's choice; -1: not captured


@dataclass(frozen=True, slots=True)
class Replay:
    """Every layer that was replayed, on both sides."""

    schema: str
    headline: str  # one sentence: which layers add error, on which side, by which part
    ref: str  # capture paths as typed
    cand: str
    ref_model: str
    cand_model: str
    added: tuple[Added, ...]
    notes: tuple[str, ...] = ()

    def of(self, side: str, part: str = "layer", weights: str = "own") -> tuple[Added, ...]:
        """The entries of one side and part, in layer order."""
        found = (a for a in self.added if (a.side, a.part, a.weights) == (side, part, weights))
        return tuple(sorted(found, key=lambda a: a.layer))
