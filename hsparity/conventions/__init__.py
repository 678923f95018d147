"""What each engine and trainer calls a boundary: a prior for printing, never used to decide anything.

One table, in rules_*.py, with the versions and model families each row holds for and where it was read.
"""

from __future__ import annotations

from .drafts import FAMILIES, draft_config, draft_ids, families, sentence
from .numbering import Ids, Numbering, Written, concrete
from .rule import Rule
from .table import ALIASES, RULES, Answer, answers, engines, parse_version, reading

__all__ = [
    "ALIASES",
    "FAMILIES",
    "RULES",
    "Answer",
    "Ids",
    "Numbering",
    "Rule",
    "Written",
    "answers",
    "concrete",
    "draft_config",
    "draft_ids",
    "engines",
    "families",
    "parse_version",
    "reading",
    "sentence",
]
