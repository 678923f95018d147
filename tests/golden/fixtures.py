"""Hand-made comparisons. Every number is made here, by formula, none by an engine."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from hsparity.model import (
    SCHEMA,
    Alignment,
    Comparison,
    Finding,
    Floor,
    Quantiles,
    Ratio,
    Request,
    Side,
    SiteDelta,
    TokenMap,
    TokenRef,
    Verdict,
)

NAN = math.nan
ASKED = (3, 31, 59)  # boundaries: layers 2, 30, 58
HALF_ULP = 2.0**-9
SOURCE = "fp32 and bf16 by transformers 5.19.0, 3 prompts, 96 tokens"
WORDS = (" the", " hidden", " states", ' of "two"', " engines", "\n", " <part>", "")
NONE = Floor("none", "", NAN, HALF_ULP)


def q(p50: float, spread: float = 1.6) -> Quantiles:
    return Quantiles(p50 / spread, p50, p50 * spread, p50 * spread * 1.2, p50 * spread * 1.5)


def cosines(p50: float) -> Quantiles:
    gap = 1 - p50
    return Quantiles(1 - gap * 2, p50, 1 - gap / 2, 1 - gap / 3, 1 - gap * 3)


def side(role: str, path: str, engine: str, version: str, layers: int = 61, **changes: object) -> Side:
    settings = {
        "mode": "eager",
        "tp": 1,
        "attention": "torch_native" if engine == "sglang" else "default",
        "mechanism": "hooks",
    }
    made = Side(
        role=role,
        path=path,
        engine=engine,
        version=version,
        dtype="bfloat16",
        model="models/deepseek-v3-tiny",
        architecture="DeepseekV3ForCausalLM",
        num_layers=layers,
        hidden_size=256,
        prompts=3,
        tokens=96,
        rows=96,
        sites=tuple(f"boundary.{b:03d}" for b in range(layers + 1)),
        settings=settings,
        environment={"python": "3.11.2", "torch": "2.13.0+cpu", "device": "cpu"},
        native_labels={},
        weights_sha256="9f2c4b7a" * 8,
        created="2026-01-31T10:00:00Z",
    )
    return replace(made, **changes)  # type: ignore[arg-type]


REF = side("ref", "captures/hf-bf16", "hf", "5.19.0")
CAND = side("cand", "captures/vllm-bf16", "vllm", "0.32.0")
FLOORS = (
    side("floor fp32", "captures/hf-fp32", "hf", "5.19.0", dtype="float32"),
    replace(REF, role="floor bf16"),
)


def judged(value: float, of: str, limit: float = 1.5) -> Ratio:
    verdict = Verdict.PARITY if value <= limit else Verdict.DIVERGED
    return Ratio(
        of,
        value,
        value * 0.93,
        value * 1.08,
        limit,
        0,
        0.0,
        0.0,
        verdict,
        f"{of} at {value:.2g} times the floor",
    )


def e0(boundary: int) -> float:
    """A floor that grows with depth, as bf16's does."""
    return max(HALF_ULP / 2, 0.0009 * (1 + boundary) ** 0.65)


def delta(
    boundary: int,
    cand_ratio: float | None = 1.0,
    requested: bool = False,
    ref_ratio: float = 0.97,
    verdict: Verdict | None = None,
    **changes: object,
) -> SiteDelta:
    """A boundary whose pair error is as far over the floor as the candidate's own; None: no floor."""
    site = f"boundary.{boundary:03d}"
    floor = math.sqrt(2) * e0(boundary)
    pair = 1.0 if cand_ratio is None else max(math.hypot(cand_ratio, ref_ratio) / math.sqrt(2), 0.01)
    err = floor * pair
    ratios = (
        ()
        if cand_ratio is None
        else (judged(ref_ratio, "ref"), judged(cand_ratio, "cand"), judged(pair, "pair"))
    )
    if verdict is None:
        verdict = (
            Verdict.INCONCLUSIVE
            if cand_ratio is None
            else max((r.verdict for r in ratios), key=lambda v: v is Verdict.DIVERGED)
        )
    cos = 1 - err * err / 2
    made = SiteDelta(
        ref=site,
        cand=site,
        requested=requested,
        tokens=96,
        metrics={
            "rel_l2": q(err),
            "cosine": cosines(cos),
            "mse": q(err * err),
            "max_abs": q(err * 40),
            "norm_ratio": q(1.0, 1.01),
        },
        rest={"rel_l2": q(err), "cosine": cosines(cos)},
        massive_channels=(7, 91, 200),
        massive_rel_l2=q(err * 0.9),
        sink_tokens=1,
        sink_rel_l2=q(err * 0.8),
        nonfinite=(0, 0),
        bit_equal=0,
        worst=TokenRef("2", 37, 671, err * 2.4, " parity"),
        floor=None if cand_ratio is None else q(floor),
        ratios=ratios,
        verdict=verdict,
        reason={
            Verdict.PARITY: "cand at or under 1.5 times the floor",
            Verdict.DIVERGED: f"cand at {cand_ratio or 0:.2g} times the floor, limit 1.5",
            Verdict.INCONCLUSIVE: "no floor to measure a difference of this size against",
            Verdict.MISSING: "not captured",
        }[verdict],
    )
    return replace(made, **changes)  # type: ignore[arg-type]


def missing(boundary: int, who: str) -> SiteDelta:
    return delta(
        boundary,
        None,
        True,
        verdict=Verdict.MISSING,
        tokens=0,
        metrics={},
        rest={},
        massive_channels=(),
        massive_rel_l2=None,
        sink_tokens=0,
        sink_rel_l2=None,
        worst=None,
        reason=f"boundary {boundary} is not in {who}",
    )


def request(layers: Sequence[int], spelled: str = "") -> Request:
    return Request(
        tuple(layers), tuple(n + 1 for n in layers), spelled or f"--layers {','.join(map(str, layers))}"
    )


def excess_map(
    num_layers: int, columns: int, height: Callable[[int, int], float], pooled: int = 1
) -> np.ndarray:
    grid = [[height(b, t) for t in range(columns)] for b in range(num_layers + 1)]
    return np.round(np.asarray(grid, np.float32), 3)


def ripple(b: int, t: int) -> float:
    """A deterministic wobble in [-1, 1]."""
    return ((b * 7919 + t * 104729) % 1009) / 504.5 - 1


def pair_errors(num_layers: int, offset: int = 0) -> np.ndarray:
    """[K, K]: small on the diagonal that `offset` names, growing away from it."""
    n = num_layers + 1
    rows = [[round(0.003 + 0.09 * abs(r - c - offset) ** 0.6, 4) for c in range(n)] for r in range(n)]
    return np.asarray(rows, np.float32)


def token_map(
    num_layers: int, excess: np.ndarray, undone: np.ndarray | None = None, pooled: int = 1
) -> TokenMap:
    width = excess.shape[1]
    cut = (0, width // 3, 2 * width // 3, width)
    spans = tuple((str(i), cut[i], cut[i + 1]) for i in range(3) if cut[i] < cut[i + 1])
    positions = [(i - start) * pooled for _, start, stop in spans for i in range(start, stop)]
    return TokenMap(
        tuple(range(num_layers + 1)),
        pooled,
        spans,
        excess.astype(np.float16),
        None if undone is None else undone.astype(np.float16),
        positions_c=np.asarray(positions, np.int32),
        ids_c=np.arange(671, 671 + width, dtype=np.int32),
        texts=tuple(WORDS[i % len(WORDS)] for i in range(width)),
    )


def alignment(num_layers: int = 61, offset: int | None = 0, **changes: object) -> Alignment:
    boundaries = tuple(range(num_layers + 1))
    made = Alignment(
        tokens=96,
        prompts=3,
        gaps=(),
        offset=offset,
        offset_testable=offset is not None,
        margin=1.4,
        rows_agreeing=num_layers + 1 - abs(offset or 0),
        slots=(),
        ref_boundaries=boundaries,
        cand_boundaries=boundaries,
        pair_error_kk=pair_errors(num_layers, offset or 0),
    )
    return replace(made, **changes)  # type: ignore[arg-type]


def comparison(verdict: Verdict, headline: str, deltas: Sequence[SiteDelta], **changes: object) -> Comparison:
    asked = [int(d.ref[9:]) - 1 for d in deltas if d.requested and d.ref.startswith("boundary.")]
    made = Comparison(
        schema=SCHEMA,
        hsparity="0.1.0",
        verdict=verdict,
        headline=headline,
        ref=REF,
        cand=CAND,
        others=FLOORS,
        request=request(asked),
        floor=Floor("bf16-reference", SOURCE, 1.5, HALF_ULP, {d.ref: q(e0(i)) for i, d in enumerate(deltas)}),
        deltas=tuple(deltas),
        alignment=alignment(),
        map=None,
        findings=(),
        command=("hsparity", "compare", "captures/hf-bf16", "captures/vllm-bf16", "--layers", "2,30,58"),
    )
    return replace(made, **changes)  # type: ignore[arg-type]


WITHIN = Finding("HS901", "within-noise", "Every compared boundary lies within the floor.", severity="note")
NUMERICS = Finding(
    "HS301",
    "beyond-floor",
    "The candidate drifts from boundary 4 on; no cause is named yet.",
    slots=("boundary.004",),
    evidence=("first beyond the limit at boundary 4", "grows with depth"),
    confirm=("hsparity compare captures/hf-bf16 captures/vllm-bf16 --layers all -v",),
)
RULED_OUT = (
    Finding("HS201", "final-norm-applied", "Undoing the norm brings the two no closer.", 0.0, ruled_out=True),
    Finding("HS401", "tokens-differ", "Token ids are equal on both sides.", 0.0, ruled_out=True),
)
