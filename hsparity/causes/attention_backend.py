"""HS504."""

from __future__ import annotations

from hsparity.causes.hypothesis import Hypothesis


class AttentionBackend(Hypothesis):
    """
    ## What it is
    The sides ran different attention kernels, and what differs is how these round.
    ## Why it happens
    Engines choose a backend by device and model: FlashAttention, FlashInfer, Triton, MLA absorbed or expanded, torch. Each adds
    in another order and keeps its partial results in another precision.
    ## How it shows
    Position 0 is exact, as a softmax over one key is; the rest stands little above the floor, at all layers alike. More than
    three times the floor is not the order of sums.
    ## Fix
    Choose the same backend on both sides, or accept it: what bf16 costs anyway is not a fault. `hsparity bisect --knobs
    attention-backend` tries those that run here.
    """

    code, name = "HS504", "attention-backend"


CAUSE = AttentionBackend()
