"""The named cases that the golden files show, and those that only have to render."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

import numpy as np

from hsparity.model import Comparison, Finding, SlotMatch, Verdict

from .cause_cases import rows, several, target_clean
from .fixtures import (
    ASKED,
    CAND,
    NAN,
    NONE,
    NUMERICS,
    REF,
    RULED_OUT,
    WITHIN,
    alignment,
    comparison,
    delta,
    e0,
    excess_map,
    judged,
    pair_errors,
    q,
    request,
    ripple,
    side,
    token_map,
)
from .odd_cases import apart, boundary_zero, hostile, missing_sites, one_token, pooled
from .reason_cases import level, why


def parity() -> Comparison:
    """Three requested layers within the floor; one setting differs."""
    quiet = excess_map(61, 96, lambda b, t: -0.3 + 0.2 * ripple(b, t))
    note = Finding(
        "HS403", "settings-differ", "attention: default in ref, torch_native in cand.", severity="note"
    )
    return comparison(
        Verdict.PARITY,
        "All 3 requested layers lie within the floor.",
        [delta(b, 0.95, b in ASKED) for b in range(62)],
        map=token_map(61, quiet),
        findings=(WITHIN, note, *RULED_OUT),
        cand=side("cand", "captures/sglang-bf16", "sglang", "0.5.23"),
    )


def offset() -> Comparison:
    """62 boundaries x 96 tokens, the candidate's numbers one too high, one routing flip behind it."""

    def flip(b: int, t: int) -> float:
        return 1.0 + 0.1 * ripple(b, t) if t == 37 and b >= 25 else -0.3 + 0.2 * ripple(b, t)

    def claimed(b: int, t: int) -> float:
        return 2.2 - 0.02 * b + 0.12 * ripple(b, t)

    undone = excess_map(61, 96, flip)
    undone[0] = NAN
    slots = tuple(
        SlotMatch(f"boundary.{b:03d}", "cand", b, b + 1, 0.003, b + 2, 0.093, 1.49, True) for b in range(61)
    )
    lead = Finding(
        "HS101",
        "layer-offset",
        "The candidate's layer numbers are one too high: its layer N holds what the reference calls layer "
        "N+1.",
        0.995,
        evidence=("best match at offset +1 on 61 of 62 rows", "runner-up 31 times worse"),
        fix={
            "any": "The data are one layer late. For the outputs of layers 2, 30, 58:",
            "vllm": "write 3,31,59, not 4,32,60",
            "sglang": "write 2,30,58, not 3,31,59",
        },
        rival="no offset, 93 times the floor",
        confirm=("hsparity compare captures/hf-bf16 captures/vllm-bf16 --layers 2,30,58 --offset 1",),
        structural=True,
    )
    flips = Finding(
        "HS302",
        "few-tokens-beyond",
        "One token stays beyond the floor.",
        0.003,
        evidence=('then: prompt 2, position 5 (" parity"), layers 24-60',),
    )
    ratios = [93.0 / (1 + b / 4) + 10 for b in range(62)]
    return comparison(
        Verdict.DIVERGED,
        "3 of 3 requested layers lie outside the floor.",
        [
            replace(delta(b, round(r, 1), b in ASKED), undone=q(1.1 * e0(b)) if b else None)
            for b, r in enumerate(ratios)
        ],
        alignment=alignment(offset=1, slots=slots),
        map=token_map(61, excess_map(61, 96, claimed), undone),
        findings=(lead, flips, *RULED_OUT),
    )


def inconclusive() -> Comparison:
    """No floor anywhere: nothing says what is noise."""
    return comparison(
        Verdict.INCONCLUSIVE,
        "Nothing says how large a difference bf16 alone makes here.",
        [delta(b, None, b in ASKED) for b in range(62)],
        floor=NONE,
        others=(),
        map=replace(
            token_map(61, excess_map(61, 96, lambda b, t: 0.5 + 0.2 * ripple(b, t))), relative_to="resolution"
        ),
    )


def native_ids() -> Comparison:
    """SGLang's Llama hands over boundaries 3,5,7 for ids 2,4,6."""
    slots = tuple(
        SlotMatch(f"slot.{i:03d}", "cand", ident, ident + 1, 0.0017, ident, 0.094, 1.74, True, f"id {ident}")
        for i, ident in enumerate((2, 4, 6))
    )
    found = Finding(
        "HS103",
        "native-ids",
        "Ids 2,4,6 in a draft config give the candidate's drafter boundaries 3,5,7.",
        None,
        evidence=("slot 0 lies at boundary 3, margin 1.7",),
        fix={"sglang": "write 1,3,5 for boundaries 2,4,6", "vllm": "write 2,4,6"},
        confirm=("hsparity compare captures/hf-bf16 captures/sglang-native --boundaries 3,5,7",),
        structural=True,
    )
    deltas = [
        replace(delta(i, 40.0, True), cand=f"slot.{n:03d}", reason="the slot holds another boundary")
        for n, i in enumerate((2, 4, 6))
    ]
    cand = side(
        "cand", "captures/sglang-native", "sglang", "0.5.23", 8, sites=("slot.000", "slot.001", "slot.002")
    )
    matrix = np.asarray(pair_errors(8, 1)[:, [2, 4, 6]], np.float32)
    return comparison(
        Verdict.DIVERGED,
        "3 of 3 requested boundaries are not what the ids claim.",
        deltas,
        ref=replace(REF, num_layers=8, sites=tuple(f"boundary.{b:03d}" for b in range(9))),
        cand=replace(
            cand,
            settings={**cand.settings, "mechanism": "native", "native_ids": [2, 4, 6]},
            native_labels={"slot.000": "id 2"},
        ),
        request=replace(request([1, 3, 5]), spelled="--boundaries 2,4,6"),
        alignment=alignment(
            8, 1, slots=slots, cand_boundaries=(2, 4, 6), pair_error_kk=matrix, rows_agreeing=3
        ),
        findings=(found,),
    )


def final_norm() -> Comparison:
    """Only the last boundary differs, and undoing the norm closes it."""
    lead = Finding(
        "HS201",
        "final-norm-applied",
        "The candidate's last boundary was taken after the final norm.",
        0.999,
        evidence=("norm(ref boundary 61) fits at 2.1e-03", "only the last boundary differs"),
        fix={"any": "Capture the input of the final norm, or compare the site final_norm."},
        structural=True,
    )
    tail = replace(delta(61, 1.1), ref="final_norm", cand="final_norm")
    return comparison(
        Verdict.DIVERGED,
        "1 of 3 requested layers lies outside the floor.",
        [*(delta(b, 240.0 if b == 61 else 1.0, b in (3, 31, 61)) for b in range(62)), tail],
        findings=(lead,),
    )


def tokens_differ() -> Comparison:
    """The candidate lacks BOS on two prompts and some rows on the third."""
    lead = Finding(
        "HS401",
        "tokens-differ",
        "The reference has one token more in front (id 0) in 2 of 3 prompts.",
        None,
        evidence=("prompt 0: 41 tokens in ref, 40 in cand",),
        fix={"any": "Capture both sides from token ids."},
        confirm=(
            "hsparity capture vllm --model models/deepseek-v3-tiny --prompts ids.jsonl -o captures/vllm-ids",
        ),
        structural=True,
    )
    rows = Finding("HS104", "rows-missing", "The candidate has no rows for positions 0-15 of prompt 2.", None)
    gaps = (
        "prompt 0: ref starts 0,671,6102, cand starts 671,6102",
        "prompt 2: cand lacks positions 0-15 (prefix cache)",
    )
    return comparison(
        Verdict.DIVERGED,
        "The two sides were fed different tokens.",
        [delta(b, 1.0, b in ASKED, tokens=55) for b in range(62)],
        alignment=alignment(gaps=gaps, tokens=55),
        findings=(lead, rows),
        cand=replace(
            CAND, tokens=93, rows=77, warnings=("16 rows came from the prefix cache and were not computed",)
        ),
    )


def few_tokens() -> Comparison:
    """Medians are healthy, 4 of 96 tokens are far out."""
    deltas = []
    for b in range(62):
        d = delta(b, 1.1, b in ASKED)
        if b > 20:
            beyond = replace(
                judged(1.1, "cand"),
                beyond=4,
                share=0.042,
                share_low=0.012,
                verdict=Verdict.DIVERGED,
                reason="4 of 96 tokens beyond",
            )
            d = replace(
                d,
                ratios=(d.ratios[0], beyond, d.ratios[2]),
                verdict=Verdict.DIVERGED,
                reason="4 of 96 tokens beyond",
            )
        deltas.append(d)
    lead = Finding(
        "HS302",
        "few-tokens-beyond",
        "4 of 96 tokens lie beyond the floor from boundary 21 on.",
        0.97,
        evidence=("prompt 1: positions 3, 9, 10, 30",),
    )
    spots = excess_map(
        61, 96, lambda b, t: 1.3 if t in (35, 41, 42, 62) and b > 20 else -0.3 + 0.2 * ripple(b, t)
    )
    return comparison(
        Verdict.DIVERGED,
        "2 of 3 requested layers have tokens beyond the floor.",
        deltas,
        map=token_map(61, spots),
        findings=(lead,),
    )


def nan_rows() -> Comparison:
    """Two tokens of the candidate are NaN from boundary 30 on."""
    lead = Finding(
        "HS303",
        "nonfinite",
        "The candidate holds NaN at 2 tokens from boundary 30 on.",
        None,
        evidence=("512 elements a boundary",),
    )
    holes = excess_map(61, 96, lambda b, t: NAN if t in (10, 11) and b >= 30 else -0.2)
    deltas = [
        replace(
            delta(b, 1.0, b in ASKED),
            nonfinite=(0, 512 if b >= 30 else 0),
            verdict=Verdict.DIVERGED if b >= 30 else Verdict.PARITY,
        )
        for b in range(62)
    ]
    return comparison(
        Verdict.DIVERGED,
        "2 of 3 requested layers hold numbers that are not finite.",
        deltas,
        map=token_map(61, holes),
        findings=(lead, NUMERICS),
    )


CASES = {
    f.__name__.replace("_", "-"): lru_cache(f)
    for f in (
        parity,
        offset,
        inconclusive,
        native_ids,
        final_norm,
        tokens_differ,
        few_tokens,
        nan_rows,
        missing_sites,
        boundary_zero,
        one_token,
        hostile,
        pooled,
        apart,
        rows,
        several,
        target_clean,
        why,
        level,
    )
}
