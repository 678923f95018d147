"""The result of a comparison, as plain records. numpy only: a result renders on a laptop that has no torch.

Axes: L layers, K sites, P prompts, T tokens of a prompt, N aligned tokens, C map columns (at most 8,192 and
one more per prompt), M rows, H hidden.
Every figure about a site is a median or quantile over its N tokens; nothing is a mean over the tensor.
"""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass, field, fields, is_dataclass
from enum import Enum
from functools import cache
from typing import Any, TypeVar, cast, get_type_hints

import numpy as np
from numpy.typing import NDArray

SCHEMA = "hsparity.comparison/1"
MAP_COLUMNS = 8192
LOST = 1.0 - 1e-5  # rel-L2: a row of zeros is off by exactly its state, but for the last bit
LEFT_OUT = "left out"  # in place of a digest of weights, in a redacted result: it was hashed
Record = TypeVar("Record")


class Verdict(str, Enum):
    """Of a comparison (PARITY, DIVERGED, INCONCLUSIVE) and of a site (the same three, or MISSING on one side)."""

    PARITY = "parity"
    DIVERGED = "diverged"
    INCONCLUSIVE = "inconclusive"
    MISSING = "missing"


@dataclass(frozen=True, slots=True)
class Side:
    """One side as the reports show it."""

    role: str  # "ref" | "cand" | "floor fp32" | "floor bf16" | "repeat"
    path: str  # as the user typed it
    engine: str
    version: str
    dtype: str
    model: str
    architecture: str
    num_layers: int
    hidden_size: int
    prompts: int
    tokens: int
    rows: int
    sites: tuple[str, ...]
    settings: dict[str, Any]
    environment: dict[str, str]
    native_labels: dict[str, str]
    weights_sha256: str = ""
    created: str = ""
    warnings: tuple[str, ...] = ()

    @property
    def digest(self) -> str:
        """Of the weights; empty where it is not known, for want of a hash or because it was left out."""
        return "" if self.weights_sha256 == LEFT_OUT else self.weights_sha256


@dataclass(frozen=True, slots=True)
class Request:
    """What the user claimed and asked for: it decides the verdict."""

    layers: tuple[
        int, ...
    ]  # requested boundaries - 1; may hold -1 (boundary 0, embeddings) when asked by --boundaries
    boundaries: tuple[int, ...]  # requested boundaries, canonical
    spelled: str  # "--layers 2,30,58", "--boundaries 3,31,59", "--layers all"
    offset: int = 0  # compare ref boundary r with cand boundary r - offset
    tokens: str = "all"


@dataclass(frozen=True, slots=True)
class Quantiles:
    """Over tokens. `worst` is the end that is bad for the metric: max of an error, min of a cosine."""

    p05: float
    p50: float
    p95: float
    p99: float
    worst: float


@dataclass(frozen=True, slots=True)
class TokenRef:
    prompt: str
    position: int
    token_id: int
    value: float  # its rel-L2
    text: str = ""


@dataclass(frozen=True, slots=True)
class Ratio:
    """An error over its yardstick, as distributions (design decision 8). `median` is the ratio of medians."""

    of: str  # "ref", "cand", "pair"; with " rest": massive channels left out
    median: float
    low: float  # 95 % bootstrap interval of `median`
    high: float
    limit: float
    beyond: int  # tokens whose error exceeds limit x the largest yardstick error
    share: float  # share of tokens above limit x the yardstick's 95th percentile
    share_low: float
    verdict: Verdict
    reason: str


@dataclass(frozen=True, slots=True)
class SiteDelta:
    """One site of the candidate against one site of the reference, over N tokens."""

    ref: str  # site key
    cand: str  # site key
    requested: bool  # decides the verdict
    tokens: int  # N; 0 when missing
    metrics: dict[
        str, Quantiles
    ]  # "rel_l2", "cosine", "mse", "max_abs", "norm_ratio": all tokens, all channels
    rest: dict[str, Quantiles]  # "rel_l2", "cosine": massive channels and sink tokens left out
    massive_channels: tuple[int, ...]  # top 1 % by RMS over the first 256 reference tokens
    massive_rel_l2: Quantiles | None  # error within those channels
    sink_tokens: int  # tokens whose norm exceeds 10x the boundary's median norm
    sink_rel_l2: Quantiles | None
    nonfinite: tuple[int, int]  # NaN or Inf elements, ref and cand; such tokens are not in `metrics`
    bit_equal: int  # tokens equal in every bit
    worst: TokenRef | None
    floor: Quantiles | None  # the yardstick for the pair's rel-L2 at this site
    ratios: tuple[Ratio, ...]  # ref, cand, pair: as far as the floor allows
    verdict: Verdict
    reason: str  # one line: why this verdict
    undone: Quantiles | None = None  # rel-L2 with the leading cause undone; None where that undoes nothing


@dataclass(frozen=True, slots=True)
class Floor:
    """What the differences were measured against; printed beside every ratio."""

    kind: str  # "bf16-reference" | "repeat" | "bit-equal" | "tolerance" | "none"
    source: str  # sentence naming the captures: "fp32 and bf16 by transformers 5.19.0, 8 prompts, 512 tokens"
    limit: float  # 1.5, or the tolerance
    resolution: float  # half a unit in the last place of the storage dtype: bf16 2**-9
    e0: dict[str, Quantiles] = field(default_factory=dict)  # per site key


@dataclass(frozen=True, slots=True)
class SlotMatch:
    """Where a candidate site lies among the reference's boundaries, by the data."""

    cand: str  # "slot.001" or "boundary.003"
    # "cand" or "ref": that side's sites on the other's boundaries; "ref self", "cand self": a side's slots against its
    # own hooks; "… on floor": against the floor's boundaries, when neither side holds any.
    side: str
    claimed: int | None  # boundary it was said to be; None when unlabelled
    best: int  # the boundary that fits best; num_layers + 1 is final_norm
    error: float  # median rel-L2 there
    runner_up: int
    runner_up_error: float
    margin: float  # log10(runner_up_error / error), error clamped at the storage half-ulp; >= 1 is plain
    proved: bool  # at the floor and well apart from the runner-up
    native_label: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class Alignment:
    tokens: int  # N
    prompts: int  # prompts with at least one aligned token
    gaps: tuple[str, ...]  # one line each: which prompt, side, span, why
    offset: (
        int | None
    )  # best common shift: ref boundary r pairs with cand boundary r - offset; None: not testable
    offset_testable: bool
    margin: float
    rows_agreeing: int
    slots: tuple[SlotMatch, ...]
    ref_boundaries: tuple[int, ...] = ()  # axis of pair_error_kk
    cand_boundaries: tuple[int, ...] = ()
    pair_error_kk: NDArray[np.float32] = field(default_factory=lambda: np.zeros((0, 0), np.float32))


@dataclass(frozen=True, slots=True, eq=False)
class TokenMap:
    """log10(rel-L2 / floor) per boundary and token, max-pooled to about MAP_COLUMNS; NaN where nothing was compared.

    Kept as float16; maps of more than 2,048 columns in steps of 1/64, which is 3.7 % of the ratio."""

    boundaries: tuple[int, ...]
    column_tokens: int  # tokens pooled per column; 1 = not pooled
    prompts: tuple[tuple[str, int, int], ...]  # prompt id, first column, one past the last
    excess_kc: NDArray[np.floating[Any]]
    undone_kc: NDArray[np.floating[Any]] | None = None  # with the leading cause undone
    relative_to: str = "floor"  # "floor" or "resolution" when there is no floor
    # Of the token in each column that stands out most; empty in results that do not say.
    positions_c: NDArray[np.int32] = field(default_factory=lambda: np.zeros(0, np.int32))
    ids_c: NDArray[np.int32] = field(default_factory=lambda: np.zeros(0, np.int32))
    texts: tuple[str, ...] = ()  # what these tokens say; empty without the model's tokenizer


UNKNOWN_OWNER, ABSENT_ROW = -1, -2  # in place of an owner


@dataclass(frozen=True, slots=True, eq=False)
class RowMap:
    """Whose state each row of the candidate holds, looked up among the reference's; M: the reference's rows."""

    site: str  # candidate's site that was searched; empty where only absent rows are told
    prompts: tuple[tuple[str, int, int], ...]  # prompt id, its first row, one past the last; rows as claimed
    owner_m: NDArray[np.int32]  # place of the token whose state it is; -1: no telling, -2: candidate has none


@dataclass(frozen=True, slots=True)
class LayerError:
    """The error that one layer, or a part of it, adds on one side when it is replayed on the captured input."""

    side: str  # "ref" | "cand"
    layer: int
    part: str  # "layer" | "attention" | "mlp" | "router"
    ratio: float  # over the floor of the same layer and input
    low: float
    high: float
    verdict: Verdict
    # Of a router or a layer with one: tokens whose captured experts are not the replay's, and how many of these the
    # router's rounding does not explain. -1: not known.
    experts_differ: int = -1
    experts_wide: int = -1


@dataclass(frozen=True, slots=True)
class Finding:
    code: str  # "HS101"
    name: str  # "layer-offset"
    headline: str
    explained: float | None = None  # share of the excess removed when undone
    slots: tuple[str, ...] = ()  # site keys it holds for
    rows: tuple[str, ...] = ()  # spans of rows it holds for: "p3 0-31"; empty: all of them
    tokens: int = 0  # how many tokens those are; 0: not counted
    evidence: tuple[str, ...] = ()
    fix: dict[str, str] = field(
        default_factory=dict
    )  # "vllm", "sglang", "sglang (DeepSeek)", "any" -> what to write
    rival: str = ""
    # "cause": it is there; "hypothesis": why it may be there, ranked by `confidence`; "note": worth knowing
    severity: str = "cause"
    confirm: tuple[str, ...] = ()  # command lines
    ruled_out: bool = False
    structural: bool = False  # proved by its margin: diverged without a floor
    against: tuple[str, ...] = ()  # what speaks against a hypothesis
    # Of a hypothesis: "settled" | "likely" | "possible" | "inconclusive"; docs/accuracy.md says how often each is right.
    confidence: str = ""
    explained_low: float | None = None  # 95 % interval of `explained`, where it was measured
    explained_high: float | None = None


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """What an error that is beyond the floor looks like, whatever its cause."""

    side: str  # "ref" | "cand": who is beyond the floor; "both"; "pair" when no fp32 capture says
    boundary: int | None  # first boundary beyond the floor, held against all of them at once
    layer: int | None  # layer that makes it; None where the boundary before it was not compared
    start: str  # "embedding", "first" layer, first layer with "experts", a "later" layer, "" unknown
    lines: tuple[str, ...]  # one sentence per thing measured
    figures: dict[str, float] = field(
        default_factory=dict
    )  # "ratio", "first", "later", "growth", "coherence" ...
    boundaries: tuple[int, ...] = ()  # of `ratios`
    ratios: tuple[float, ...] = ()  # median error over floor of that side
    # Per layer: its number, the error of its update over the true update, and the same of bf16; a sample of tokens.
    added: tuple[tuple[int, float, float], ...] = ()


@dataclass(frozen=True, slots=True)
class Trial:
    """One experiment on an engine, and the share of the excess that went away."""

    turned: tuple[str, ...]  # "cand kv-dtype: fp8 -> auto"
    state: str  # "measured", or why it says nothing
    share: float | None  # None where it was not measured
    low: float | None = None  # its 95 % interval
    high: float | None = None


@dataclass(frozen=True, slots=True)
class Cost:
    """What the difference costs a draft head, in draft tokens accepted a step; `low` and `high` bound the loss."""

    draft: str
    verdict: Verdict
    headline: str  # one sentence without its capital and full stop
    ref: float
    cand: float
    low: float | None
    high: float | None
    undone: dict[str, float]  # finding -> accepted a step with it undone


@dataclass(frozen=True, slots=True, eq=False)
class Comparison:
    schema: str
    hsparity: str  # version that made it
    verdict: Verdict
    headline: str  # one sentence
    ref: Side
    cand: Side
    others: tuple[Side, ...]  # floor captures
    request: Request
    floor: Floor
    deltas: tuple[SiteDelta, ...]  # in site order
    alignment: Alignment
    map: TokenMap | None
    findings: tuple[Finding, ...]  # causes by `explained`, hypotheses by rank, notes, ruled-out ones last
    command: tuple[str, ...]  # as typed; empty when a program asked
    fingerprint: Fingerprint | None = None  # of what is beyond the floor
    cost: Cost | None = None  # to a draft head that was named
    rows: RowMap | None = None  # where rows are not their tokens' own
    added: tuple[LayerError, ...] = ()  # by replay, with each side's own weights
    trials: tuple[Trial, ...] = ()  # by bisect
    redacted: bool = False  # prompts, tokens and paths were taken out

    def delta(self, boundary: int) -> SiteDelta | None:
        """The delta whose reference site is this boundary, if any."""
        return next((d for d in self.deltas if d.ref == f"boundary.{boundary:03d}"), None)

    def __repr__(self) -> str:
        """The verdict and its sentence: the fields are megabytes."""
        return f"<Comparison {self.verdict.value}: {self.headline!r}>"

    def _repr_html_(self) -> str:
        """The HTML report, as a notebook shows it."""
        from hsparity.report.notebook import comparison_cell

        return comparison_cell(self)


def to_json(value: Comparison, indent: int | None = None) -> str:
    """The whole result, arrays as base64 with dtype and shape, non-finite numbers as null. Sorted keys: same result, same bytes."""
    return document(value, indent)


def from_json(text: str) -> Comparison:
    """Read a result. Raises ValueError when it is not one, or is of another major version."""
    return record(Comparison, SCHEMA, text)


def document(value: Any, indent: int | None = None) -> str:
    """Any record as JSON, by the same rules."""
    return json.dumps(encode(value), indent=indent, sort_keys=True, ensure_ascii=False, allow_nan=False)


def record(kind: type[Record], schema: str, text: str) -> Record:
    """The record of that schema in a JSON document. Raises ValueError for another one."""
    raw = json.loads(text)
    if not isinstance(raw, dict) or raw.get("schema") != schema:
        found = raw.get("schema") if isinstance(raw, dict) else type(raw).__name__
        raise ValueError(f"not a {schema} result: {found!r}")
    result: Record = decode(kind, raw)
    return result


def encode(value: Any) -> Any:
    """A record as JSON values: arrays as base64 with dtype and shape, what is not finite as null."""
    if isinstance(value, np.ndarray):
        return {
            "dtype": str(value.dtype),
            "shape": list(value.shape),
            "base64": base64.b64encode(np.ascontiguousarray(value).tobytes()).decode(),
        }
    if is_dataclass(value) and not isinstance(value, type):
        return {f.name: encode(getattr(value, f.name)) for f in fields(value)}
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, dict):
        return {str(k): encode(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [encode(v) for v in value]
    if isinstance(value, (float, np.floating)):
        return float(value) if np.isfinite(value) else None
    if isinstance(value, np.integer):
        return int(value)
    return value


def decode(kind: Any, raw: Any) -> Any:
    """The record of type `kind` that `encode` made; keys that it does not have are passed over."""
    origin = getattr(kind, "__origin__", None)
    args: tuple[Any, ...] = getattr(kind, "__args__", ())
    if raw is None:
        return float("nan") if kind is float else None
    if isinstance(raw, dict) and set(raw) == {"dtype", "shape", "base64"}:
        data = np.frombuffer(base64.b64decode(raw["base64"]), raw["dtype"])
        return data.reshape(raw["shape"]).copy()
    if is_dataclass(kind):
        hints = field_types(cast(Any, kind))
        return kind(**{k: decode(hints[k], v) for k, v in raw.items() if k in hints})  # type: ignore[operator]
    if origin is tuple:
        if len(args) == 2 and args[1] is Ellipsis:
            return tuple(decode(args[0], v) for v in raw)
        return tuple(decode(a, v) for a, v in zip(args, raw, strict=True))
    if origin is dict:
        return {k: decode(args[1], v) for k, v in raw.items()}
    if isinstance(kind, type) and issubclass(kind, Enum):
        return kind(raw)
    if origin is not None or kind.__class__.__name__ == "UnionType":  # X | None
        inner = next((a for a in args if a is not type(None)), Any)
        return decode(inner, raw)
    return float(raw) if kind is float else raw


@cache
def field_types(kind: Any) -> dict[str, Any]:
    """Field -> type of a record, in order. Resolved once: a result holds thousands of records of a few kinds."""
    hints = get_type_hints(kind)
    return {f.name: hints[f.name] for f in fields(kind)}
