"""E260 to E262 and E270, E271: opening a draft head, and what it costs. These exit 2."""

from __future__ import annotations

from .entry import entry

TEXTS = (
    entry(
        "E260",
        "no-draft",
        "There is no draft head at that place, or its config.json cannot be read.",
        "A head is a folder with config.json and weights, or a hub name that is already in the hub's cache: nothing is "
        "downloaded.",
        "Name the folder, or fetch the head first with the tool you serve it with.",
    ),
    entry(
        "E261",
        "no-draft-weights",
        "The folder of the draft head holds no weights.",
        "Looked for are safetensors files, then pytorch_model.bin, which is opened as data only.",
        "Name the folder that the trainer exported, not the one with its logs.",
    ),
    entry(
        "E262",
        "no-eagle3-head",
        "The checkpoint is no EAGLE-3 head.",
        "An EAGLE-3 head has fc.weight, which takes several states of the target, and one decoder layer of its own, called "
        "midlayer, layers.0 or model.layers.0. A target, an MTP module or a DFlash draft has not.",
        "Name the head's folder. For what an engine does with it: hsparity drafter check.",
    ),
    entry(
        "E270",
        "draft-slots",
        "A side does not feed as many states as the draft head takes.",
        "The width of fc says how many. The message lines up what the head takes and what the side feeds, and why.",
        "Name what the head was trained on with --boundaries, or capture with the ids in its config: --mechanism both "
        "--native-ids LIST.",
    ),
    entry(
        "E271",
        "draft-needs-first-row",
        "No prompt is held from its first row on.",
        "A draft head attends to every row before the one it drafts from, so rows that a prefix cache or a chunk left out "
        "leave nothing to predict from.",
        "Capture again without prefix cache and in one chunk.",
    ),
)
