"""E280 to E289: the static check of a draft head. These exit 2."""

from __future__ import annotations

from .entry import entry

TEXTS = (
    entry(
        "E280",
        "no-such-serving-engine",
        "The engine or its version is not one that a draft head can be checked against.",
        "Known are vllm, sglang and hf (the EAGLE reference on Transformers). A version begins with a number: 0.32.0.",
        "Correct --engine or --engine-version. hsparity conventions lists what was read of each.",
    ),
    entry(
        "E281",
        "draft-target-absent",
        "The target that the draft is checked against is not on this machine.",
        "Only its config.json is needed; of its weights, where they are there, a few rows of the embedding and lm_head are "
        "read. Looked at are the folder and the hub's cache; nothing is downloaded.",
        "Name a folder that holds its config.json, or leave --model out: the checks that need it say so.",
    ),
    entry(
        "E282",
        "training-not-told",
        "The boundaries that a trainer's rule gives for this head cannot be told.",
        'A trainer is named as in hsparity conventions, with its release: "speculators 0.4.0". Its default list needs the '
        "target's number of layers, which --model gives. A list of boundaries is numbers with commas between.",
        "Give the boundaries themselves: --trained-on 2,16,29. Boundary r is the stream after r layers.",
    ),
    entry(
        "E283",
        "not-a-draft-check",
        "The file is no record of hsparity drafter check.",
        "It was written by another command, by another version of the schema, or by hand.",
        "Write it again with hsparity drafter check DRAFT --engine E --json FILE.",
    ),
)
