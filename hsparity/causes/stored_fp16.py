"""HS306."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hsparity.evidence import Evidence
    from hsparity.model import Finding


class StoredFp16:
    """
    ## What it is
    States went through float16 on their way to the file: large values became infinite or 65504, or small ones
    were rounded to its coarsest steps.
    ## Why it happens
    A capture or a cast to float16 of a model whose stream exceeds 65504, or was scaled down for float16.
    ## How it shows
    Where one side is beyond 65504 the other is infinite or exactly at that limit; or all small values are
    multiples of 2^-24.
    ## Fix
    Store bf16 or float32.
    """

    code, name = "HS306", "stored-fp16"

    def find(self, evidence: Evidence) -> Finding | None:
        from hsparity.model import Finding

        found = evidence.slots.solution.precision.fp16
        if not found:
            return None
        lines = []
        for (_, key), limits in list(found.items())[:4]:
            counts = {
                "beyond 65504 became infinite": limits.overflowed,
                "stand at 65504": limits.saturated,
                "small values became zero": limits.zeroed,
                "small values are multiples of 2^-24": limits.flushed,
            }
            lines += [f"{key}: {number} {words}" for words, number in counts.items() if number]
        return Finding(
            code=self.code,
            name=self.name,
            headline="the candidate's states went through float16, which cannot hold them",
            slots=tuple(key for _, key in found),
            evidence=tuple(lines),
            fix={"any": "store bf16 or float32"},
            rival="an overflow in the computation: it would not stop at float16's limit where the other side passes it",
            structural=True,
        )


CAUSE = StoredFp16()
