"""Exit codes. Anything but 0 and 1 says nothing about parity."""

from __future__ import annotations

from .entry import Entry

TEXTS = (
    Entry(
        "exit 0",
        "parity",
        "Every compared layer lies within the floor, or the gate (--fail-on, [gate] in hsparity.toml) lets pass what was "
        "found and says so on stderr. Of hsparity diff: nothing got worse.",
    ),
    Entry(
        "exit 1",
        "diverged",
        "At least one requested layer lies outside the floor, or a structural finding is proved by its "
        "margin. "
        "An offset that aligns perfectly is still a divergence: the verdict is on what was claimed. With a gate: what "
        "--fail-on names was found, or a limit of [gate] is exceeded. Of hsparity diff: a cause is new, the verdict fell, or a "
        "site is worse by more than its intervals allow.",
    ),
    Entry(
        "exit 2",
        "usage",
        "The command line, the config, a capture or a result is wrong (E1xx, E2xx). Nothing was judged.",
    ),
    Entry(
        "exit 3",
        "inconclusive",
        "Nothing could be compared, or nothing says what is noise. The report names what is missing and "
        "the command that would settle it. With a gate, also: a limit of [gate] could not be checked. Of hsparity diff: "
        "what may have got worse could not be held against what it was, or --update was given a result that asks for fewer "
        "layers than the one it would replace.",
    ),
    Entry("exit 4", "engine", "An engine failed while capturing, or cannot do what was asked (E3xx)."),
    Entry(
        "exit 70", "bug", "A bug in hsparity, not a divergence (E900). Please report it with the traceback."
    ),
    Entry(
        "exit 130",
        "interrupted",
        "Stopped with Ctrl-C. A capture goes on where it stopped when the same command is typed.",
    ),
    Entry("exit 141", "closed-pipe", "The reader of the output went away (`hsparity compare ... | head`)."),
)
