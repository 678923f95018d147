"""HS110."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hsparity.causes.row_fault import from_absent

if TYPE_CHECKING:
    from hsparity.evidence import Evidence
    from hsparity.model import Finding


class PrefixCacheSkip:
    """
    ## What it is
    The first rows of prompts are absent because their tokens came from a prefix (radix) cache: nothing was
    computed for them, so no state passed by.
    ## Why it happens
    Prefix caching is on while states are extracted. vLLM and SGLang then hand over the rows of uncached tokens
    only; an extractor that lays them from position 0 shifts every row.
    ## How it shows
    What is there is the end of the prompt. The absent part is a multiple of the cache's block size and is
    shared with an earlier prompt. Where every long prompt lost a multiple of one chunk, it is HS111.
    ## Fix
    Capture with prefix caching off.
    """

    code, name = "HS110", "prefix-cache-skip"

    def find(self, evidence: Evidence) -> Finding | None:
        fix = {
            "vllm": "enable_prefix_caching=False",
            "sglang": "disable_radix_cache=True",
            "any": "capture with prefix caching off",
        }
        return from_absent(evidence, self, fix)


CAUSE = PrefixCacheSkip()
