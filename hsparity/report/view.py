"""What the reports say about a Comparison: facts and sentences that terminal, HTML and Markdown share."""

from __future__ import annotations

import math
import shlex
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ..model import (
    Comparison,
    Cost,
    Finding,
    Quantiles,
    Ratio,
    Side,
    SiteDelta,
    SlotMatch,
    TokenRef,
    Verdict,
)
from . import spelling as sp

NOTHING = Quantiles(*[math.nan] * 5)
SHIFT = "HS101"
REDACTED = "redacted: prompts, token texts and ids, paths and names of models and machines were taken out"
FEW = 12  # rows of a table shown unless all are asked for
_DTYPES = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32"}
FLOOR_WORDS = {
    "bf16-reference": "what bf16 arithmetic alone costs",
    "repeat": "repeats of one engine",
    "bit-equal": "bit equality",
    "tolerance": "the tolerance given",
    "none": "none",
}
# In the source of a floor that is more than a repeat: one thing was changed.
OWN_FLOORS = ("another batch shape of the ", "prefill against decode of the ", "other chunks of the ")


def place(site: str) -> tuple[str, str]:
    """(layer, boundary) of a site key: boundary.031 is ("30", "31"), boundary.000 is ("embed", "0")."""
    kind, _, index = site.partition(".")
    if not index.isdigit():
        return kind.replace("_", " "), "-"
    if kind != "boundary":
        return f"{kind} {int(index)}", "-"
    return (str(int(index) - 1) if int(index) else "embed"), str(int(index))


def boundary_of(site: str) -> int | None:
    """The boundary a site key names, or None for another kind of site."""
    return int(site[9:]) if site.startswith("boundary.") and site[9:].isdigit() else None


def place_words(site: str) -> str:
    """layer 30, boundary 31; boundary 0, the embeddings; final norm."""
    layer, boundary = place(site)
    if boundary == "0":
        return "boundary 0, the embeddings"
    return layer if boundary == "-" else f"layer {layer}, boundary {boundary}"


def ratio_of(delta: SiteDelta, of: str) -> Ratio | None:
    return next((r for r in delta.ratios if r.of == of), None)


def rel_l2(delta: SiteDelta) -> Quantiles:
    return delta.metrics.get("rel_l2", NOTHING)


def main_ratios(delta: SiteDelta) -> tuple[Ratio, ...]:
    """The ratios over all channels and tokens; those "rest" leave massive channels and sink tokens out."""
    return tuple(r for r in delta.ratios if r.of in ("ref", "cand", "pair"))


def worst_ratio(delta: SiteDelta) -> float:
    """The largest of the ratios' medians; falls back on rel-L2 over the floor; NaN without a floor."""
    medians = [r.median for r in delta.ratios if math.isfinite(r.median)]
    if medians:
        return max(medians)
    if delta.floor is not None and delta.floor.p50 > 0:
        return rel_l2(delta).p50 / delta.floor.p50
    return math.nan


def excess(delta: SiteDelta, comparison: Comparison) -> float:
    """log10 of the pair's median error over the floor, or over the storage half-ulp where there is none."""
    pair, value = ratio_of(delta, "pair"), math.nan
    if pair is not None:
        value = pair.median
    elif delta.floor is not None and delta.floor.p50 > 0:
        value = rel_l2(delta).p50 / delta.floor.p50
    elif comparison.floor.resolution > 0:
        value = rel_l2(delta).p50 / comparison.floor.resolution
    if math.isnan(value):
        return math.nan
    return math.log10(value) if value > 0 else -math.inf


def within(delta: SiteDelta, comparison: Comparison) -> bool:
    """Whether the pair's median error is at or under the limit."""
    limit = comparison.floor.limit
    return excess(delta, comparison) <= (
        math.log10(limit) if comparison.floor.kind != "tolerance" and limit > 0 else 0
    )


def map_limit(comparison: Comparison) -> float:
    """The log10 excess up to which a cell of the token map is within: the limit; 0 without a floor."""
    tokens, floor = comparison.map, comparison.floor
    if tokens is None or tokens.relative_to != "floor" or floor.kind in ("none", "tolerance"):
        return 0.0
    return min(math.log10(floor.limit), 0.9) if floor.limit > 1 and math.isfinite(floor.limit) else 0.0


def token_heights(comparison: Comparison) -> tuple[list[float], list[tuple[int, str]]]:
    """Per column of the map the median log10 excess over the requested boundaries, 0 where within, and where each
    prompt starts."""
    tokens, limit = comparison.map, map_limit(comparison)
    if tokens is None or not tokens.excess_kc.size:
        return [], []
    asked = [i for i, b in enumerate(tokens.boundaries) if b in comparison.request.boundaries]
    chosen = tokens.excess_kc[asked] if asked else tokens.excess_kc
    known = np.isfinite(chosen).any(axis=0)
    median = np.full(chosen.shape[1], math.nan)
    median[known] = np.nanmedian(chosen[:, known], axis=0)
    heights = [v if math.isnan(v) or v > limit else 0.0 for v in median.tolist()]
    return heights, [(start, prompt) for prompt, start, _ in tokens.prompts]


def requested(comparison: Comparison) -> tuple[SiteDelta, ...]:
    return tuple(d for d in comparison.deltas if d.requested)


def leading(comparison: Comparison) -> Finding | None:
    """The first cause that is not ruled out."""
    return next((f for f in comparison.findings if f.severity == "cause" and not f.ruled_out), None)


def repeats_headline(comparison: Comparison, finding: Finding) -> bool:
    """Whether the finding's headline is the comparison's, but for capital and full stop."""
    return finding.headline.strip(". ").lower() == comparison.headline.strip(". ").lower()


def causes(comparison: Comparison) -> tuple[Finding, ...]:
    return tuple(f for f in comparison.findings if f.severity == "cause")


def notes(comparison: Comparison) -> tuple[Finding, ...]:
    return tuple(f for f in comparison.findings if f.severity == "note" and not f.ruled_out)


def shift(comparison: Comparison) -> int | None:
    """The offset that fits better than the claimed one, when a layer-offset finding leads and a requested boundary
    was captured at it."""
    lead, best = leading(comparison), comparison.alignment.offset
    if lead is None or lead.code != SHIFT or best is None or best == comparison.request.offset:
        return None
    known = any(not math.isnan(_at_offset(comparison, d, best)) for d in requested(comparison))
    return best if known else None


def shifted_error(comparison: Comparison, delta: SiteDelta) -> float:
    """Median rel-L2 of `delta`'s reference boundary at the better offset; NaN where none was captured."""
    offset = shift(comparison)
    return math.nan if offset is None else _at_offset(comparison, delta, offset)


def _at_offset(comparison: Comparison, delta: SiteDelta, offset: int) -> float:
    boundary, matrix = boundary_of(delta.ref), comparison.alignment
    if boundary is None:
        return math.nan
    try:
        row = matrix.ref_boundaries.index(boundary)
        column = matrix.cand_boundaries.index(boundary - offset)
    except ValueError:
        return math.nan
    return float(matrix.pair_error_kk[row, column])


def requested_words(comparison: Comparison) -> str:
    """Both numberings: layers 2,30,58 = boundaries 3,31,59."""
    layers, boundaries = comparison.request.layers, comparison.request.boundaries
    if not boundaries:
        return "no layer or boundary"
    real = tuple(n for n in layers if n >= 0)
    words = [f"{'layer' if len(real) == 1 else 'layers'} {sp.numbers(real)}"] if real else []
    if len(real) < len(layers):
        words.append("the embeddings")
    noun = "boundary" if len(boundaries) == 1 else "boundaries"
    return f"{' and '.join(words)} = {noun} {sp.numbers(boundaries)}"


def verdict_line(comparison: Comparison) -> str:
    """The headline, and what it costs the draft head that was named."""
    return with_cost(comparison.headline or "no statement", comparison.cost)


def with_cost(text: str, cost: Cost | None) -> str:
    """A headline, and after it what the difference costs the draft head that was named."""
    if cost is None:
        return text
    undone = ", ".join(f"{value:.2f} with {code} undone" for code, value in cost.undone.items())
    draft = cost.draft.rstrip("/").rsplit("/", 1)[-1]
    return f"{text.rstrip('.')}. For the draft {draft}, {cost.headline}{f'; {undone}' if undone else ''}."


def floor_line(comparison: Comparison) -> str:
    """Name, source and limit of the floor in one sentence part."""
    floor = comparison.floor
    if floor.kind == "none":
        return "none"
    name = FLOOR_WORDS.get(floor.kind, floor.kind)
    if floor.kind == "repeat" and any(words in floor.source for words in OWN_FLOORS):
        name = "one engine against itself"
    limit = (
        f"limit {sp.error(floor.limit)}" if floor.kind == "tolerance" else f"limit {sp.ratio(floor.limit)}"
    )
    return f"{name} ({', '.join(p for p in (sp.clean(floor.source), limit) if p)})"


def side_facts(side: Side) -> tuple[str, str, str]:
    """(engine and version, dtype, what makes this side's run its own)."""
    mechanism, mode, ranks = (side.settings.get(k) for k in ("mechanism", "mode", "tp"))
    own = [str(v) for v in (mode, mechanism) if v not in (None, "", "hooks")]
    if ranks not in (None, 1):
        own.append(f"tp={ranks}")
    return (
        sp.clean(f"{side.engine} {side.version}".strip()),
        sp.clean(_DTYPES.get(side.dtype, side.dtype)),
        sp.clean(" ".join(own)),
    )


def scope(comparison: Comparison) -> str:
    """What was run, so that nobody takes a small test for a large one: passes, device, path, patches."""
    sides = {"reference": comparison.ref, "candidate": comparison.cand}
    words = []
    if all(s.settings.get("generate", "") in (0, None) for s in sides.values()):
        words.append("prefill only")
    devices = dict.fromkeys(
        sp.clean(str(s.environment["device"])) for s in sides.values() if s.environment.get("device")
    )
    if devices:
        words.append(f"on {' and '.join(devices)}")
    if all(s.settings.get("tp") == 1 for s in sides.values()):
        words.append("one rank a side")
    for name, side in sides.items():
        patched = side.settings.get("shims")
        if isinstance(patched, (list, tuple)) and patched:
            words.append(
                f"the {name} with {', '.join(sp.clean(str(p)) for p in patched)} in place of parts of its own"
            )
    return "; ".join(words)


def beyond_by_number(comparison: Comparison) -> bool:
    """Whether the numbers of a requested site are beyond what is allowed, whatever else is wrong."""
    return any(
        d.verdict is Verdict.DIVERGED and any(r.verdict is Verdict.DIVERGED for r in d.ratios)
        for d in requested(comparison)
    )


def token_words(token: TokenRef) -> str:
    """Where a token is and what it says: prompt 3, position 37, id 671 (" parity")."""
    text = f" ({sp.quoted(token.text)})" if token.text else ""
    ident = f", id {token.token_id}" if token.token_id >= 0 else ""  # below 0: redacted
    return f"prompt {sp.clean(token.prompt)}, position {token.position}{ident}{text}"


def worst_token_words(delta: SiteDelta) -> str:
    """The worst token of a site whose `worst` is known."""
    if delta.worst is None:
        return ""
    return (
        f"worst token at {place_words(delta.ref)}: {token_words(delta.worst)}, rel-L2 "
        f"{sp.error(delta.worst.value)}"
    )


def farthest(comparison: Comparison) -> SiteDelta | None:
    """The requested site that holds the token with the largest error of all."""
    known = [d for d in requested(comparison) if d.worst is not None]
    return max(known, key=lambda d: d.worst.value if d.worst else 0.0, default=None)


def worst_requested(comparison: Comparison) -> SiteDelta | None:
    """The requested site that stands worst: by ratio, without a floor by error."""
    measured = [d for d in requested(comparison) if d.tokens and not math.isnan(rel_l2(d).p50)]
    if not measured:
        return None

    def badness(delta: SiteDelta) -> tuple[float, float]:
        # By the ratios that are printed beside it.
        shown = replace(delta, ratios=main_ratios(delta))
        return (np.nan_to_num(worst_ratio(shown), nan=0.0), rel_l2(delta).p50)

    return max(measured, key=badness)


def apart(delta: SiteDelta) -> bool:
    """Whether a few channels or tokens hide or fake a difference."""
    rest, whole = delta.rest.get("rel_l2", NOTHING).p50, rel_l2(delta).p50
    if rest > 0 and whole > 0 and not 0.5 <= whole / rest <= 2:
        return True
    if any(r.of.endswith(" rest") and r.verdict is Verdict.DIVERGED for r in delta.ratios):
        return True
    parts = (delta.massive_rel_l2, delta.sink_rel_l2)
    return any(part is not None and rest > 0 and part.p50 / rest > 2 for part in parts)


def apart_rows(comparison: Comparison) -> tuple[SiteDelta, ...]:
    """Requested sites of which parts tell another story: a question of numbers, which a proved cause leaves unasked."""
    lead = leading(comparison)
    if lead is not None and lead.structural:
        return ()
    return tuple(d for d in requested(comparison) if d.tokens and apart(d))


def native_slots(comparison: Comparison) -> tuple[SlotMatch, ...]:
    """What an engine handed over under its own label, and where the data put it."""
    return tuple(s for s in comparison.alignment.slots if s.cand.startswith("slot.") or s.side != "cand")


def slots_moved(comparison: Comparison) -> tuple[SlotMatch, ...]:
    return tuple(s for s in comparison.alignment.slots if s.claimed is not None and s.claimed != s.best)


def warnings(comparison: Comparison) -> tuple[str, ...]:
    """Self-check warnings of every side, and token gaps."""
    sides = (comparison.ref, comparison.cand, *comparison.others)
    out = [f"{s.role}: {sp.clean(w)}" for s in sides for w in s.warnings]
    return (*out, *(f"tokens: {sp.clean(g)}" for g in comparison.alignment.gaps))


def command_line(comparison: Comparison) -> str:
    """The command that made the result; its program by name, wherever it is installed."""
    program, *arguments = comparison.command or ("hsparity",)
    return shlex.join((program.replace("\\", "/").rsplit("/", 1)[-1], *arguments))


def compared_words(comparison: Comparison) -> str:
    a = comparison.alignment
    return f"{sp.count(a.prompts, 'prompt')}, {sp.count(a.tokens, 'token')}"


def few(rows: Sequence[SiteDelta]) -> tuple[SiteDelta, ...]:
    """At most FEW rows: what is not at parity first, worst first; in site order."""
    if len(rows) <= FEW:
        return tuple(rows)
    badness = [(d.verdict is Verdict.PARITY, -float(np.nan_to_num(worst_ratio(d), nan=0.0))) for d in rows]
    chosen = sorted(range(len(rows)), key=badness.__getitem__)[:FEW]
    return tuple(rows[i] for i in sorted(chosen))
