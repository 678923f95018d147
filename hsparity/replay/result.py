"""What a replay found, as plain records, to and from JSON."""

from __future__ import annotations

from dataclasses import dataclass

from hsparity.model import LayerError, Quantiles, Verdict, document, record

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
    # Of those, how many the router's own rounding does not explain: their margin between the last expert chosen and
    # the first one not chosen is too wide. -1: not known.
    experts_wide: int = -1
    margin: Quantiles | None = (
        None  # of the differing tokens' margins, in units of the router's rounding noise
    )
    # The ratio that is left when the captured update is divided by `gain`: at the floor where a constant factor (a scale
    # that is wrong, a kernel that truncates) is the whole error. All channels.
    ratio_without_gain: float = float("nan")
    lost: int = 0  # tokens whose captured output is not finite
    expert: int = -1  # the one expert whose tokens alone are beyond the floor; -1: not one
    left_out: int = 0  # tokens whose choice of experts the router's rounding may turn: neither error nor floor counts them


@dataclass(frozen=True, slots=True)
class Replayed:
    """The capture of one side."""

    path: str
    engine: str
    version: str
    model: str  # as its manifest has it; `ref_model` and `cand_model` are checkpoints
    weights_sha256: str
    prompts: int
    tokens: int


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
    verdict: Verdict = Verdict.INCONCLUSIVE  # over every layer and part replayed with the side's own weights
    command: tuple[str, ...] = ()  # as typed; empty when a program asked
    sides: tuple[Replayed, ...] = ()  # ref and cand; empty in results that do not say

    def of(self, side: str, part: str = "layer", weights: str = "own") -> tuple[Added, ...]:
        """The entries of one side and part, in layer order."""
        found = (a for a in self.added if (a.side, a.part, a.weights) == (side, part, weights))
        return tuple(sorted(found, key=lambda a: a.layer))

    def layer_errors(self) -> tuple[LayerError, ...]:
        """What each layer and part adds, with each side's own weights, in layer order, the whole before its parts."""
        own = sorted(
            (a for a in self.added if a.weights == "own"),
            key=lambda a: (a.side != "ref", a.layer, a.part != "layer", a.part),
        )
        return tuple(
            LayerError(
                a.side, a.layer, a.part, a.ratio, a.low, a.high, a.verdict, a.experts_differ, a.experts_wide
            )
            for a in own
        )

    def to_json(self, indent: int | None = None) -> str:
        """Sorted keys; a figure that is not finite is null."""
        return document(self, indent)


def from_json(text: str) -> Replay:
    """Read a replay. Raises ValueError when it is not one, or is of another major version."""
    return record(Replay, SCHEMA, text)
