"""Captions and paragraphs of the HTML page. A caption states what a figure shows, not what it is."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ..model import Comparison, Cost, Finding, TokenMap, Trial, Verdict
from . import findings, pairs, reasons, view
from . import spelling as sp
from .overview import overview

BEYOND = ("HS301", "HS402")  # that something differs: no news beside why
BRANCHES = ("HS204", "HS205")
BRANCH = "What stays is a branch held against a branch, whose own rounding is larger than that of the whole stream."


def title(comparison: Comparison) -> str:
    c = comparison
    model = sp.clean(c.ref.model).rstrip("/").rsplit("/", 1)[-1]
    asked = sp.clean(c.request.spelled).removeprefix("--").replace(",", ", ")
    return (
        f"{c.verdict.value.capitalize()}: {sp.clean(c.ref.engine)} → {sp.clean(c.cand.engine)}, {model}, "
        f"{asked}"
    )


def statement(comparison: Comparison) -> str:
    """The h1 after its verdict word: the leading cause where there is one, else the headline."""
    lead = view.leading(comparison)
    if lead is not None and comparison.verdict is Verdict.DIVERGED:
        why = reasons.surest(comparison)
        if lead.code in BEYOND and why is not None:
            return _sentence(why.headline if why.confidence == "settled" else f"most likely {why.headline}")
        return _sentence(lead.headline)
    return _sentence(view.verdict_line(comparison))


def subtitle(comparison: Comparison) -> str:
    ref, cand = comparison.ref, comparison.cand
    (ref_engine, ref_dtype, _), (cand_engine, cand_dtype, _) = view.side_facts(ref), view.side_facts(cand)
    dtypes = ref_dtype if ref_dtype == cand_dtype else f"{ref_dtype} against {cand_dtype}"
    model = sp.clean(ref.model).rstrip("/").rsplit("/", 1)[-1]
    return (
        f"{ref_engine} (reference) against {cand_engine} (candidate), {model}, {dtypes}, "
        f"{_compared(comparison)}, {sp.count(ref.num_layers, 'layer')}"
    )


def _compared(comparison: Comparison) -> str:
    """3 prompts, 96 tokens; 163 of 475 where the others could not be compared."""
    compared, held = comparison.alignment.tokens, comparison.ref.tokens
    part = f"{compared:,} of {held:,} tokens"
    return (
        f"{sp.count(comparison.alignment.prompts, 'prompt')}, {part}"
        if 0 < compared < held
        else view.compared_words(comparison)
    )


def summary(comparison: Comparison) -> list[str]:
    """Below the h1: what the h1 left unsaid, then every cause; a lone one the h1 says already adds its share."""
    out, causes = [], findings.found(comparison)
    headline = _sentence(view.verdict_line(comparison))
    if headline != statement(comparison):
        out.append(headline)
    for finding, line in zip(causes, findings.summary(comparison), strict=True):
        share = findings.share(comparison, finding)
        if _sentence(finding.headline) == statement(comparison):
            out += [f"{findings.title(finding)} explains {share}."] if share else []
        elif len(causes) > 1 or not view.repeats_headline(comparison, finding):
            out.append(_sentence(line))
    asked = view.requested(comparison)
    if comparison.verdict is Verdict.DIVERGED and asked and not view.beyond_by_number(comparison):
        held = f"{comparison.alignment.tokens:,} of {sp.count(comparison.ref.tokens, 'token')}"
        if all(d.verdict is Verdict.PARITY for d in asked):
            out.append(
                f"Where both sides hold states, {held}, all {sp.count(len(asked), 'requested site')} are at parity."
            )
        elif comparison.floor.kind == "none":
            out.append(
                "The numbers alone decide nothing here, for want of a floor; what is said above is proved without one."
            )
    if comparison.verdict is Verdict.PARITY:
        out.append(f"Compared: {view.requested_words(comparison)}. Floor: {view.floor_line(comparison)}.")
    return out


def error_caption(comparison: Comparison) -> str:
    """From the data: how far the requested sites stand from the floor, and where the shift brings them."""
    ratios = [r for d in view.requested(comparison) if not math.isnan(r := view.worst_ratio(d))]
    if not ratios:
        return "Median relative L2 over tokens. There is no floor to measure it against."
    low, high = sp.ratio(min(ratios)), sp.ratio(max(ratios))
    span = f"{low}" if low == high else f"{low} to {high}"
    words = f"By their worst figure the requested sites stand at {span} times the floor; the limit is {_limit(comparison)}."
    lead = view.leading(comparison)
    left = [d for d in view.requested(comparison) if d.undone is not None and d.tokens]
    if lead is None or not left:
        return words
    if lead.rows and max(ratios) <= comparison.floor.limit:
        return f"{words} A median over tokens does not show rows that are not their own; the maps below do."
    inside = sum(d.floor is not None and d.undone.p50 <= d.floor.p99 for d in left if d.undone)
    words += (
        f" Dashed: the same data with {findings.title(lead)} undone, which brings {inside} of "
        f"{sp.count(len(left), 'requested site')} into the floor."
    )
    return f"{words} {BRANCH}" if inside < len(left) and lead.code in BRANCHES else words


def ratio_caption(comparison: Comparison) -> str:
    beyond = {}
    for of in ("ref", "cand", "pair"):
        judged = [r for d in comparison.deltas if (r := view.ratio_of(d, of)) is not None]
        if judged:
            beyond[of] = (sum(r.median > r.limit for r in judged), len(judged))
    names = {"ref": "the reference", "cand": "the candidate", "pair": "the pair"}
    parts = [f"{names[of]} is beyond the limit at {n} of {total} sites" for of, (n, total) in beyond.items()]
    asked = [r for d in view.requested(comparison) for r in view.main_ratios(d)]
    if any(n for n, _ in beyond.values()) and asked and not any(r.median > r.limit for r in asked):
        parts.append("none of those beyond was asked for")
    return ("Each error over the floor: " + ", ".join(parts) + ".") if parts else ""


def _leftover(comparison: Comparison, lead: Finding, left: int) -> str:
    """What the marks are that stay when the leading cause is undone."""
    if not left:
        return ""
    if lead.code in BRANCHES:
        return f". {BRANCH[:-1]}"
    if comparison.floor.kind == "none":
        return ", which no floor tells from noise"
    known = [d for d in view.requested(comparison) if d.undone is not None and d.floor is not None]
    limit = comparison.floor.limit
    tails = [d.undone.worst <= limit * d.floor.worst for d in known if d.undone and d.floor]
    if tails and all(tails):
        return ": single tokens, none farther than the floor's own tail reaches"
    return ""


def added_caption(comparison: Comparison) -> str:
    """What the plot of added errors shows, and what it rests on."""
    beyond = [e for e in comparison.added if e.verdict is Verdict.DIVERGED]
    if comparison.added:
        places = dict.fromkeys(
            f"layer {e.layer}{f' ({e.part})' if e.part != 'layer' else ''} of the "
            f"{'reference' if e.side == 'ref' else 'candidate'}"
            for e in beyond
        )
        shown = list(places)[:6]
        more = f" and {len(places) - 6} more" if len(places) > 6 else ""
        said = f"Beyond it: {', '.join(shown)}{more}." if shown else "None is beyond it."
        return (
            "Each layer, and each part of it, replayed in float32 from the checkpoint on the captured input: the error "
            f"that it adds over what rounding adds there. {said}"
        )
    return (
        "The error of each layer's update over the same error of bf16, estimated from the captured states of a sample of "
        "tokens; hsparity compare --replay measures it from the checkpoint, part by part."
    )


def trials_caption(trials: Sequence[Trial]) -> str:
    """How much the best single experiment took away, and what could not be tried."""
    measured = [t for t in trials if t.share is not None]
    other = len(trials) - len(measured)
    words = "Share of the excess that went away when an engine was started again with other settings."
    if measured:
        best = max(measured, key=lambda t: t.share or 0.0)
        words += f" The most, {sp.percent(best.share)}: {' and '.join(sp.clean(t) for t in best.turned)}."
    return words + (f" {other} more could not be measured." if other else "")


def cost_caption(cost: Cost) -> str:
    """The draft, what it loses, and within what bounds."""
    draft = sp.clean(cost.draft).rstrip("/").rsplit("/", 1)[-1]
    said = _sentence(cost.headline)
    if cost.low is None or cost.high is None:
        return f"{draft}: {said}"
    return f"{draft}: {said} The loss lies between {cost.low:.2f} and {cost.high:.2f} (95 %, over prompts)."


def token_caption(comparison: Comparison, tokens: TokenMap) -> str:
    tokens, low = overview(tokens), view.map_limit(comparison)
    over = (
        "the floor's median"
        if tokens.relative_to == "floor"
        else "the storage half-ulp, as there is no floor"
    )
    times = f"{sp.ratio(10**low)} times " if low else ""
    words = [f"Rows are boundaries, columns tokens. Blank means within {times}{over}."]
    lead = view.leading(comparison)
    if tokens.undone_kc is not None and lead is not None:
        left = _columns_beyond(tokens.undone_kc, low)
        what = (
            "one column is left" if left == 1 else f"{left:,} columns are left" if left else "nothing is left"
        )
        words.append(
            f"Top: as claimed. Bottom: with {sp.clean(lead.code)} undone, {what}{_leftover(comparison, lead, left)}."
        )
    else:
        n = _columns_beyond(tokens.excess_kc, low)
        columns = sp.count(tokens.excess_kc.shape[1], "column")
        words.append(f"{n:,} of {columns} {'has' if n == 1 else 'have'} a mark.")
        if n and not view.beyond_by_number(comparison) and tokens.relative_to == "floor":
            words.append("Single tokens stand out in the floor as well; their number is within its own.")
    if tokens.column_tokens > 1:
        words.append(f"Each column shows the largest of {tokens.column_tokens} tokens.")
    return " ".join(words)


def pair_caption(comparison: Comparison) -> str:
    a, claimed = pairs.boundary_pairs(comparison), comparison.request.offset
    if not a.offset_testable or a.offset is None:
        return (
            "Error of every pairing that was captured. One side holds no neighbours, so an offset is not "
            "testable."
        )
    fits, total = pairs.fitting(a, a.offset)
    columns = f"{fits} of {sp.count(total, 'candidate boundary', 'candidate boundaries')}"
    if a.offset == claimed:
        return f"Error of every pairing. The claimed partner fits best for {columns}."
    steps = sp.count(abs(a.offset - claimed), "step")
    return f"Error of every pairing. The partner {steps} beside the claimed one fits best for {columns}."


def method(comparison: Comparison) -> str:
    """One paragraph that names the floor."""
    c, floor = comparison, comparison.floor
    common = (
        "Every figure is a median or quantile over tokens; nothing is a mean over the tensor. Differences "
        "are taken in fp32 and summed in fp64; "
        "rel-L2 is the norm of the difference over the norm of the reference. Massive channels (the top 1 "
        "% by RMS) and sink tokens "
        "(ten times the median norm) are also measured apart. Boundary r is the residual stream after r "
        "decoder layers; layer N is boundary N+1."
    )
    by_kind = {
        "bf16-reference": (
            f"The floor is what bf16 arithmetic alone costs: {sp.clean(floor.source)}. e0 is the error of "
            "bf16 to fp32 at each boundary. Each side is "
            "judged by its own error to fp32 over e0, the pair by its error over √2 e0, as "
            f"distributions; the limit is {_limit(c)}, and intervals are 95 %."
        ),
        "repeat": (
            f"The floor is {sp.clean(floor.source)}. Repeats of one engine can show parity; they cannot "
            "accuse another engine, whose kernels round elsewhere."
        ),
        "bit-equal": f"The floor is bit equality: {sp.clean(floor.source)}.",
        "tolerance": (
            f"There is no floor; every token was held to the tolerance given, rel-L2 {sp.error(floor.limit)}."
        ),
        "none": (
            "There is no floor, so a difference cannot be told from noise; only findings proved by their "
            "margin decide."
        ),
    }
    return (
        f"{by_kind.get(floor.kind, sp.clean(floor.source))} No floor is taken below "
        f"{sp.error(floor.resolution)}, half a unit in the last place of the storage dtype. {common}"
    )


def limits(comparison: Comparison) -> str:
    """What the result does not say: of any comparison, and of this one."""
    c = comparison
    words = [
        f"Only what both sides captured was compared: {view.compared_words(c)}, {sp.count(len(c.deltas), 'site')}; of anything "
        "else this says nothing.",
        "A cause is named where the data single it out among those that hsparity knows; a setting that differs is not a cause "
        "by itself.",
    ]
    if not c.alignment.offset_testable:
        words.append("One side holds no neighbouring layers, so a shift of layers could not be tested.")
    if any(f.severity == "hypothesis" and not f.ruled_out and f.confidence != "settled" for f in c.findings):
        words.append("A hypothesis is settled by an experiment or a replay, not by captures alone.")
    if c.map is not None and c.map.column_tokens > 1:
        words.append("The map is pooled by maximum: a mark says that one of several tokens stands out.")
    return " ".join(words)


def _sentence(text: str) -> str:
    """Foreign text with a capital first and a full stop last."""
    text = sp.clean(text).strip()
    return text[:1].upper() + text[1:] + ("" if text[-1:] in ".!?" else ".")


def _limit(comparison: Comparison) -> str:
    return sp.ratio(comparison.floor.limit)


def _columns_beyond(excess_kc: np.ndarray, low: float) -> int:
    return int((excess_kc > low).any(axis=0).sum())
