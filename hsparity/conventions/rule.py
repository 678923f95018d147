"""One row of the table, and the words that several rows share."""

from __future__ import annotations

from dataclasses import dataclass

from .numbering import Numbering


@dataclass(frozen=True, slots=True)
class Rule:
    """What an id of one setting means in one range of versions for some model families."""

    engine: str
    label: str  # as a report heads its line
    setting: str  # what the list is called
    models: str  # the families in words
    since: str  # first and last version it holds for; "" where the tool was read at a commit
    until: str
    rule: str  # how an id is read
    numbering: Numbering
    last: str  # what boundary L is, and whether it can be had
    order: str  # what becomes of the order and of duplicates
    default: str  # without a list
    source: str
    families: tuple[
        str, ...
    ] = ()  # how class names begin, without case and punctuation; empty: every other one
    most: bool = False  # also the answer, marked as such, for a family that no row names
    run: str = ""  # what was run on the real engine, beside being read
    native: bool = False  # what a capture's native ids are
    keeps_order: bool = False  # slots come in the order of the list
    read_at: str = ""  # the commit, for a tool read without a release number
    many: str = ""  # the answer to a long list
    note: str = ""


ASCENDING = "ascending"
TRIPLE = "2, L//2, L-3 (boundaries 2, L//2, L-3)"
TRIPLE_LESS_ONE = "1, L//2-1, L-4 (boundaries 2, L//2, L-3)"
RAW = "L, before the final norm"
OUT = "boundary L is out of reach"

DEEPSEEK_FAMILIES = ("deepseekv2", "deepseekv3", "kimik2", "glmmoedsa")
SGLANG_DEEPSEEK = (*DEEPSEEK_FAMILIES, "mistrallarge3")
SGLANG_MOST = (
    *("llama", "mistral", "ministral3", "phi3", "internlm3", "iquestcoder", "teleflm"),
    *(
        "qwen2",
        "qwen3",
        "apertus",
        "exaonemoe",
        "glm4moe",
        "glm5next",
        "bailingmoe",
        "minimaxm2",
        "longcatflash",
    ),
)
MANY_STREAMS = "its layers carry several streams, so no single tensor is a boundary"
