"""E1xx: the command line and the config. These exit 2."""

from __future__ import annotations

from .entry import entry

TEXTS = (
    entry(
        "E100",
        "bad-command-line",
        "The command line could not be read: an unknown command or option, a missing or malformed value.",
        "A typing mistake, or an option of another command.",
        "Near matches are named in the message. `hsparity COMMAND --help` lists what a command takes.",
    ),
    entry(
        "E101",
        "nothing-to-compare",
        "No sides were given, and no hsparity.toml in this folder names them.",
        "`hsparity compare` without REF and CAND reads both from hsparity.toml. It never picks the newest "
        "two captures.",
        "Name both sides, `hsparity compare captures/hf captures/vllm`, or write hsparity.toml:\n\n"
        '    model = "deepseek-ai/DeepSeek-V3"\n    [ref]\n    engine = "hf"\n    [cand]\n    engine = '
        '"vllm"',
    ),
    entry(
        "E102",
        "bad-selection",
        "--layers, --boundaries, --tokens or --tol could not be read, or names something the model does not have.",
        "Layers count from 0 to L-1, boundaries from 0 (the embeddings) to L (before the final norm). A "
        "layer N is boundary N+1.",
        "Write numbers and ranges joined by commas: 2,30,58 or 0-60:5, or all, eagle3, eagle3-speculators. "
        "For tokens: all, prefill, decode, or a slice such as 0:128.",
    ),
    entry(
        "E103",
        "options-exclude-each-other",
        "Two options were given that cannot both hold.",
        "--layers and --boundaries say the same thing in two numberings, one apart. Given together they "
        "could disagree. A floor and --tol are two measures of what is noise. Two reports written to one file, or both to "
        "standard output, would overwrite each other.",
        "Give one of the two, or each report a file of its own. "
        "`--layers 2,30,58` and `--boundaries 3,31,59` are the same request.",
    ),
    entry(
        "E104",
        "bad-config",
        "hsparity.toml, or another file of hsparity's own, could not be read.",
        "The file is not TOML, holds a key that is not known there, or a value of another type.",
        "The message names the table and the key. A key that looks right but is unknown is an error, "
        "because a misspelt key that is "
        "ignored would change what is compared.",
    ),
    entry(
        "E105",
        "prompts-unreadable",
        "The prompts file could not be read.",
        "It is missing, it is not JSONL, or a line has neither text nor token ids. Ids outside the "
        "vocabulary count too.",
        'One JSON object a line: {"id": "a", "text": "Once upon a time"} or {"id": "a", "token_ids": [1, '
        "15043]}. Token ids leave no room "
        "for tokenisers to differ.",
    ),
    entry(
        "E106",
        "output-not-writable",
        "A path that was to be written cannot be.",
        "The folder is read-only, the path is a folder, permissions are missing, or the disk (or the device "
        "behind standard output) is full. Output paths are tried before any work is done.",
        "Name a file or folder you may write to. Managed environments and bundled models live under "
        "XDG_CACHE_HOME.",
    ),
    entry(
        "E107",
        "unknown-name",
        "An engine, a code or a model is not known by that name.",
        "A typing mistake, or a name from another version.",
        "Near matches are in the message. `hsparity engines` lists engines, `hsparity explain` lists codes.",
    ),
    entry(
        "E108",
        "package-missing",
        "The command needs a Python package that is not installed beside hsparity.",
        "Packages that few commands need are extras: pyarrow for the Arrow dataset of speculators v2.",
        "Install the extra that the message names, such as pip install 'hsparity[arrow]'.",
    ),
)
