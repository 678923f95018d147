"""HS510."""

from __future__ import annotations

from hsparity.causes.hypothesis import Hypothesis


class ChunkBoundary(Hypothesis):
    """
    ## What it is
    A prompt computed in chunks differs behind the first chunk.
    ## Why it happens
    Chunked prefill or a prefix cache: later chunks read the cache, in its dtype, through another kernel, with another mask.
    ## How it shows
    Rows of a prompt's first pass are at the floor or equal in every bit; those of later passes are not. The captures say
    which pass made each row.
    ## Fix
    Raise the token budget until prompts are one pass, or switch chunked prefill off, and compare again.
    """

    code, name = "HS510", "chunk-boundary"


CAUSE = ChunkBoundary()
