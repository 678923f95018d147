"""What a capture must satisfy before it is called complete, measured per prompt and judged over all of them.

Errors are relative L2 per token, limits come in half-ulps of the storage dtype (2**-9 for bf16). One rounding
to nearest changes an element by at most 2 half-ulps of its own size, hence a row by at most that in relative
L2, however few channels carry it. So a limit counts the roundings by which healthy kernels differ:

* final-norm, 3: engines that fuse the add norm the unrounded float32 sum, the capture holds the rounded one;
  some kernels then round after the division and again after the weight.
* embedding, 1 where the model multiplies its embedding; else the rows are bit-equal.
* native-matches-hooks, 2: SGLang's aux states are a float32 add rounded once, a hook's an add in the
  stream's dtype.
* parts, 1: hidden + residual against the boundary.

float32 sums over H channels add their own error, sqrt(H) x 2**-24.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from .assemble import Assembled
from .schema import Check, Site
from .stack import rms_norm

HALF_ULP = {torch.bfloat16: 2.0**-9, torch.float16: 2.0**-12, torch.float32: 2.0**-25}
INFINITY_BITS = {torch.bfloat16: 0x7F80, torch.float16: 0x7C00, torch.float32: 0x7F800000}
ROUNDING = 2.0  # half-ulps that one rounding may cost
LIMITS = {
    "final-norm": 3 * ROUNDING,
    "embedding": ROUNDING,
    "native-matches-hooks": 2 * ROUNDING,
    "parts": ROUNDING,
}
STREAM_KINDS = ("boundary", "residual", "final_norm")  # never zero in a whole row
ZERO_SHARE = 0.5  # of rows, for branch outputs, which may legitimately vanish
ROWS_SAMPLED = 32  # per prompt, for the search over boundaries: 62 of them at H 7168 take 57 MB in float32


@dataclass(frozen=True)
class Reference:
    """What the model process left to check against; None where it has none."""

    num_layers: int
    norm_h: torch.Tensor | None = None  # float32 [H]
    norm_eps: float = 0.0
    norm_plus_one: bool = False
    embedding_ids: torch.Tensor | None = None  # int32 [n], ascending
    embedding_nh: torch.Tensor | None = None  # [n, H]
    multipliers: tuple[float, ...] = (1.0,)  # what the model may scale its embedding by
    native_labels: Mapping[str, str] = field(default_factory=dict)


def measure(rows: Assembled, cached_tokens: int, reference: Reference) -> dict[str, Any]:
    """One prompt's figures, plain JSON, kept in the journal so that a resumed capture is judged whole."""
    sites = rows.sites
    bits = {key: _largest_bits(tensor) for key, tensor in sites.items() if tensor.dtype in INFINITY_BITS}
    figures: dict[str, Any] = {
        "prompt": rows.prompt.id,
        "rows": len(rows.positions),
        "due": max(rows.prompt.tokens - cached_tokens, 0),
        "partial": rows.dropped.partial,
        "nonfinite": {key: n for key, bits_n in bits.items() if (n := _nonfinite(sites[key], bits_n))},
        "zero": _zero_rows(rows, bits, reference),
        "repeated": _repeated(sites, reference.num_layers),
    }
    last = Site("boundary", reference.num_layers).key
    if reference.norm_h is not None and last in sites and "final_norm" in sites:
        want_nh = rms_norm(sites[last], reference.norm_h, reference.norm_eps, reference.norm_plus_one)
        figures["final-norm"] = _worst(sites["final_norm"], want_nh)
    if "boundary.000" in sites and reference.embedding_ids is not None and reference.embedding_nh is not None:
        figures["embedding"] = _embedding(rows, reference)
    figures["parts"] = _parts(sites)
    figures["native"] = _native(sites, reference)
    return {key: value for key, value in figures.items() if value not in ({}, None)}


def judge(figures: Sequence[Mapping[str, Any]], reference: Reference, hidden: int) -> tuple[Check, ...]:
    """One Check per property that could be tested, over all prompts."""
    checks = [_judge_rows(figures), _judge_zero(figures)]
    slack = math.sqrt(hidden) * 2.0**-24
    for name, detail in (
        ("final-norm", "final_norm = norm(boundary L) recomputed in float32"),
        ("embedding", "boundary 0 = embedding rows of the token ids"),
        ("parts", "hidden + residual = boundary"),
    ):
        found = [(f[name], f["prompt"]) for f in figures if name in f]
        if found:
            worst, prompt = max(found, key=lambda pair: pair[0]["error"] / pair[0]["half_ulp"])
            extra = f" times {worst['multiplier']:.6g}" if worst.get("multiplier", 1.0) != 1.0 else ""
            checks.append(_check(name, f"{detail}{extra}; {worst['where']}, prompt {prompt!r}", worst, slack))
    checks += _judge_native(figures, reference, slack)
    return tuple(checks)


def warnings(figures: Iterable[Mapping[str, Any]]) -> list[str]:
    """What a reader of the capture should know although nothing failed."""
    figures = list(figures)
    found: list[str] = []
    nonfinite: dict[str, int] = {}
    for figure in figures:
        for key, count in figure.get("nonfinite", {}).items():
            nonfinite[key] = nonfinite.get(key, 0) + count
    if nonfinite:
        worst = max(nonfinite, key=lambda key: nonfinite[key])
        total = sum(nonfinite.values())
        found.append(
            f"{total} NaN or Inf elements in {len(nonfinite)} sites, most in {worst} ({nonfinite[worst]})"
        )
    if partial := sum(figure.get("partial", 0) for figure in figures):
        found.append(f"{partial} positions dropped: some sites had a row there, others none")
    repeated = sorted({pair for figure in figures for pair in figure.get("repeated", ())})
    if repeated:
        found.append(
            f"neighbouring boundaries hold the same bytes: {', '.join(repeated[:4])} (an aliased capture?)"
        )
    return found


def relative_errors(got_nh: torch.Tensor, want_nh: torch.Tensor) -> torch.Tensor:
    """Relative L2 per token, float32 [n] or [k, n]; NaN or Inf where a row of either is not finite."""
    got_nh, want_nh = got_nh.float(), want_nh.float()
    error_n = torch.linalg.vector_norm(got_nh - want_nh, dim=-1)
    return error_n / torch.linalg.vector_norm(want_nh, dim=-1).clamp_min(torch.finfo(torch.float32).tiny)


def _largest_bits(tensor: torch.Tensor) -> torch.Tensor:
    """Each row's largest magnitude as an integer: 0 for a zero row, from INFINITY_BITS on not finite.

    Ordered as the floats are, read in one pass, ten times faster than isfinite and == 0 on bf16.
    """
    integer = torch.int32 if tensor.element_size() == 4 else torch.int16
    return (tensor.flatten(1).view(integer) & torch.iinfo(integer).max).amax(-1)


def _nonfinite(tensor: torch.Tensor, bits_n: torch.Tensor) -> int:
    suspect = tensor[bits_n >= INFINITY_BITS[tensor.dtype]]
    return int(suspect.numel() - torch.isfinite(suspect).sum())


def _worst(got_nh: torch.Tensor, want_nh: torch.Tensor, where: str = "") -> dict[str, Any] | None:
    """The worst token's error and its half-ulp; None when no row is finite."""
    error_n = relative_errors(got_nh, want_nh)
    finite_n = torch.isfinite(error_n)
    if not bool(finite_n.any()):
        return None
    row = int(torch.where(finite_n, error_n, -1.0).argmax())
    place = f"worst row {row}" + (f" of {where}" if where else "")
    return {"error": float(error_n[row]), "half_ulp": HALF_ULP.get(got_nh.dtype, 2.0**-25), "where": place}


def _embedding(rows: Assembled, reference: Reference) -> dict[str, Any] | None:
    assert reference.embedding_ids is not None
    assert reference.embedding_nh is not None
    ids_n = rows.token_ids[rows.positions.long()]
    index_n = torch.searchsorted(reference.embedding_ids, ids_n).clamp_max(len(reference.embedding_ids) - 1)
    known_n = reference.embedding_ids[index_n] == ids_n
    if not bool(known_n.any()):
        return None
    got_nh, want_nh = rows.sites["boundary.000"][known_n], reference.embedding_nh[index_n[known_n]]
    measured = [
        {**worst, "multiplier": multiplier}
        for multiplier in reference.multipliers
        if (worst := _worst(got_nh, want_nh.float() * multiplier))
    ]
    return min(measured, key=lambda worst: worst["error"], default=None)


def _parts(sites: Mapping[str, torch.Tensor]) -> dict[str, Any] | None:
    found = []
    for key, boundary_nh in sites.items():
        kind, _, index = key.partition(".")
        hidden_nh, residual_nh = sites.get(f"hidden.{index}"), sites.get(f"residual.{index}")
        if kind == "boundary" and hidden_nh is not None and residual_nh is not None:
            found.append(_worst(boundary_nh, hidden_nh.float() + residual_nh.float(), key))
    return max((worst for worst in found if worst), key=lambda worst: worst["error"], default=None)


def _native(sites: Mapping[str, torch.Tensor], reference: Reference) -> dict[str, Any]:
    """Median error of each slot to each stream site, on up to ROWS_SAMPLED rows spread over the prompt."""
    streams = [k for k in sites if k.startswith("boundary.") or k == "final_norm"]
    slots = [
        k for k in sites if k.startswith("slot.") and streams and sites[k].shape == sites[streams[0]].shape
    ]
    if not slots:
        return {}
    step = -(-sites[streams[0]].shape[0] // ROWS_SAMPLED) or 1
    stream_knh = torch.stack([sites[key][::step].float() for key in streams])
    found: dict[str, Any] = {}
    for slot in slots:
        median_k = relative_errors(sites[slot][::step], stream_knh).nanmedian(-1).values.tolist()
        errors = {key: error for key, error in zip(streams, median_k, strict=True) if math.isfinite(error)}
        if errors:
            found[slot] = {"errors": errors, "half_ulp": HALF_ULP.get(sites[slot].dtype, 2.0**-25)}
    return found


def _zero_rows(rows: Assembled, bits: Mapping[str, torch.Tensor], reference: Reference) -> dict[str, int]:
    """All-zero rows per site, except where the token's own embedding is zero (an untrained pad token).

    The rows of the embedding table were saved before anything was decoded; of a decoded token without one it is
    not known whether boundary 0 may be zero.
    """
    ids = rows.token_ids[rows.positions.long()]
    excused_n = unknown_n = torch.zeros(len(ids), dtype=torch.bool)
    if reference.embedding_ids is not None and reference.embedding_nh is not None:
        excused_n = torch.isin(ids, reference.embedding_ids[(reference.embedding_nh == 0).all(-1)])
        unknown_n = ~torch.isin(ids, reference.embedding_ids)
    found = {}
    for key, bits_n in bits.items():
        allowed_n = excused_n | unknown_n if key == Site("boundary", 0).key else excused_n
        if count := int(((bits_n == 0) & ~allowed_n).sum()):
            found[key] = count
    return found


def _repeated(sites: Mapping[str, torch.Tensor], num_layers: int) -> list[str]:
    found = []
    for index in range(num_layers):
        lower, upper = (Site("boundary", i).key for i in (index, index + 1))
        one, other = sites.get(lower), sites.get(upper)
        # The first row settles nearly every pair, without reading the rest.
        if (
            one is not None
            and other is not None
            and torch.equal(one[:1], other[:1])
            and torch.equal(one, other)
        ):
            found.append(f"{lower} and {upper}")
    return found


def _judge_rows(figures: Sequence[Mapping[str, Any]]) -> Check:
    short = [f for f in figures if f["rows"] < f["due"]]
    got, due = sum(f["rows"] for f in figures), sum(f["due"] for f in figures)
    detail = f"{got} rows captured, {due} computed by the engine's own count"
    if short:
        first = short[0]
        detail += f"; prompt {first['prompt']!r} has {first['rows']} of {first['due']}"
    return Check("rows", not short, detail, float(max(due - got, 0)), 0.0)


def _judge_zero(figures: Sequence[Mapping[str, Any]]) -> Check:
    for figure in figures:
        for key, count in figure.get("zero", {}).items():
            allowed = 0 if key.split(".")[0] in STREAM_KINDS else int(figure["rows"] * ZERO_SHARE)
            if count > allowed:
                detail = (
                    f"prompt {figure['prompt']!r}: {count} of {figure['rows']} rows of {key} are all zero"
                )
                return Check("zero-rows", False, detail, float(count), float(allowed))
    return Check("zero-rows", True, "no site has rows that nothing was written to")


def _judge_native(figures: Sequence[Mapping[str, Any]], reference: Reference, slack: float) -> list[Check]:
    """One Check per slot: which site it is, by what margin. Fails only where all boundaries are there."""
    slots = sorted({slot for f in figures for slot in f.get("native", {})})
    checks = []
    for slot in slots:
        seen = [f["native"][slot] for f in figures if slot in f.get("native", {})]
        keys = set.intersection(*(set(s["errors"]) for s in seen))
        errors = sorted((max(s["errors"][key] for s in seen), key) for key in keys)
        if not errors:
            continue
        (best, key), rest = errors[0], errors[1:]
        limit = LIMITS["native-matches-hooks"] * seen[0]["half_ulp"] + slack
        whole = sum(k.startswith("boundary.") for k in keys) == reference.num_layers + 1
        label = reference.native_labels.get(slot, "no label")
        if best <= limit:
            detail = f"{slot} ({label}) is {key}"
            if rest:
                margin = math.log10(rest[0][0] / max(best, seen[0]["half_ulp"])) if rest[0][0] > 0 else 0.0
                detail += f", runner-up {rest[0][1]} at {rest[0][0]:.2g} (margin {margin:.1f} decades)"
        elif whole:
            detail = f"{slot} ({label}) is no boundary of this model; nearest {key}"
        else:
            detail = f"{slot} ({label}) matches none of the {len(keys)} captured sites; nearest {key}"
        checks.append(Check("native-matches-hooks", best <= limit or not whole, detail, best, limit))
    return checks


def _check(name: str, detail: str, worst: Mapping[str, Any], slack: float) -> Check:
    limit = LIMITS[name] * worst["half_ulp"] + slack
    return Check(name, worst["error"] <= limit, detail, worst["error"], limit)
