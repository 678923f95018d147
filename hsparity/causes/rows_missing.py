"""HS104."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hsparity.causes.base import counted

if TYPE_CHECKING:
    from hsparity.evidence import Evidence
    from hsparity.model import Finding


class RowsMissing:
    """
    ## What it is
    One side has no states for tokens that both sides were fed. What both have is compared; the verdict is
    diverged. A prompt that only one side ran is not compared, and no finding.
    ## Why it happens
    Tokens served from a prefix (radix) cache are not computed again, so no state passes by. Some extractors
    drop rows under chunked prefill, at a multiple of the chunk size, or for all but the first requests of a
    batch.
    ## How it shows
    Fewer rows than token ids, usually a span at the start of a prompt whose length is a multiple of the block
    size.
    ## Fix
    Capture with prefix caching off (vLLM: enable_prefix_caching=False; SGLang: disable_radix_cache=True).
    """

    code, name = "HS104", "rows-missing"

    def find(self, evidence: Evidence) -> Finding | None:
        from hsparity.model import Finding

        lost = [m for m in evidence.rows.mismatches if m.kind == "rows"]
        longer = [m for m in evidence.rows.mismatches if m.kind == "longer"]
        if (not lost and not longer) or (lost and _named_elsewhere(evidence)):
            return None
        if not lost:
            words = f"{longer[0].text}; what both have is compared"
            lines = tuple(m.text for m in longer[1:6])
            return Finding(self.code, self.name, words, evidence=lines, severity="note")
        sides = sorted({m.side for m in lost})
        count = sum(m.count for m in lost)
        prompts = len({m.prompt for m in lost})
        who = " and ".join(sides)
        return Finding(
            code=self.code,
            name=self.name,
            headline=f"{who} {'lacks' if len(sides) == 1 else 'lack'} {counted(count, 'row')}{_kind(evidence)} "
            f"in {counted(prompts, 'prompt')}",
            tokens=count,
            evidence=tuple(m.text for m in [*lost, *longer][:6]),
            fix={"vllm": "enable_prefix_caching=False", "sglang": "disable_radix_cache=True"},
            structural=True,
        )


def _kind(evidence: Evidence) -> str:
    """Says so when every missing row is a decoded token's."""
    for side in ("ref", "cand"):
        for prompt in evidence.side(side).prompts:
            if any(start < prompt.prefill for start, _ in prompt.missing):
                return ""
    return " of decoded tokens"


def _named_elsewhere(evidence: Evidence) -> bool:
    """Whether the rows are missing for a reason that has a name of its own."""
    from hsparity.causes.row_fault import absent

    if any(f.name not in ("rows-missing", "rows-stale") for f in evidence.row_faults):
        return True
    fault = absent(evidence)
    return fault is not None and fault.name != "rows-missing"


CAUSE = RowsMissing()
