"""E24x: bisections. These exit 2."""

from __future__ import annotations

from .entry import entry

TEXTS = (
    entry(
        "E240",
        "cannot-be-made-again",
        "A side of `hsparity bisect` holds no spec.json, so it cannot be captured again with one setting changed.",
        "It was imported from another program's files, or copied without the file. bisect turns one knob of the engine at a "
        "time, and has to know everything else that the capture was made with.",
        "Capture that side with hsparity (the message gives the command), from the same prompts as the other side. Files of "
        "another program are compared with `hsparity compare` or `hsparity audit`.",
    ),
    entry(
        "E241",
        "made-elsewhere",
        "The side was captured on another kind of device than this machine has.",
        "A variant made here would differ from it by the device too, and the knob would get the blame.",
        "Run bisect on the machine that made the captures, or capture both sides here.",
    ),
    entry(
        "E242",
        "no-such-knob",
        "--knobs names a knob that neither engine has.",
        "Often the engine's argument in place of the knob's name: the knob kv-dtype sets kv_cache_dtype.",
        "The message lists the knobs. `hsparity doctor` says which can be turned here.",
    ),
    entry(
        "E243",
        "no-boundary-in-common",
        "The two captures share no boundary at which the difference could be measured.",
        "One side holds the native slots, the other other layers; or only the final norm was captured.",
        "Capture boundaries on both sides, or use --mechanism native with the same --native-ids on both.",
    ),
)
