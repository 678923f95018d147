"""Causes that act through attention: scores, positions, masks, windows, the cache, the kernels."""

from __future__ import annotations

from hsparity.diagnose.common import (
    captured,
    from_first_layer,
    needs_first_exact,
    no_edges,
    one_layer,
    setting,
    start_words,
    states,
    times,
)
from hsparity.diagnose.facts import Facts
from hsparity.diagnose.places import EXACT, OFF, Edge
from hsparity.diagnose.weighing import Hypothesis

FULL = ("hf", "transformers")  # engines without a narrow cache of their own
COHERENT, SCALED = 0.1, 0.5  # cosine of error and update: other scores; a branch of another size
KERNEL = 3.0  # times the floor: more than another order of sums costs
NEAR_WINDOW = 1  # positions between an edge and the configured window


def quantised_kv(f: Facts) -> Hypothesis:
    h = Hypothesis("HS503", "quantised-kv", f"{captured(f)} keeps keys and values in a narrow cache")
    mine, other = f.mine, f.other
    if not mine.narrow_kv and not other.narrow_kv:
        if mine.kv or mine.engine in FULL:
            h.out(f"{captured(f)}'s KV cache is {mine.kv or mine.dtype}")
        else:
            h.out("no side says that its KV cache is narrow", quiet=True)
        return h
    if not mine.narrow_kv:
        h.out(f"it is {captured(f)} that is beyond the floor, and the other side whose cache is narrow")
        return h
    if other.narrow_kv:
        h.minus(1.0, "both sides have a narrow cache")
    else:
        setting(f, h, "kv dtype", 2.5, f"{captured(f)}'s cache is {mine.kv}, the other side's is not")
    if f.falls and f.growth is not None:
        text = f"the error falls with position (rank correlation {f.growth.value:.2f})"
        h.plus(1.5, f"{text}: rounded values average out over many keys")
    elif f.grows and f.growth is not None:
        h.minus(1.0, f"the error grows with position (rank correlation {f.growth.value:.2f})")
    if f.first.word == OFF and f.first.ratio > 1.2 * f.first.later:
        h.plus(1.0, f"position 0, one rounded value alone, is worst: {times(f.first.ratio)} the floor")
    if "decode" in f.edges:
        h.plus(1.5, "decoded rows are off, and prefill rows, which use fresh keys, are not")
    from_first_layer(f, h, 0.5, 2.0)
    if one_layer(f):
        h.minus(1.0, f"layer {f.layer} adds {times(f.spike or 0)} what later layers add")
    if f.profile is not None and f.ratio > 15.0:
        h.minus(1.0, f"{times(f.ratio)} the floor is much for an 8-bit cache")
    h.rival = "another attention kernel that comes with the narrow cache"
    return h


def attention_backend(f: Facts) -> Hypothesis:
    mine, other = f.mine, f.other
    h = Hypothesis(
        "HS504", "attention-backend", f"attention kernels differ: {mine.backend} and {other.backend}"
    )
    if mine.backend and mine.backend == other.backend and mine.engine == other.engine:
        h.out(f"both sides ran {mine.backend}")
        return h
    if not mine.backend or not other.backend:
        h.headline = "attention kernels differ"
    needs_first_exact(f, h, 0.5)
    if mine.engine == other.engine and "attention backend" in f.differing:
        setting(f, h, "attention backend", 2.5, f"one engine with {other.backend} and with {mine.backend}")
    elif mine.engine != other.engine:
        h.plus(0.5, "engines have attention kernels of their own")
    from_first_layer(f, h, 0.5, 1.0)
    if f.profile is not None and not f.few and f.ratio > KERNEL:
        h.minus(1.5, f"{times(f.ratio)} the floor is more than another order of sums costs")
    no_edges(f, h, 1.0)
    h.rival = "what the kernel is told (scale, soft-cap, window) rather than how it computes"
    return h


def attention_semantics(f: Facts) -> Hypothesis:
    h = Hypothesis(
        "HS505",
        "attention-semantics",
        "attention computes something else: softmax scale, soft-cap, sinks, heads",
    )
    needs_first_exact(f, h)
    states(f, h, "attention scaling", "query scaling", "attention soft-cap", "query and key norm", "head")
    if f.even:
        h.plus(1.0, f"behind position 0 the error does not depend on position ({_growth(f)})")
    elif f.steep:
        h.minus(1.0, f"the error grows with position ({_growth(f)}), as a wrong scale does not make it")
    elif f.falls:
        h.minus(0.5, f"the error falls with position ({_growth(f)})")
    if f.entry is not None and abs(f.entry.coherence) >= SCALED:
        h.minus(2.0, f"the whole update is scaled (coherence {f.entry.coherence:+.2f})")
    elif f.entry is not None and abs(f.entry.coherence) >= COHERENT and f.first.word == EXACT:
        text = f"the error points along the update (coherence {f.entry.coherence:+.2f})"
        h.plus(0.5, f"{text}: attention is sharper or flatter")
    from_first_layer(f, h, 0.5, 2.0)
    no_edges(f, h)
    h.rival = "rope's magnitude (mscale), which scales scores as well"
    return h


def rope(f: Facts) -> Hypothesis:
    h = Hypothesis(
        "HS507", "rope", "positions are rotated otherwise: theta, scaling, or the pairing of dimensions"
    )
    needs_first_exact(f, h)
    states(f, h, "rope", "rotated share", "interleaved rope")
    if f.steep:
        h.plus(2.0, f"the error grows with position ({_growth(f)})")
    elif f.grows:
        h.plus(0.5, f"the error grows somewhat with position ({_growth(f)})")
    elif f.even:
        h.minus(0.5, f"behind position 0 the error does not grow ({_growth(f)})")
    elif f.falls:
        h.minus(1.0, f"the error falls with position ({_growth(f)})")
    # The error of a small turn has no direction; a base that is far off flattens attention as a scale does: neither
    # speaks against it.
    from_first_layer(f, h, 0.5, 2.0)
    no_edges(f, h)
    h.rival = "a softmax scale, which grows little with position"
    return h


def window_edge(f: Facts) -> Hypothesis:
    h = Hypothesis("HS511", "window-edge", "the sliding window ends elsewhere")
    width, place = f.mine.window, f.edges.get("position")
    states(f, h, "sliding window", "layer types")
    if place is None:
        if f.profile is not None and not f.config:
            h.out("no position parts tokens at the floor from others", quiet=width is None)
        return h
    h.headline = f"tokens from position {place.position} on are off, those before are not"
    text = f"{place.before:.0%} of tokens before position {place.position} are in the tail, {place.behind:.0%} behind"
    if width is not None and abs(place.position - width) <= NEAR_WINDOW:
        h.plus(4.0, f"{text}; the sliding window is {width}")
    else:
        h.plus(3.0, f"{text}, in every prompt alike")
        if width is not None:
            h.minus(1.0, f"the sliding window is {width}")
    _carried(h, place)
    h.rival = "a chunk or block that ends there"
    return h


def mask_differs(f: Facts) -> Hypothesis:
    h = Hypothesis("HS517", "mask-differs", "attention skips tokens on one side")
    found = f.edges.get("masked")
    said = f.mine.masked if f.mine.masked is not None else f.other.masked
    if "mask" in f.differing:
        setting(f, h, "mask", 3.0, f"one side masks every token of id {said}")
    if found is not None:
        token = "masked" if said is not None else "pad"
        h.headline = f"attention skips the {token} tokens of the prompt on one side"
        text = f"the error begins with the first {token} token of a prompt: {found.before:.0%} of tokens before it"
        h.plus(4.0, f"{text} are in the tail, {found.behind:.0%} from it on")
        _carried(h, found)
    elif h.points <= 0:
        h.out("no token that a mask could be made from parts the rows", quiet=True)
    elif f.profile is not None:
        h.minus(1.5, "the error does not begin with the first masked token of a prompt")
    h.rival = "other tokens, or another rope, from there on"
    return h


def chunk_boundary(f: Facts) -> Hypothesis:
    h = Hypothesis("HS510", "chunk-boundary", "rows of a prompt's later chunks are off")
    found, tokens = f.edges.get("pass"), f.tokens
    known = tokens.ref.known and tokens.cand.known
    many = any(bool(((p.start_n > 0) & ~p.decode_n).any()) for p in (tokens.ref, tokens.cand))
    if known and not many:
        h.out("every prompt was one pass on both sides")
        return h
    if found is not None:
        text = f"rows of a prompt's first pass are at the floor ({found.before:.0%} in the tail)"
        h.plus(4.0, f"{text}, those of later passes are not ({found.behind:.0%})")
        _carried(h, found)
    if f.pattern == "pass" and f.equality is not None:
        text = f"{f.equality.equal_share:.0%} of rows whose pass began at one place are equal in every bit"
        h.plus(4.0, f"{text}, {f.equality.apart_share:.0%} of the others differ")
    if "chunked prefill" in f.differing or "prefix cache" in f.differing:
        h.plus(1.0, "one side computed prompts in parts")
    if not h.reasons:
        h.out("no chunk parts the rows", quiet=not many)
    elif found is None and f.pattern != "pass" and f.profile is not None and known:
        h.minus(1.5, f"rows of first passes are off as well ({start_words(f)})")
    h.rival = "a window or block of the same length"
    return h


def _growth(f: Facts) -> str:
    g = f.growth
    return "" if g is None else f"rank correlation {g.value:.2f}, 95 % {g.low:.2f} to {g.high:.2f}"


def _carried(h: Hypothesis, found: Edge) -> None:
    h.share = found.explained


ALL = (
    quantised_kv,
    attention_backend,
    attention_semantics,
    rope,
    window_edge,
    mask_differs,
    chunk_boundary,
)
