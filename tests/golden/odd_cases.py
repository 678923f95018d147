"""Odd comparisons: what is missing, tiny, huge or hostile."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from hsparity.model import Comparison, Finding, Floor, SlotMatch, TokenMap, TokenRef, Verdict

from .fixtures import (
    ASKED,
    CAND,
    HALF_ULP,
    NAN,
    NUMERICS,
    REF,
    RULED_OUT,
    alignment,
    comparison,
    delta,
    excess_map,
    missing,
    q,
    request,
    ripple,
    token_map,
)


def missing_sites() -> Comparison:
    """Boundaries 31 and 59 were never captured on the candidate's side; the offset cannot be tested."""
    cand = replace(CAND, sites=("boundary.003",))
    return comparison(
        Verdict.INCONCLUSIVE,
        "2 of 3 requested layers were not captured by the candidate.",
        [delta(3, 1.0, True), missing(31, "cand"), missing(59, "cand")],
        cand=cand,
        alignment=alignment(
            offset=None,
            ref_boundaries=(3,),
            cand_boundaries=(3,),
            pair_error_kk=np.full((1, 1), 0.003, np.float32),
        ),
    )


def boundary_zero() -> Comparison:
    """The embeddings were asked for, and are equal in every bit."""
    same = replace(
        delta(0, 0.0, True, ref_ratio=0.0),
        bit_equal=96,
        metrics={"rel_l2": q(0.0), "cosine": q(1.0, 1.0), "mse": q(0.0), "max_abs": q(0.0)},
        rest={"rel_l2": q(0.0)},
        massive_rel_l2=q(0.0),
        sink_rel_l2=q(0.0),
        worst=None,
    )
    return comparison(
        Verdict.PARITY,
        "The requested boundary is equal in every bit.",
        [same],
        floor=Floor("bit-equal", "two runs of vllm 0.32.0", 1.0, HALF_ULP),
        others=(),
        request=replace(request([-1]), spelled="--boundaries 0"),
        alignment=alignment(
            offset=None, ref_boundaries=(0,), cand_boundaries=(0,), pair_error_kk=np.zeros((1, 1), np.float32)
        ),
    )


def one_token() -> Comparison:
    """One prompt of one token, repeats for a floor, too little to judge."""
    deltas = [
        replace(
            delta(b, 1.0, True),
            tokens=1,
            verdict=Verdict.INCONCLUSIVE,
            reason="1 token is too few for an interval",
        )
        for b in (1, 2)
    ]
    deltas = [replace(d, ratios=(replace(d.ratios[2], low=NAN, high=NAN),)) for d in deltas]
    return comparison(
        Verdict.INCONCLUSIVE,
        "One token is too few to judge by.",
        deltas,
        ref=replace(REF, num_layers=2, prompts=1, tokens=1, rows=1),
        cand=replace(CAND, num_layers=2, prompts=1, tokens=1, rows=1),
        others=(),
        floor=Floor("repeat", "two runs of vllm 0.32.0", 1.5, HALF_ULP),
        alignment=alignment(2, 0, tokens=1, prompts=1),
        map=TokenMap((0, 1, 2), 1, (("0", 0, 1),), np.asarray([[-1.0], [0.0], [0.4]], np.float32)),
    )


def hostile() -> Comparison:
    """Markup, terminal escapes, emoji, right-to-left and long text wherever a model or user can put it."""
    nasty = (
        "[bold]x[/bold] <script>alert(1)</script> \"&' {{7*7}} \x1b[31m \u202e \U0001f469\u200d\U0001f680 "
        "שלום 日本語"
    )
    long = "captures/" + "a-very-long-folder-name-" * 8
    found = Finding(
        "HS301",
        "beyond-floor",
        f"Drift: {nasty}",
        0.5,
        evidence=(nasty, "x" * 300),
        fix={"any": nasty, "vllm": "</pre><img src=x>"},
        rival=nasty,
        confirm=(f"hsparity compare {nasty}",),
    )
    deltas = [
        replace(delta(b, 2.0, True), worst=TokenRef(nasty, 3, 9, 0.1, nasty + "\n"), reason=nasty)
        for b in (1, 2)
    ]
    return comparison(
        Verdict.DIVERGED,
        nasty,
        deltas,
        ref=replace(
            REF,
            num_layers=2,
            path=nasty,
            model=nasty,
            settings={nasty: nasty, "mode": "eager"},
            warnings=(nasty,),
        ),
        cand=replace(
            CAND, num_layers=2, path=long, native_labels={"slot.000": nasty}, environment={nasty: nasty}
        ),
        floor=Floor("bf16-reference", nasty, 1.5, HALF_ULP),
        alignment=alignment(
            2, 0, gaps=(nasty,), slots=(SlotMatch("slot.000", "cand", 1, 1, 0.001, 2, 0.1, 2.0, True, nasty),)
        ),
        map=TokenMap(
            (0, 1, 2), 1, ((nasty, 0, 2),), np.asarray([[0.1, 0.2], [0.3, 1.0], [2.0, 0.4]], np.float32)
        ),
        findings=(found,),
        command=("hsparity", "compare", nasty, long),
    )


def pooled() -> Comparison:
    """62 boundaries x 5,000 tokens: three tokens to a column of the map, every layer asked for."""
    columns = 1667
    wide = excess_map(
        61,
        columns,
        lambda b, t: 1.2 + 0.6 * ripple(b, t) if t % 211 < 3 and b > 12 else -0.5 + 0.45 * ripple(b, t),
    )
    deltas = [replace(delta(b, 1.0 if b < 13 else 1.9, True), tokens=5000) for b in range(62)]
    return comparison(
        Verdict.DIVERGED,
        "49 of 62 requested boundaries lie outside the floor.",
        deltas,
        request=replace(request(list(range(-1, 61))), spelled="--layers all"),
        alignment=alignment(tokens=5000, prompts=3),
        map=token_map(61, wide, pooled=3),
        findings=(NUMERICS, *RULED_OUT),
    )


def apart() -> Comparison:
    """One sink token and three channels carry the norm and hide that everything else is wrong."""
    deltas = [
        replace(
            delta(b, 1.0, b in ASKED),
            rest={"rel_l2": q(0.71), "cosine": q(0.7)},
            sink_rel_l2=q(0.0011),
            verdict=Verdict.DIVERGED,
        )
        for b in range(62)
    ]
    return comparison(Verdict.DIVERGED, "All tokens but the sink differ.", deltas, findings=(NUMERICS,))
