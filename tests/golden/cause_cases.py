"""Comparisons that show what the structural solver finds: rows, several causes at once, and a clean target."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from hsparity.model import Comparison, Finding, RowMap, SlotMatch, Verdict

from .fixtures import (
    ASKED,
    RULED_OUT,
    WITHIN,
    alignment,
    comparison,
    delta,
    excess_map,
    judged,
    request,
    ripple,
    side,
    token_map,
)

ORDER = Finding(
    "HS113",
    "request-order",
    "the states of 2 prompts came back sorted as text (0, 1, 10, 11, 2 …)",
    0.993,
    slots=tuple(f"boundary.{b:03d}" for b in ASKED),
    rows=("1 0-31", "2 0-31"),
    tokens=64,
    evidence=(
        "prompt 1 holds the states of prompt 2",
        "prompt 2 holds the states of prompt 1",
        "32 of 96 rows are in place, by the nearest state of the whole batch at boundary.031 (boundary 31)",
        "the nearest state is 48× nearer than the next",
        "both prompts have 32 tokens",
    ),
    rival="rows of another request: every prompt appears once",
    fix={"any": "match results to prompts by request id, sorted as numbers"},
    confirm=("hsparity compare captures/hf-bf16 captures/vllm-bf16 --layers 2,30,58 -v",),
    structural=True,
)
CONFIRM = "hsparity compare captures/hf-bf16 captures/vllm-slots --boundaries"


def rows() -> Comparison:
    """Two prompts of three exchanged: medians are far out, the first prompt's tokens are not."""
    swapped = excess_map(
        61, 96, lambda b, t: -0.3 + 0.2 * ripple(b, t) if t < 32 else 1.9 + 0.1 * ripple(b, t)
    )
    beyond = [replace(judged(60.0, "cand"), beyond=64, share=0.66, share_low=0.6)]
    deltas = [delta(b, 60.0, b in ASKED) for b in range(62)]
    return comparison(
        Verdict.DIVERGED,
        "3 of 3 requested layers lie outside the floor.",
        [replace(d, ratios=(d.ratios[0], *beyond, d.ratios[2])) for d in deltas],
        map=token_map(61, swapped),
        findings=(ORDER, *RULED_OUT),
        rows=RowMap(
            "boundary.031",
            (("0", 0, 32), ("1", 32, 64), ("2", 64, 96)),
            np.asarray([*range(32), *range(64, 96), *range(32, 58), -1, -1, *[-2] * 4], np.int32),
        ),
    )


def several() -> Comparison:
    """Rows of two prompts exchanged; behind them two slots one layer late and the last one normed."""
    offset = Finding(
        "HS101",
        "layer-offset",
        "the candidate's slot.000 holds boundary 4, not 3, slot.001 holds boundary 32, not 31",
        0.611,
        slots=("slot.000", "slot.001"),
        tokens=96,
        evidence=(
            "slot.000: boundary 4 at 0.0031, next best boundary 3 at 0.094",
            "slot.001: boundary 32 at 0.012, next best boundary 31 at 0.14",
        ),
        rival="boundary 31, 12× farther (slot.001)",
        fix={
            "any": "for boundaries 3, 31, 61 write",
            "SGLang 0.5.13+, DeepSeek and Kimi-K2": "3,31 (61 is out of reach)",
            "vLLM": "3,31,61  (id k is the stream entering layer k)",
        },
        confirm=(f"{CONFIRM} 3,31 -v",),
        structural=True,
    )
    normed = Finding(
        "HS201",
        "final-norm-applied",
        "the candidate's last hidden state was taken after the final norm, the other side's before it",
        0.107,
        slots=("slot.002",),
        tokens=96,
        evidence=(
            "slot.002: boundary 61 after the final norm at 0.016, the floor allows 0.034; next best boundary 61 "
            "after the final norm, twice at 0.095, farther on 99 % of tokens",
        ),
        rival="boundary 61 after the final norm, twice, 6× farther",
        fix={
            "any": "take the input of the final norm on that side",
            "sglang": "return_hidden_states is normed: use the captured layers, or compare it as final_norm",
            "hf": "hidden_states[-1] is normed: hook the input of model.norm",
        },
        confirm=(f"{CONFIRM} 61 -v",),
        structural=True,
    )
    keys = ("slot.000", "slot.001", "slot.002")
    slots = (
        SlotMatch(keys[0], "cand", 3, 4, 0.0031, 3, 0.094, 1.48, True, "id 4"),
        SlotMatch(keys[1], "cand", 31, 32, 0.012, 31, 0.14, 1.07, True, "id 32"),
        SlotMatch(keys[2], "cand", 61, 61, 0.016, 61, 0.095, 0.78, True, "last"),
    )
    deltas = [replace(delta(b, 70.0, True), cand=key) for b, key in zip((3, 31, 61), keys, strict=True)]
    return comparison(
        Verdict.DIVERGED,
        "3 of 3 requested sites lie outside the noise floor.",
        deltas,
        cand=side("cand", "captures/vllm-slots", "vllm", "0.32.0", sites=keys),
        request=replace(request([2, 30, 60]), spelled="--boundaries 3,31,61"),
        alignment=alignment(
            slots=slots, cand_boundaries=(3, 31, 61), pair_error_kk=np.full((62, 3), 0.5, np.float32)
        ),
        map=token_map(2, excess_map(2, 96, lambda b, t: 1.7 + 0.1 * ripple(b, t))),
        findings=(offset, replace(ORDER, slots=keys, explained=0.24), normed, RULED_OUT[1]),
    )


def target_clean() -> Comparison:
    """Nothing is wrong with the target; the rest is the draft's."""
    clean = Finding(
        "HS902",
        "target-clean",
        "the target is clean: 3 sites over 96 tokens of 3 prompts, each where it is said to be",
        slots=tuple(f"boundary.{b:03d}" for b in ASKED),
        tokens=96,
        evidence=(
            "left to check on the draft: EAGLE-3 mode, fc width = slots x hidden size",
            "its layer ids in this engine's terms: hsparity conventions",
            "d2t and t2d maps, shared embedding and lm_head, norm before fc, rope, trained dtype",
        ),
        severity="note",
    )
    return comparison(
        Verdict.PARITY,
        "All 3 requested sites lie within the noise floor.",
        [delta(b, 0.95, b in ASKED) for b in range(62)],
        findings=(WITHIN, clean),
    )
