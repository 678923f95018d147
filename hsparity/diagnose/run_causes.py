"""Causes of how the engine was run: graphs, batches, prefill and decode."""

from __future__ import annotations

from hsparity.diagnose.common import captured, setting, times
from hsparity.diagnose.facts import Facts
from hsparity.diagnose.places import EXACT
from hsparity.diagnose.weighing import Hypothesis

EAGER = ("", "eager", "none")
ORDER = 4.0  # times the floor: more than another order of sums costs


def graph_or_compile(f: Facts) -> Hypothesis:
    mine, other = f.mine, f.other
    h = Hypothesis("HS506", "graph-or-compile", f"{captured(f)} ran {mine.mode or 'otherwise'}")
    if mine.mode == "eager" and other.mode in EAGER:
        h.out("both sides ran eager" if other.mode else f"{captured(f)} ran eager")
        return h
    if mine.mode in EAGER and other.mode not in EAGER and f.side != "pair":
        h.out(f"it is {captured(f)} that is beyond the floor, and it ran eager")
        return h
    if mine.mode and other.mode and mine.mode != other.mode:
        setting(f, h, "mode", 2.0, f"{captured(f)} ran {mine.mode}, the other side {other.mode}")
    if "decode" in f.edges or f.pattern == "decode":
        h.plus(1.5, "decoded rows are off, prefill rows are not: graphs replay decode steps")
    elif f.first.word == EXACT:
        h.minus(1.0, "position 0 is at the floor: compiled layers would show there as well")
    if f.mine.scheme is not None or f.mine.narrow_kv:
        h.minus(0.5, "the same side is quantised")
    h.rival = "the padded batch that a graph runs with: run it padded and eager before the graph is blamed"
    return h


def batch_variance(f: Facts) -> Hypothesis:
    h = Hypothesis("HS514", "batch-variance", "sums are added in another order: batch size, ranks")
    tokens, mine, other = f.tokens, f.mine, f.other
    if f.pattern == "alone" and f.equality is not None:
        text = f"{f.equality.equal_share:.0%} of rows computed in batches of one size are equal in every bit"
        h.plus(4.0, f"{text}, {f.equality.apart_share:.0%} of the others differ")
    if mine.tp != other.tp and mine.tp and other.tp:
        setting(f, h, "tp", 2.0, f"{mine.tp} ranks against {other.tp}")
    if mine.batch != other.batch:
        setting(f, h, "batch", 2.0, f"{mine.batch} prompts at a time against {other.batch}")
    known = tokens.ref.known and tokens.cand.known
    if not h.reasons:
        same = known and bool((tokens.ref.shared_n == tokens.cand.shared_n).all())
        h.out(
            "both sides computed rows in the same batches" if same else "no batch or rank differs",
            quiet=not same,
        )
        return h
    if f.profile is not None and f.ratio > ORDER:
        h.minus(2.5, f"{times(f.ratio)} the floor is more than another order of sums costs")
    if f.first.word == EXACT:
        h.minus(0.5, "position 0 is at the floor")
    h.rival = "rows of another request in the same batch"
    return h


def prefill_decode(f: Facts) -> Hypothesis:
    h = Hypothesis("HS515", "prefill-decode", "rows decoded one by one differ from rows computed in a prompt")
    tokens = f.tokens
    phase, decode = f.edges.get("phase"), f.edges.get("decode")
    if not (tokens.ref.decode_n.any() or tokens.cand.decode_n.any()):
        h.out("no row was decoded", quiet=True)
        return h
    if f.pattern == "phase" and f.equality is not None:
        text = f"{f.equality.equal_share:.0%} of rows of one phase on both sides are equal in every bit"
        h.plus(4.0, f"{text}, {f.equality.apart_share:.0%} of those of two phases differ")
    if phase is not None:
        text = f"rows of one phase on both sides are at the floor ({phase.before:.0%} in the tail)"
        h.plus(4.0, f"{text}, those that one side decoded and the other did not are off ({phase.behind:.0%})")
        h.share = phase.explained
    elif decode is not None:
        text = f"prefill rows are at the floor ({decode.before:.0%} in the tail), decoded ones are not"
        h.plus(3.0, f"{text} ({decode.behind:.0%})")
        h.share = decode.explained
    elif f.pattern == "decode" and f.equality is not None:
        h.plus(
            3.0, f"prefill rows are equal in every bit, {f.equality.apart_share:.0%} of decoded ones differ"
        )
    if not h.reasons:
        h.out("decoded rows are no worse than those of the prompt")
    elif f.mine.mode not in EAGER or f.mine.narrow_kv:
        h.minus(1.0, f"{captured(f)} decodes with a graph or a narrow cache")
    h.rival = "what is used in decoding alone: a graph, a narrow cache, another attention kernel"
    return h


ALL = (graph_or_compile, batch_variance, prefill_decode)
