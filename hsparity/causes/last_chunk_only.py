"""HS111."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from hsparity.causes.row_fault import from_absent

if TYPE_CHECKING:
    from hsparity.evidence import Evidence
    from hsparity.model import Finding


class LastChunkOnly:
    """
    ## What it is
    Of a prompt that was prefilled in chunks only the last chunk's rows came back.
    ## Why it happens
    Each chunk overwrites what the one before it left, and only the last is returned.
    ## How it shows
    Prompts up to one chunk are whole; longer ones lost a multiple of the chunk, whatever they share with other
    prompts. Where the absent part is shared with an earlier prompt, it may be a cache (HS110).
    ## Fix
    Prefill in one pass while extracting, or collect the rows of every pass.
    """

    code, name = "HS111", "last-chunk-only"

    def find(self, evidence: Evidence) -> Finding | None:
        fix = {
            "vllm": "max_num_batched_tokens above the longest prompt, or enable_chunked_prefill=False",
            "sglang": "chunked_prefill_size=-1",
            "any": "prefill in one pass, or keep the rows of every chunk",
        }
        found = from_absent(evidence, self, fix)
        if found is None or evidence.cand.manifest.settings.get("chunked_prefill") is not False:
            return found
        # The rows say what is gone; who dropped them, the settings contradict.
        doubt = (
            "the candidate's settings say that prefill was not chunked: then whatever collected the rows cut them, or the "
            "settings are of another run"
        )
        return replace(found, evidence=(*found.evidence, doubt))


CAUSE = LastChunkOnly()
