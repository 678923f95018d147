"""Comparisons that say why: a fingerprint, hypotheses by rank, and causes that it rules out."""

from __future__ import annotations

from dataclasses import replace

from hsparity.model import Comparison, Cost, Finding, Fingerprint, LayerError, Verdict

from .fixtures import ASKED, comparison, delta, excess_map, ripple, token_map

PRINT = Fingerprint(
    side="cand",
    boundary=1,
    layer=0,
    start="first",
    lines=(
        "the candidate: boundary 1 is the first beyond the floor (6.1×), which layer 0 makes",
        "it is on most tokens: 98% are in the tail at boundary 1",
        "position 0 stands at 5.5× the floor, later positions at 2.9× (boundary 1)",
        "the error falls with position (rank correlation -0.74, 95 % -0.79 to -0.68)",
        "layer 0 adds 0.98× what a later layer adds",
        "layer 0's update: error 6.1× that of bf16, gain 0.999, coherence -0.02",
    ),
    figures={"ratio": 6.1, "first": 5.5, "later": 2.9, "growth": -0.74},
    boundaries=(0, 1, 2),
    ratios=(0.0, 6.1, 6.2),
)
BEYOND = Finding(
    "HS301",
    "beyond-floor",
    "the candidate is beyond what bf16 arithmetic costs from the first requested site on",
    slots=tuple(f"boundary.{b:03d}" for b in ASKED),
    evidence=("boundary.003: candidate: 6.1× the floor (95 % 5.9 to 6.3), the limit is 1.5",),
)
CACHE = Finding(
    "HS503",
    "quantised-kv",
    "the candidate keeps keys and values in a narrow cache",
    severity="hypothesis",
    evidence=(
        "the candidate's cache is fp8, the other side's is not",
        "the error falls with position (rank correlation -0.74): rounded values average out over many keys",
        "position 0, one rounded value alone, is worst: 5.5× the floor",
        "boundary 1 is the first beyond the floor (6.1×): it is there from the first layer on",
        "a fifth line, shown with -v",
    ),
    against=("nothing was replayed",),
    rival="another attention kernel that comes with the narrow cache",
    confidence="likely",
    explained=0.83,
    explained_low=0.78,
    explained_high=0.87,
    confirm=(
        "hsparity bisect captures/hf-bf16 captures/vllm-bf16 --floor captures/hf-fp32 --knobs kv-dtype",
    ),
)
WEIGHTS = Finding(
    "HS501",
    "quantised-weights",
    "the candidate's weights are quantised",
    severity="hypothesis",
    evidence=("the weight files differ, and neither side says that it is quantised",),
    against=("the error depends on position (rank correlation -0.74)",),
    rival="other weights than those meant",
    confidence="possible",
)
OUT = (
    Finding(
        "HS507",
        "rope",
        "position 0 stands at 5.5× the floor: a softmax over one key is exact, so scores cannot be what is wrong",
        severity="hypothesis",
        ruled_out=True,
    ),
    Finding("HS506", "graph-or-compile", "both sides ran eager", severity="hypothesis", ruled_out=True),
)


def why() -> Comparison:
    """An fp8 cache: beyond the floor at every boundary, with two hypotheses and two causes ruled out."""
    flat = excess_map(61, 96, lambda b, t: 0.78 + 0.1 * ripple(b, t))
    return comparison(
        Verdict.DIVERGED,
        "3 of 3 requested layers lie outside the noise floor.",
        [delta(b, 6.1, b in ASKED) for b in range(62)],
        map=token_map(61, flat),
        findings=(BEYOND, CACHE, WEIGHTS, *OUT),
        fingerprint=PRINT,
        added=tuple(
            LayerError(side, n, part, r, r * 0.9, r * 1.1, Verdict.DIVERGED if r > 1.5 else Verdict.PARITY)
            for side, height in (("ref", 0.0), ("cand", 1.2))
            for n in range(0, 61, 6)
            for part, r in (("layer", 1.0 + height), ("attention", 1.1 + 2 * height), ("mlp", 1.0))
        ),
        cost=Cost(
            "heads/eagle3",
            Verdict.DIVERGED,
            "2.41 accepted a step becomes 1.80",
            2.41,
            1.8,
            0.5,
            0.7,
            {"HS503": 2.4},
        ),
    )


def level() -> Comparison:
    """Two hypotheses that captures alone do not part."""
    tied = [
        replace(
            f,
            confidence="inconclusive",
            against=(*f.against, f"not to be told from {other} by what was captured"),
        )
        for f, other in ((CACHE, "quantised-weights"), (WEIGHTS, "quantised-kv"))
    ]
    return replace(why(), findings=(BEYOND, *tied))
