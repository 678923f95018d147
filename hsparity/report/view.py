"""What the reports say about a Comparison: facts and sentences that terminal, HTML and Markdown share."""

from __future__ import annotations

import math
import shlex
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ..model import (
    Comparison,
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
FEW = 12  # rows of a table shown unless all are asked for
_DTYPES = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32"}
FLOOR_WORDS = {
    "bf16-reference": "what bf16 arithmetic alone costs",
    "repeat": "repeats of one engine",
    "bit-equal": "bit equality",
    "tolerance": "the tolerance given",
    "none": "none",
}


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
    return tuple(f for f in comparison.findings if f.severity != "cause" and not f.ruled_out)


def shift(comparison: Comparison) -> int | None:
    """The offset that fits better than the claimed one, when a layer-offset finding leads."""
    lead, best = leading(comparison), comparison.alignment.offset
    if lead is None or lead.code != SHIFT or best is None or best == comparison.request.offset:
        return None
    return best


def shifted_error(comparison: Comparison, delta: SiteDelta) -> float:
    """Median rel-L2 of `delta`'s reference boundary at the better offset; NaN where none was captured."""
    offset, boundary, matrix = shift(comparison), boundary_of(delta.ref), comparison.alignment
    if offset is None or boundary is None:
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
    return comparison.headline or "no statement"


def floor_line(comparison: Comparison) -> str:
    """Name, source and limit of the floor in one sentence part."""
    floor = comparison.floor
    if floor.kind == "none":
        return "none"
    name = FLOOR_WORDS.get(floor.kind, floor.kind)
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


def token_words(token: TokenRef) -> str:
    """Where a token is and what it says: prompt 3, position 37, id 671 (" parity")."""
    text = f" ({sp.quoted(token.text)})" if token.text else ""
    return f"prompt {sp.clean(token.prompt)}, position {token.position}, id {token.token_id}{text}"


def worst_token_words(delta: SiteDelta) -> str:
    """The worst token of a site whose `worst` is known."""
    if delta.worst is None:
        return ""
    return (
        f"worst token at {place_words(delta.ref)}: {token_words(delta.worst)}, rel-L2 "
        f"{sp.error(delta.worst.value)}"
    )


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


def native_slots(comparison: Comparison) -> tuple[SlotMatch, ...]:
    """What an engine handed over under its own label, and where the data put it."""
    return tuple(s for s in comparison.alignment.slots if s.cand.startswith("slot.") or s.side != "cand")


def slots_moved(comparison: Comparison) -> tuple[SlotMatch, ...]:
    return tuple(s for s in comparison.alignment.slots if s.claimed is not None and s.claimed != s.best)


def floor_commands(comparison: Comparison) -> tuple[str, ...]:
    """The commands that make a floor and compare against it."""
    ref = comparison.ref
    model = sp.clean(ref.model) or "MODEL"
    capture = "hsparity capture hf --model {} --dtype {} --prompts FILE -o {}"
    pair = shlex.join((sp.clean(ref.path), sp.clean(comparison.cand.path)))
    return (
        capture.format(shlex.quote(model), "float32", "captures/hf-fp32"),
        capture.format(shlex.quote(model), "bfloat16", "captures/hf-bf16"),
        f"hsparity compare {pair} {comparison.request.spelled} --floor captures/hf-fp32 --floor "
        "captures/hf-bf16".replace("  ", " "),
    )


def capture_commands(comparison: Comparison) -> tuple[str, ...]:
    """Per side that lacks requested boundaries, the command that captures them."""
    out = []
    for side in (comparison.ref, comparison.cand):
        lacking = [b for b in comparison.request.boundaries if f"boundary.{b:03d}" not in side.sites]
        if lacking and any(d.verdict is Verdict.MISSING for d in requested(comparison)):
            model = shlex.quote(sp.clean(side.model) or "MODEL")
            folder = shlex.quote(sp.clean(side.path) + "-more")
            out.append(
                f"hsparity capture {side.engine} --model {model} {comparison.request.spelled} --prompts "
                f"FILE -o {folder}"
            )
    return tuple(out)


def more_commands(comparison: Comparison) -> tuple[str, ...]:
    """The commands that capture every side again with more prompts, and compare those."""
    sides = {s.path: s for s in (comparison.ref, comparison.cand, *comparison.others) if s.role != "repeat"}
    captures = [
        f"hsparity capture {s.engine} --model {shlex.quote(sp.clean(s.model) or 'MODEL')} --dtype "
        f"{sp.clean(s.dtype)} "
        f"--prompts MORE.jsonl -o {shlex.quote(sp.clean(path) + '-more')}"
        for path, s in sides.items()
    ]
    pair = shlex.join(sp.clean(s.path) + "-more" for s in (comparison.ref, comparison.cand))
    floors = dict.fromkeys(s.path for s in comparison.others if s.role != "repeat")
    floor = "".join(f" --floor {shlex.quote(sp.clean(path) + '-more')}" for path in floors)
    return (*captures, f"hsparity compare {pair} {comparison.request.spelled}{floor}")


def next_commands(comparison: Comparison) -> tuple[tuple[str, str], ...]:
    """(command, what it settles), most useful first."""
    out: list[tuple[str, str]] = []
    lead = leading(comparison)
    if comparison.floor.kind in ("none", "repeat") and comparison.verdict is Verdict.INCONCLUSIVE:
        purpose = (
            "a floor, first half: fp32",
            "second half: bf16, same prompts",
            "the comparison, with a floor",
        )
        out += list(zip(floor_commands(comparison), purpose, strict=True))
    out += [(command, "captures what was asked for") for command in capture_commands(comparison)]
    for finding in comparison.findings:
        if not finding.ruled_out:
            out += [(sp.clean(command), f"confirms {finding.code}") for command in finding.confirm]
    if comparison.verdict is Verdict.INCONCLUSIVE and not out:
        out += [
            (command, "more tokens decide: each side and the floor again")
            for command in more_commands(comparison)
        ]
    if lead is not None:
        out.append((f"hsparity explain {sp.clean(lead.code)}", "what it is and where it comes from"))
    known = dict(reversed(out))
    return tuple((c, known[c]) for c in dict.fromkeys(c for c, _ in out))


def warnings(comparison: Comparison) -> tuple[str, ...]:
    """Self-check warnings of every side, and token gaps."""
    sides = (comparison.ref, comparison.cand, *comparison.others)
    out = [f"{s.role}: {sp.clean(w)}" for s in sides for w in s.warnings]
    return (*out, *(f"tokens: {sp.clean(g)}" for g in comparison.alignment.gaps))


def note_words(finding: Finding) -> str:
    """What a note says, its evidence behind it."""
    return sp.clean(": ".join(part for part in (finding.headline, "; ".join(finding.evidence)) if part))


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
