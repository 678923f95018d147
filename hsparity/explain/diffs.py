"""E255 to E259: saved results held against each other or laid side by side. These exit 2."""

from __future__ import annotations

from .entry import entry

TEXTS = (
    entry(
        "E255",
        "nothing-in-common",
        "hsparity diff was given two results of which nothing can be held against the other.",
        "They are of different models (another architecture, layer count, hidden size, or other weights of the "
        "reference), or no boundary of the reference is in both: other layers were compared. Another --offset, and slots "
        "beside boundaries, are held by the reference's boundary.",
        "The message shows what each result is of. Compare the new captures again on the old request, with the "
        "command it gives; results of several models stand side by side in `hsparity overview FOLDER`.",
    ),
    entry(
        "E256",
        "no-results",
        "hsparity overview found no result in the folder that it was given.",
        "The folder is another one, or holds no file that `hsparity compare --json` or `hsparity drafter --json` "
        "wrote. Files are looked for in it and in all folders below, by the suffix .json.",
        "Write one with `hsparity compare REF CAND --json FOLDER/NAME.json`. The message names JSON files that "
        "were there and are something else.",
    ),
)
